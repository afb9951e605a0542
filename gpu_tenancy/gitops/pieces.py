"""A stack's objects and Helm releases with their dependencies, for manifests in git."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Final

from gpu_tenancy.base.json import Json, Path, text_at
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects, waves
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.releases import RELEASE, HelmRelease, helm_releases
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.kinds import kinds

BUILT_IN: Final = frozenset(
    {
        *("", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apps", "autoscaling", "batch"),
        *("coordination.k8s.io", "networking.k8s.io", "node.k8s.io", "policy", "rbac.authorization.k8s.io"),
        *("resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io"),
    }
)
"""API groups of every API server; operators' releases install all others."""

_RUNS: Final = frozenset(
    key for key, kind in kinds().items() if key == ("", "Pod") or (kind.work and key != ("batch", "Job"))
)
"""Kinds whose pods can run or queue for days, so that nothing waits until they are healthy; a Job has an annotation."""

_STAND_IN: Final = "kubernetes:gpu-tenancy:Release"
_NOT_CLOUD: Final = ("kubernetes:", "pulumi:")
_SKIP_AWAIT: Final = "pulumi.com/skipAwait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(KubernetesObject):
    """One object, or one release, whose manifest has only kind and name.

    Attributes:
        release: None for an object.
        before: URNs of its dependencies: those of the program, and its namespace.
        wave: its dependencies are in earlier waves.
        work: a server or a job, or depends on one; nothing waits until it is healthy.
        awaited: its dependents wait until it is healthy or finished: a release, or a job that checks a webhook.
        retained: kept in the cluster when it is removed from the stack.
    """

    release: HelmRelease | None
    before: frozenset[str]
    wave: int
    work: bool
    awaited: bool
    retained: bool


def pieces(rendered: Rendered) -> tuple[Piece, ...]:
    """A stack's objects and releases, in the order of waves and URNs.

    Raises:
        DependencyCycleError: there is a dependency cycle.
    """
    registrations = {registration.urn: registration for registration in rendered.registrations}
    releases = {release.urn: release for release in helm_releases(rendered)}
    # Releases are added to the objects, so that one graph has all dependencies.
    objects = kubernetes_objects(replace(rendered, registrations=tuple(map(_stand_in, rendered.registrations))))
    urns = {item.urn for item in objects}
    namespaces = {item.name: item.urn for item in objects if (item.group, item.kind) == ("", "Namespace")}
    work: set[str] = set()
    found: list[Piece] = []
    for wave, members in enumerate(waves(objects)):
        for item in members:
            before = urns.intersection((*item.depends_on, namespaces.get(item.namespace, "")))
            if _unawaited(item) or before & work:
                work.add(item.urn)
            piece = Piece(
                item.manifest,
                item.urn,
                item.depends_on,
                release=releases.get(item.urn),
                before=frozenset(before),
                wave=wave,
                work=item.urn in work,
                awaited=item.urn in releases or ((item.group, item.kind) == ("batch", "Job") and item.urn not in work),
                retained=registrations[item.urn].retain_on_delete,
            )
            found.append(piece)
    return tuple(found)


def refusals(rendered: Rendered) -> tuple[str, ...]:
    """Why a stack cannot be written as manifests: secret values, or values that are not known yet; sorted."""
    problems: list[str] = []
    for item in kubernetes_objects(rendered):
        name = f"{item.namespace}/{item.name}" if item.namespace else item.name
        problems += _hidden(f"{item.kind} {name}", item.secret_paths, item.unknown_paths)
    registrations = {registration.urn: registration for registration in rendered.registrations}
    for release in helm_releases(rendered):
        registration, what = registrations[release.urn], f"Helm release {release.namespace}/{release.name}"
        problems += _hidden(what, registration.secret_paths, registration.unknown_paths)
        if not release.repository and not release.chart.startswith("oci://"):
            problems.append(
                f"{what}: chart {release.chart} has no repository, so other machines cannot download it; "
                "set a repository, or use a chart with an oci:// URL"
            )
        if not release.version:
            problems.append(f"{what}: no chart version, so each sync could install a newer one; set the version")
    return tuple(sorted(problems))


def stays(rendered: Rendered) -> tuple[tuple[str, str], ...]:
    """Type and name of the cloud resources, which cannot be manifests and stay with Pulumi; sorted."""
    created = (item for item in rendered.registrations if item.custom and not item.external_id)
    return tuple(sorted((item.type, item.name) for item in created if not item.type.startswith(_NOT_CLOUD)))


def _hidden(what: str, secret: tuple[Path, ...], unknown: tuple[Path, ...]) -> Iterator[str]:
    if secret:
        yield (
            f"{what}: {_places(secret)} is secret and would be readable in git; remove it from the stack and use an "
            "operator in the cluster, such as External Secrets"
        )
    if unknown:
        yield (
            f"{what}: {_places(unknown)} is known only after deployment; set the value in the stack, or deploy the "
            "stack with `pulumi up`"
        )


def _places(paths: tuple[Path, ...]) -> str:
    return ", ".join(".".join(map(str, path)) or "the whole object" for path in paths)


def _stand_in(registration: Registration) -> Registration:
    """A release as an object, so that it is part of the dependency graph; other registrations unchanged."""
    if registration.type != RELEASE or registration.external_id:
        return registration
    metadata: dict[str, Json] = {key: text_at(registration.inputs, key) for key in ("name", "namespace")}
    inputs: dict[str, Json] = {"apiVersion": "helm.sh/v3", "kind": "Release", "metadata": metadata}
    return replace(registration, type=_STAND_IN, inputs=inputs, secret_paths=(), unknown_paths=())


def _unawaited(item: KubernetesObject) -> bool:
    if (item.group, item.kind) == ("apps", "DaemonSet"):
        return False  # It sets up nodes, which the operators need; on nodes that do not exist yet it is healthy.
    skipped = text_at(item.manifest, "metadata", "annotations", _SKIP_AWAIT) == "true"
    return skipped or (item.group, item.kind) in _RUNS


TENANCY: Final = "tenancy"
"""The group of objects that need releases and jobs, and on which no release or job depends."""

WORK: Final = "work"

_UNSAFE: Final = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Group:
    """Objects and releases that are applied together.

    Attributes:
        after: names of the groups that must be healthy before, without indirect dependencies.
    """

    name: str
    members: tuple[Piece, ...]
    after: tuple[str, ...]


def groups(pieces: Sequence[Piece]) -> tuple[Group, ...]:
    """A group for each release and each awaited job with its own dependencies, and two groups for the rest.

    Groups have no numbers, because a new operator would then move objects to another group, and Flux would prune them
    in the old group before it creates them in the new one.
    """
    names = _names(pieces)
    by_name: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_name.setdefault(names[piece.urn], []).append(piece)
    needs = {
        name: frozenset(names[urn] for piece in members for urn in piece.before) - {name}
        for name, members in by_name.items()
    }
    reach = _reach(needs)
    indirect = {name: {far for near in needs[name] for far in reach[near]} for name in by_name}
    return tuple(
        Group(name, tuple(members), tuple(sorted(needs[name] - indirect[name]))) for name, members in by_name.items()
    )


def _names(pieces: Sequence[Piece]) -> dict[str, str]:
    dependencies = _reach({piece.urn: piece.before for piece in pieces})
    awaited = [piece for piece in pieces if piece.awaited and not piece.work]
    names: dict[str, str] = {}
    for piece in pieces:
        if piece.work:
            names[piece.urn] = WORK
            continue
        first = next((item for item in awaited if item is piece or piece.urn in dependencies[item.urn]), None)
        name = _UNSAFE.sub("-", first.urn.rpartition("::")[2].lower()).strip("-") if first else TENANCY
        names[piece.urn] = name
    return names


def _reach(needs: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """The transitive dependencies of each, without itself."""
    reach: dict[str, frozenset[str]] = {}
    for start in TopologicalSorter(needs).static_order():
        reach[start] = frozenset(needs[start]).union(*(reach[need] for need in needs[start]))
    return reach
