"""A tree for kubectl and helm: one folder a wave, applied one after another."""

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from gpu_tenancy.console.gitops.manifests import Files, content, file_name, folder, named
from gpu_tenancy.console.gitops.pieces import Piece
from gpu_tenancy.console.offline.files import as_yaml


def plain(found: Sequence[Piece]) -> Files:
    """`wave-00`, `wave-01` and so on: objects with a kustomization, releases as values with the command above them."""
    files: Files = {}
    for wave in sorted({one.wave for one in found}):
        place = f"wave-{wave:02}"
        objects = [one for one in found if one.wave == wave and not one.release]
        if objects:
            files |= folder(place, named((file_name(one), content(one, {}, again_and_again=False)) for one in objects))
        for one in found:
            if one.wave == wave and one.release:
                file = PurePosixPath(place, f"helm-{one.release.helm.name}.yaml")
                files[file] = f"# {_command(one, file)}\n" + as_yaml(one.release.helm.values)
    return files


def _command(one: Piece, values: PurePosixPath) -> str:
    """What installs a release, or brings it to this version; in the tree's folder."""
    if one.release is None:
        return ""
    helm = one.release.helm
    words = ["helm", "upgrade", "--install", helm.name, helm.chart, "--version", helm.version]
    words += ["--repo", helm.repository] if helm.repository else []
    words += ["--namespace", helm.namespace, "--values", values.as_posix(), "--atomic"]
    words += ["--timeout", f"{one.release.timeout}s"] if one.release.timeout else []
    words += ["--skip-crds"] if one.release.skip_crds else []
    return shlex.join(words)
