"""Manifests for Flux: a Kustomization for each group, a HelmRelease with its source for each release."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.releases import HelmRelease
from gpu_tenancy.gitops.manifests import Files, content, file_name, folder, named
from gpu_tenancy.gitops.pieces import WORK, Group, Piece, groups

KUSTOMIZE: Final = "kustomize.toolkit.fluxcd.io"
_SOURCE: Final = "source.toolkit.fluxcd.io/v1"
_HELM: Final = "helm.toolkit.fluxcd.io/v2"
_CHART_LAYER: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_MAX_NAME: Final = 63
"""Maximum characters of a Kustomization's name, because Flux uses it as a label value."""


def flux(stack: str, members: Sequence[Piece], path: str, source: str) -> Files:
    """The files: `kustomization.yaml` lists the Kustomizations, each of which applies one folder.

    Raises:
        ConsoleError: the name of a Kustomization is too long.
    """
    files: Files = {}
    listed: dict[str, Mapping[str, Json]] = {}
    for group in groups(members):
        files |= folder(group.name, named(_members(group)))
        listed[f"flux-{group.name}.yaml"] = _kustomization(stack, group, path, source)
    return {**folder("", listed), **files}


def _members(group: Group) -> Iterator[tuple[str, Mapping[str, Json]]]:
    for member in group.members:
        kept = {f"{KUSTOMIZE}/prune": "disabled"} if member.retained else {}
        if member.release:
            name = member.release.name
            yield f"source-{name}.yaml", _source(member.release, kept)
            yield f"release-{name}.yaml", _release(member.release, kept)
        else:
            # The pod template of a job is immutable, so a changed job is replaced, as by Pulumi; not that of a CronJob.
            replaced = member.kind.endswith("Job") and member.kind != "CronJob"
            force = {f"{KUSTOMIZE}/force": "enabled"} if replaced else {}
            yield file_name(member), content(member, {**kept, **force}, reapplied=True)


def _kustomization(stack: str, group: Group, path: str, source: str) -> dict[str, Json]:
    name = _kustomization_name(stack, group.name)
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
        spec["dependsOn"] = [{"name": _kustomization_name(stack, name)} for name in group.after]
    metadata: dict[str, Json] = {"name": name, "namespace": "flux-system"}
    return {"apiVersion": f"{KUSTOMIZE}/v1", "kind": "Kustomization", "metadata": metadata, "spec": spec}


def _kustomization_name(stack: str, group: str) -> str:
    name = f"{stack}-{group}"
    if len(name) > _MAX_NAME:
        raise ConsoleError(
            f"Kustomization name {name}: {len(name)} characters exceed the maximum of {_MAX_NAME}",
            "shorten the stack name",
        )
    return name


def _metadata(release: HelmRelease, annotations: Mapping[str, str]) -> dict[str, Json]:
    annotated: dict[str, Json] = {"annotations": dict(annotations)} if annotations else {}
    return {**annotated, "name": release.name, "namespace": release.namespace}


def _source(release: HelmRelease, annotations: Mapping[str, str]) -> dict[str, Json]:
    kind = "HelmRepository" if release.repository else "OCIRepository"
    spec: dict[str, Json] = {"interval": "1h", "url": release.repository or release.chart}
    if not release.repository:
        # Flux takes the digest before the tag: https://fluxcd.io/flux/components/source/ocirepositories/#reference.
        ref: dict[str, Json] = {"tag": release.version}
        if release.digest:
            ref["digest"] = release.digest
        spec |= {"ref": ref, "layerSelector": {"mediaType": _CHART_LAYER, "operation": "copy"}}
    return {"apiVersion": _SOURCE, "kind": kind, "metadata": _metadata(release, annotations), "spec": spec}


def _release(release: HelmRelease, annotations: Mapping[str, str]) -> dict[str, Json]:
    spec: dict[str, Json] = {"interval": "1h", "releaseName": release.name}
    if release.repository:
        reference: dict[str, Json] = {"kind": "HelmRepository", "name": release.name}
        spec["chart"] = {"spec": {"chart": release.chart, "version": release.version, "sourceRef": reference}}
    else:
        spec["chartRef"] = {"kind": "OCIRepository", "name": release.name}
    if release.timeout:
        spec["timeout"] = f"{release.timeout}s"
    # A release that does not become ready is retried, as with `atomic` and the next `pulumi up`.
    retries: dict[str, Json] = {"remediation": {"retries": 3}}
    crds: dict[str, Json] = {"crds": "Skip"} if release.skip_crds else {}
    spec |= {"install": {**crds, **retries}, "upgrade": {**crds, **retries}}
    if release.values:
        spec["values"] = dict(release.values)
    return {"apiVersion": _HELM, "kind": "HelmRelease", "metadata": _metadata(release, annotations), "spec": spec}
