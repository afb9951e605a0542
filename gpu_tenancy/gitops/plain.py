"""Manifests for kubectl and helm: one folder per wave, to be applied in order."""

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from gpu_tenancy.engine.block import as_yaml
from gpu_tenancy.gitops.manifests import Files, content, file_name, folder, named
from gpu_tenancy.gitops.pieces import Piece, Release


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
                file = PurePosixPath(place, f"helm-{piece.release.helm.name}.yaml")
                files[file] = f"# {_command(piece.release, file)}\n" + as_yaml(piece.release.helm.values)
    return files


def _command(release: Release, values: PurePosixPath) -> str:
    """The command that installs or upgrades a release, for the folder above the waves."""
    helm = release.helm
    arguments = ["helm", "upgrade", "--install", helm.name, helm.reference, "--version", helm.version]
    arguments += ["--repo", helm.repository] if helm.repository else []
    arguments += ["--namespace", helm.namespace, "--values", values.as_posix(), "--atomic"]
    arguments += ["--timeout", f"{release.timeout}s"] if release.timeout else []
    arguments += ["--skip-crds"] if release.skip_crds else []
    return shlex.join(arguments)
