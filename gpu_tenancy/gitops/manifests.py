"""Manifests as files: for kubectl and helm, and those that Argo CD and Flux apply."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, map_at
from gpu_tenancy.engine.block import as_yaml
from gpu_tenancy.engine.releases import HelmRelease
from gpu_tenancy.gitops.pieces import BUILT_IN, Piece

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_TO_PULUMI: Final = "pulumi.com/"

Files = dict[PurePosixPath, str]
"""File contents by path."""


def content(member: Piece, annotations: Mapping[str, str], *, reapplied: bool) -> dict[str, Json]:
    """The manifest of an object, without annotations for Pulumi, and with those for the tool that applies it.

    Args:
        member: the object.
        annotations: to add.
        reapplied: the tool creates deleted objects again. Then finished jobs must not delete themselves, because they
            would run again and again.
    """
    metadata = map_at(member.manifest, "metadata")
    kept = {key: value for key, value in map_at(metadata, "annotations").items() if not key.startswith(_TO_PULUMI)}
    kept |= annotations
    changed: dict[str, Json] = {key: value for key, value in metadata.items() if key != "annotations"}
    if kept:
        changed = {"annotations": dict(sorted(kept.items())), **changed}
    manifest: dict[str, Json] = {key: changed if key == "metadata" else value for key, value in member.manifest.items()}
    spec = map_at(manifest, "spec")
    if reapplied and member.work and "ttlSecondsAfterFinished" in spec:
        manifest["spec"] = {key: value for key, value in spec.items() if key != "ttlSecondsAfterFinished"}
    return manifest


def file_name(member: Piece) -> str:
    """The file name of an object, unique in a stack, such as `ml-research.job-nightly.yaml`."""
    place = member.namespace or "_cluster"
    kind = member.kind.lower() if member.group in BUILT_IN else f"{member.kind.lower()}.{member.group}"
    return _UNSAFE.sub("_", f"{place}.{kind}-{member.name}") + ".yaml"


def folder(name: str, members: Mapping[str, Mapping[str, Json]]) -> Files:
    """The files of a folder, with the kustomization that lists them."""
    listed: dict[str, Json] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*sorted(members)],
    }
    return {
        PurePosixPath(name, file): as_yaml(manifest)
        for file, manifest in [*sorted(members.items()), ("kustomization.yaml", listed)]
    }


def named(files: Iterable[tuple[str, Mapping[str, Json]]]) -> dict[str, Mapping[str, Json]]:
    """Manifests by file name.

    Raises:
        ConsoleError: two objects have the same file name.
    """
    members: dict[str, Mapping[str, Json]] = {}
    for file, manifest in files:
        if file in members:
            raise ConsoleError(f"{file}: two objects have this file name", "rename one of them")
        members[file] = manifest
    return members


def plain(pieces: Sequence[Piece]) -> Files:
    """The files in `wave-00`, `wave-01` and so on: objects with a kustomization, Helm values with their command."""
    files: Files = {}
    for wave in sorted({piece.wave for piece in pieces}):
        place = f"wave-{wave:02}"
        objects = [piece for piece in pieces if piece.wave == wave and not piece.release]
        if objects:
            files |= folder(place, named((file_name(piece), content(piece, {}, reapplied=False)) for piece in objects))
        for piece in pieces:
            if piece.wave == wave and piece.release:
                file = PurePosixPath(place, f"helm-{piece.release.name}.yaml")
                files[file] = f"# {_command(piece.release, file)}\n" + as_yaml(piece.release.values)
    return files


def _command(release: HelmRelease, values: PurePosixPath) -> str:
    """The command that installs or upgrades a release, for the folder above the waves."""
    arguments = ["helm", "upgrade", "--install", release.name, release.reference, "--version", release.version]
    arguments += ["--repo", release.repository] if release.repository else []
    arguments += ["--namespace", release.namespace, "--values", values.as_posix(), "--atomic"]
    arguments += ["--timeout", f"{release.timeout}s"] if release.timeout else []
    arguments += ["--skip-crds"] if release.skip_crds else []
    return shlex.join(arguments)
