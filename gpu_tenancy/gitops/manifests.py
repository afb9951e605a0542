"""Manifests as files in folders that kubectl and helm, Argo CD and Flux can apply."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, map_at
from gpu_tenancy.engine.block import as_yaml
from gpu_tenancy.engine.releases import HelmRelease
from gpu_tenancy.gitops.pieces import BUILT_IN, OPERATORS, TENANCY, WORK, Piece

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_KUSTOMIZATION: Final = "kustomization.yaml"
_TO_PULUMI: Final = "pulumi.com/"
_TTL: Final = "ttlSecondsAfterFinished"
_RETAINED: Final[dict[str, Json]] = {
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
"""Annotations with which Argo CD and Flux keep an object that is no longer in the folder."""

Files = dict[PurePosixPath, str]
"""File contents by path."""


def content(piece: Piece) -> dict[str, Json]:
    """The manifest of an object, without what only Pulumi reads.

    A finished job does not delete itself, because Argo CD or Flux would create and run it again.
    """
    metadata = map_at(piece.manifest, "metadata")
    kept = {key: value for key, value in map_at(metadata, "annotations").items() if not key.startswith(_TO_PULUMI)}
    kept |= _RETAINED if piece.retained else {}
    changed: dict[str, Json] = {key: value for key, value in metadata.items() if key != "annotations"}
    if kept:
        changed = {"annotations": dict(sorted(kept.items())), **changed}
    manifest: dict[str, Json] = {key: changed if key == "metadata" else value for key, value in piece.manifest.items()}
    spec = map_at(manifest, "spec")
    if piece.part == WORK and _TTL in spec:
        manifest["spec"] = {key: value for key, value in spec.items() if key != _TTL}
    return manifest


def file_name(member: Piece) -> str:
    """The file name of an object, unique in a stack, such as `ml-research.job-nightly.yaml`."""
    place = member.namespace or "_cluster"
    kind = member.kind.lower() if member.group in BUILT_IN else f"{member.kind.lower()}.{member.group}"
    return _UNSAFE.sub("_", f"{place}.{kind}-{member.name}") + ".yaml"


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
    """The files in `operators`, `tenancy` and `work`: objects with a kustomization, Helm values with their command.

    Each folder numbers its own waves, so a new operator renames no file of the teams.
    """
    files: Files = {}
    for part in (OPERATORS, TENANCY, WORK):
        members = [piece for piece in pieces if piece.part == part]
        listed: list[str] = []
        for number, wave in enumerate(sorted({piece.wave for piece in members})):
            place = PurePosixPath(part, f"wave-{number:02}")
            of_wave = [piece for piece in members if piece.wave == wave]
            if objects := named((file_name(piece), content(piece)) for piece in of_wave if not piece.release):
                files |= {place / file: as_yaml(manifest) for file, manifest in sorted(objects.items())}
                files[place / _KUSTOMIZATION] = _kustomization(sorted(objects))
                listed.append(place.name)
            for release in (piece.release for piece in of_wave if piece.release):
                file = place / f"helm-{release.name}.yaml"
                files[file] = f"# {_command(release, file)}\n" + as_yaml(release.values)
        if listed:
            files[PurePosixPath(part, _KUSTOMIZATION)] = _kustomization(listed)
    return files


def _kustomization(resources: Sequence[str]) -> str:
    kustomization: dict[str, Json] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*resources],
    }
    return as_yaml(kustomization)


def _command(release: HelmRelease, values: PurePosixPath) -> str:
    """The command that installs or upgrades a release, for the folder that has all."""
    arguments = ["helm", "upgrade", "--install", release.name, release.reference, "--version", release.version]
    arguments += ["--repo", release.repository] if release.repository else []
    arguments += ["--namespace", release.namespace, "--values", values.as_posix(), "--atomic"]
    arguments += ["--timeout", f"{release.timeout}s"] if release.timeout else []
    arguments += ["--skip-crds"] if release.skip_crds else []
    return shlex.join(arguments)
