"""What a tree is made of: a stack's objects and Helm releases, with what each must find in the cluster before it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gpu_tenancy.console.offline.manifests import KubernetesObject, kubernetes_objects
from gpu_tenancy.console.offline.ordering import waves
from gpu_tenancy.console.offline.recording import Registration
from gpu_tenancy.console.offline.releases import RELEASE, HelmRelease, helm_releases
from gpu_tenancy.console.offline.render import Rendered
from gpu_tenancy.console.offline.wire import Json, Path, at, text_at

BUILT_IN: Final = frozenset(
    {
        *("", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apps", "autoscaling", "batch"),
        *("coordination.k8s.io", "networking.k8s.io", "node.k8s.io", "policy", "rbac.authorization.k8s.io"),
        *("resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io"),
    }
)
"""API groups that every API server has; all others come with an operator's release."""

_RUNS: Final = frozenset(
    {
        *(("", "Pod"), ("apps", "DaemonSet"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("batch", "CronJob")),
        *(("batch.volcano.sh", "Job"), ("jobset.x-k8s.io", "JobSet"), ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")),
        *(("kubeflow.org", "PyTorchJob"), ("trainer.kubeflow.org", "TrainJob")),
    }
)
"""Kinds that run pods for as long as they like; whoever waited for their end would wait for days."""

_STAND_IN: Final = "kubernetes:gpu-tenancy:Release"
_SKIP_AWAIT: Final = "pulumi.com/skipAwait"


@dataclass(frozen=True, slots=True)
class Release:
    """A Helm release, with what its installer must know beside chart and values.

    Attributes:
        timeout: seconds that it may take; 0 where the program says nothing.
        skip_crds: the chart's definitions stay out.
    """

    helm: HelmRelease
    timeout: int
    skip_crds: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """One object, or one release.

    Attributes:
        manifest: the object as an API server gets it; of a release only kind and name.
        release: None for an object.
        before: the URNs of what must be there before.
        wave: all that it needs is in waves before its own.
        work: servers and jobs, and what follows them: nobody waits until they are healthy.
        awaited: what comes after wants it finished, not only there: a release, or a job that asks a webhook.
        retained: stays in the cluster when it leaves the stack.
    """

    urn: str
    group: str
    kind: str
    namespace: str
    name: str
    manifest: Mapping[str, Json] = field(repr=False)
    release: Release | None
    before: frozenset[str]
    wave: int
    work: bool
    awaited: bool
    retained: bool


def pieces(rendered: Rendered) -> tuple[Piece, ...]:
    """A stack's objects and releases, wave by wave, within a wave in the order of their URNs.

    Raises:
        DependencyCycleError: some wait for one another.
    """
    known = {one.urn: one for one in rendered.registrations}
    releases = {one.urn: one for one in helm_releases(rendered)}
    # A release stands among the objects as one of them, so that one walk of the graph finds what waits for what.
    objects = kubernetes_objects(replace(rendered, registrations=tuple(map(_stand_in, rendered.registrations))))
    before = _before(objects)
    work = _work(objects, before)
    return tuple(
        Piece(
            urn=one.urn,
            group=one.group,
            kind=one.kind,
            namespace=one.namespace,
            name=one.name,
            manifest=one.manifest,
            release=_release(known[one.urn], releases[one.urn]) if one.urn in releases else None,
            before=before[one.urn],
            wave=wave,
            work=one.urn in work,
            awaited=one.urn in releases or ((one.group, one.kind) == ("batch", "Job") and one.urn not in work),
            retained=known[one.urn].retain_on_delete,
        )
        for wave, members in enumerate(waves(objects))
        for one in members
    )


def refusals(rendered: Rendered) -> tuple[str, ...]:
    """Why a stack cannot be a tree in git: values that nobody may read there, or that nobody knows yet; sorted."""
    found: list[str] = []
    for one in kubernetes_objects(rendered):
        place = f"{one.namespace}/{one.name}" if one.namespace else one.name
        found += _hidden(f"{one.kind} {place}", one.secret_paths, one.unknown_paths)
    registrations = {one.urn: one for one in rendered.registrations}
    for one in helm_releases(rendered):
        told, what = registrations[one.urn], f"Helm release {one.namespace}/{one.name}"
        found += _hidden(what, told.secret_paths, told.unknown_paths)
        if not one.repository and not one.chart.startswith("oci://"):
            found.append(
                f"{what}: chart {one.chart} names no repository, so nobody but this machine finds it; "
                "name one, or an address that begins with oci://"
            )
        if not one.version:
            found.append(f"{what}: no version is pinned, so the tree would install whatever is newest; pin it")
    return tuple(sorted(found))


def stays(rendered: Rendered) -> tuple[tuple[str, str], ...]:
    """Type and name of what no tree can have: the cloud's resources, which stay with Pulumi; sorted."""
    return tuple(
        sorted(
            (one.type, one.name)
            for one in rendered.registrations
            if one.custom and not one.external_id and not one.type.startswith(("kubernetes:", "pulumi:"))
        )
    )


def _hidden(what: str, secret: tuple[Path, ...], unknown: tuple[Path, ...]) -> Iterator[str]:
    if secret:
        yield (
            f"{what}: {_places(secret)} is secret, and a tree in git would show it to everyone who reads it; take it "
            "out of the stack and let an operator in the cluster fetch it, such as External Secrets"
        )
    if unknown:
        yield (
            f"{what}: {_places(unknown)} is known only after a cloud has made it; write the value into the stack, "
            "or leave this stack to `pulumi up`"
        )


def _places(paths: tuple[Path, ...]) -> str:
    return ", ".join(".".join(map(str, path)) or "all of it" for path in paths)


def _stand_in(one: Registration) -> Registration:
    if one.type != RELEASE or one.external_id:
        return one
    metadata: dict[str, Json] = {"name": text_at(one.inputs, "name"), "namespace": text_at(one.inputs, "namespace")}
    inputs: dict[str, Json] = {"apiVersion": "helm.sh/v3", "kind": "Release", "metadata": metadata}
    return replace(one, type=_STAND_IN, inputs=inputs, secret_paths=(), unknown_paths=())


def _release(registration: Registration, helm: HelmRelease) -> Release:
    timeout = at(registration.inputs, "timeout")
    return Release(helm, timeout if isinstance(timeout, int) else 0, at(registration.inputs, "skipCrds") is True)


def _before(objects: tuple[KubernetesObject, ...]) -> dict[str, frozenset[str]]:
    """What each waits for: what the program says, and its namespace."""
    here = {one.urn for one in objects}
    namespaces = {one.name: one.urn for one in objects if (one.group, one.kind) == ("", "Namespace")}
    return {
        one.urn: frozenset({urn for urn in (*one.depends_on, namespaces.get(one.namespace, "")) if urn in here})
        for one in objects
    }


def _work(objects: tuple[KubernetesObject, ...], before: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """What nobody waits for, and whatever needs some of it."""
    found = {one.urn for one in objects if _unawaited(one)}
    left = list(found)
    after: dict[str, list[str]] = {}
    for urn, needs in before.items():
        for need in needs:
            after.setdefault(need, []).append(urn)
    while left:
        for urn in after.get(left.pop(), ()):
            if urn not in found:
                found.add(urn)
                left.append(urn)
    return frozenset(found)


def _unawaited(one: KubernetesObject) -> bool:
    skipped = text_at(one.manifest, "metadata", "annotations", _SKIP_AWAIT) == "true"
    return skipped or (one.group, one.kind) in _RUNS
