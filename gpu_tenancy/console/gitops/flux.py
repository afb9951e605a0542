"""A tree for Flux: one Kustomization for each group, one HelmRelease with its source for each release."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.gitops.groups import WORK, Group, groups
from gpu_tenancy.console.gitops.manifests import Files, content, file_name, folder, named
from gpu_tenancy.console.gitops.pieces import Piece, Release
from gpu_tenancy.console.offline.wire import Json

KUSTOMIZE: Final = "kustomize.toolkit.fluxcd.io"
_SOURCE: Final = "source.toolkit.fluxcd.io/v1"
_HELM: Final = "helm.toolkit.fluxcd.io/v2"
_CHART_LAYER: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_LONGEST: Final = 63
"""Characters of a Kustomization's name, since Flux labels with it what it applies."""


def flux(stack: str, found: Sequence[Piece], path: str, source: str) -> Files:
    """The tree: `kustomization.yaml` lists the Kustomizations, each of which applies one folder.

    Args:
        stack: its name, with which the Kustomizations' names begin.
        found: objects and releases.
        path: of the tree's folder in the repository.
        source: name of the GitRepository, in the namespace flux-system.

    Raises:
        ConsoleError: a name is too long.
    """
    files: Files = {}
    listed: dict[str, Mapping[str, Json]] = {}
    for group in groups(found):
        files |= folder(group.name, named(_members(group)))
        listed[f"flux-{group.name}.yaml"] = _kustomization(stack, group, path, source)
    return {**folder("", listed), **files}


def _members(group: Group) -> Iterator[tuple[str, Mapping[str, Json]]]:
    for one in group.members:
        kept = {f"{KUSTOMIZE}/prune": "disabled"} if one.retained else {}
        if one.release:
            name = one.release.helm.name
            yield f"source-{name}.yaml", _source(one.release, kept)
            yield f"release-{name}.yaml", _release(one.release, kept)
        else:
            # A job's pods cannot be changed: it is made anew, as Pulumi does, where the API server refuses a change.
            force = {f"{KUSTOMIZE}/force": "enabled"} if one.kind.endswith("Job") else {}
            yield file_name(one), content(one, {**kept, **force}, again_and_again=True)


def _kustomization(stack: str, group: Group, path: str, source: str) -> dict[str, Json]:
    name = _called(stack, group.name)
    spec: dict[str, Json] = {
        "interval": "10m",
        "retryInterval": "2m",
        "timeout": "30m",
        "path": f"./{PurePosixPath(path, group.name).as_posix()}",
        "prune": True,
        "wait": group.name != WORK,
        "sourceRef": {"kind": "GitRepository", "name": source},
    }
    if group.after:
        spec["dependsOn"] = [{"name": _called(stack, each)} for each in group.after]
    metadata: dict[str, Json] = {"name": name, "namespace": "flux-system"}
    return {"apiVersion": f"{KUSTOMIZE}/v1", "kind": "Kustomization", "metadata": metadata, "spec": spec}


def _called(stack: str, group: str) -> str:
    name = f"{stack}-{group}"
    if len(name) > _LONGEST:
        raise ConsoleError(
            f"{name} has {len(name)} characters, and Flux takes {_LONGEST}", "give the stack a shorter name"
        )
    return name


def _metadata(release: Release, annotations: Mapping[str, str]) -> dict[str, Json]:
    told: dict[str, Json] = {"annotations": dict(annotations)} if annotations else {}
    return {**told, "name": release.helm.name, "namespace": release.helm.namespace}


def _source(release: Release, annotations: Mapping[str, str]) -> dict[str, Json]:
    helm = release.helm
    kind = "HelmRepository" if helm.repository else "OCIRepository"
    spec: dict[str, Json] = {"interval": "1h", "url": helm.repository or helm.chart}
    if not helm.repository:
        spec |= {"ref": {"tag": helm.version}, "layerSelector": {"mediaType": _CHART_LAYER, "operation": "copy"}}
    return {"apiVersion": _SOURCE, "kind": kind, "metadata": _metadata(release, annotations), "spec": spec}


def _release(release: Release, annotations: Mapping[str, str]) -> dict[str, Json]:
    helm = release.helm
    spec: dict[str, Json] = {"interval": "1h", "releaseName": helm.name}
    if helm.repository:
        reference: dict[str, Json] = {"kind": "HelmRepository", "name": helm.name}
        spec["chart"] = {"spec": {"chart": helm.chart, "version": helm.version, "sourceRef": reference}}
    else:
        spec["chartRef"] = {"kind": "OCIRepository", "name": helm.name}
    if release.timeout:
        spec["timeout"] = f"{release.timeout}s"
    # What does not become ready is tried anew, as `atomic` and the next `pulumi up` would.
    again: dict[str, Json] = {"remediation": {"retries": 3}}
    crds: dict[str, Json] = {"crds": "Skip"} if release.skip_crds else {}
    spec |= {"install": {**crds, **again}, "upgrade": {**crds, **again}}
    if helm.values:
        spec["values"] = dict(helm.values)
    return {"apiVersion": _HELM, "kind": "HelmRelease", "metadata": _metadata(release, annotations), "spec": spec}
