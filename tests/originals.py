"""Files of other projects, as their authors published them, which tests compare tables of this repository with.

They are never part of the repository. `GPU_TENANCY_UPSTREAM` names a folder of copies; without one the comparisons are
skipped, and counted at the end of the run. The tables have source, version and checksum of their original.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from gpu_tenancy.model.catalogue.operators import FREE

FOLDER: Final = "GPU_TENANCY_UPSTREAM"
"""Environment variable: a folder with `charts/CHART/values.yaml` and `crds/OPERATOR/FILE`; whole charts, as `helm pull
--untar` makes them, are rendered too; `packages/PACKAGE` are unpacked Python packages."""


def original(path: str) -> Path:
    """A file or folder there, such as `charts/kueue/values.yaml`; without it, the test is skipped."""
    folder = os.environ.get(FOLDER)
    if not folder:
        pytest.skip(f"not compared with the original: set {FOLDER} to a folder of upstream files")
    file = Path(folder) / path
    if not file.exists():
        pytest.skip(f"not compared with the original: {FOLDER} has no copy of {path}")
    return file


_FREE_MAPS: Final = frozenset(
    {
        "additionalLabels",
        "affinity",
        "annotations",
        "containerSecurityContext",
        "env",
        "labels",
        "nodeSelector",
        "podAnnotations",
        "podLabels",
        "podSecurityContext",
        "resources",
        "securityContext",
        "selector",
    }
)
"""Maps that Kubernetes defines: the keys in a chart's defaults are examples, not a complete list."""


def described(values: Mapping[str, Any]) -> dict[str, str]:
    """The `keys` of a chart's row, generated from its default values."""
    keys: dict[str, str] = {}
    _describe(values, (), keys)
    return keys


def _describe(values: Mapping[str, Any], place: tuple[str, ...], keys: dict[str, str]) -> None:
    ends: list[str] = []
    deeper: list[str] = []
    for key, value in values.items():
        is_map = isinstance(value, Mapping)
        if is_map and value and key not in _FREE_MAPS and "." not in key:
            deeper.append(key)
        else:
            ends.append(f"{key}{FREE}" if is_map or value is None else key)
    if ends:
        keys[".".join(place) or "."] = " ".join(ends)
    for key in deeper:
        _describe(values[key], (*place, key), keys)
