"""Objects as files of a tree: their content, their names, and the kustomization that lists them."""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.gitops.pieces import BUILT_IN, Piece
from gpu_tenancy.console.offline.files import as_yaml
from gpu_tenancy.console.offline.wire import Json, at

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_TO_PULUMI: Final = "pulumi.com/"

Files = dict[PurePosixPath, str]
"""Texts by their places in a tree."""


def content(one: Piece, annotations: Mapping[str, str], *, again_and_again: bool) -> dict[str, Json]:
    """An object as it stands in a tree: without words that are for Pulumi, with those for whoever applies it.

    Args:
        one: the object.
        annotations: to add.
        again_and_again: whoever applies it makes again what is gone. Then a finished job stays: one that removed itself
            would run anew, every time.
    """
    metadata = _map(one.manifest, "metadata")
    kept = {key: value for key, value in _map(metadata, "annotations").items() if not key.startswith(_TO_PULUMI)}
    kept |= annotations
    told: dict[str, Json] = {key: value for key, value in metadata.items() if key != "annotations"}
    if kept:
        told = {"annotations": dict(sorted(kept.items())), **told}
    found: dict[str, Json] = {key: told if key == "metadata" else value for key, value in one.manifest.items()}
    spec = _map(found, "spec")
    if again_and_again and one.work and "ttlSecondsAfterFinished" in spec:
        found["spec"] = {key: value for key, value in spec.items() if key != "ttlSecondsAfterFinished"}
    return found


def file_name(one: Piece) -> str:
    """A name that no other object of a stack has, such as `ml-research.job-nightly.yaml`."""
    place = one.namespace or "_cluster"
    kind = one.kind.lower() if one.group in BUILT_IN else f"{one.kind.lower()}.{one.group}"
    return _UNSAFE.sub("_", f"{place}.{kind}-{one.name}") + ".yaml"


def folder(name: str, members: Mapping[str, Mapping[str, Json]]) -> Files:
    """The files of a folder, with the kustomization that lists them.

    Args:
        name: of the folder.
        members: content by file name.
    """
    listed: dict[str, Json] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*sorted(members)],
    }
    return {
        PurePosixPath(name, file): as_yaml(words)
        for file, words in [*sorted(members.items()), ("kustomization.yaml", listed)]
    }


def named(found: Iterable[tuple[str, Mapping[str, Json]]]) -> dict[str, Mapping[str, Json]]:
    """Contents by their file names.

    Raises:
        ConsoleError: two would share one.
    """
    members: dict[str, Mapping[str, Json]] = {}
    for file, words in found:
        if file in members:
            raise ConsoleError(f"two objects would share the file {file}", "rename one of them")
        members[file] = words
    return members


def _map(value: Mapping[str, Json], key: str) -> dict[str, Json]:
    found = at(value, key)
    return found if isinstance(found, dict) else {}
