"""Files of other projects, as their authors published them, which tests compare tables of this repository with.

They are never part of the repository. `GPU_TENANCY_UPSTREAM` names a folder of copies; without one the comparisons are
skipped, and counted at the end of the run. The tables say source, version and checksum of what they were made of.
"""

import os
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = "GPU_TENANCY_UPSTREAM"
"""Environment variable: a folder with `charts/CHART/values.yaml` and `crds/OPERATOR/FILE`; whole charts, as
`helm pull --untar` makes them, are rendered too; `packages/PACKAGE` are unpacked Python packages."""


def original(path: str) -> Path:
    """A file or folder there; the test that asks for it is skipped, by name, without the folder or without that file.

    Args:
        path: such as `charts/kueue/values.yaml`.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        pytest.skip(f"not compared with the original: set {FOLDER} to a folder of upstream files")
    file = Path(folder) / path
    if not file.exists():
        pytest.skip(f"not compared with the original: {FOLDER} has no copy of {path}")
    return file
