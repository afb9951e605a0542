"""Whether the Secrets and ConfigMaps that pods refer to exist, with the keys that they need; values are never read."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.base.json import at, int_at, map_at, maps_at, text_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.inspect.answers import Answer, Check, Verdict
from gpu_tenancy.inspect.demand import Demand
from gpu_tenancy.inspect.pods import Manifest, name_of, named
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.inspect.workloads import PodSet

Named = Literal["Secret", "ConfigMap"]

_KINDS: Final[tuple[Named, ...]] = ("Secret", "ConfigMap")
_PULL_TYPES: Final = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
"""https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets"""
_PULLED_WITHOUT: Final = "imagePullSecrets: the kubelet pulls images without it"
_FIELDS: Final = {"Secret": ("f:data",), "ConfigMap": ("f:data", "f:binaryData")}
_FROM: Final[tuple[tuple[Named, str, str, str], ...]] = (
    ("Secret", "secretKeyRef", "secretRef", "secret"),
    ("ConfigMap", "configMapKeyRef", "configMapRef", "configMap"),
)
"""Fields of a kind in `env`, `envFrom` and `volumes`."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A use of a Secret or ConfigMap by a pod that does not start without it.

    Attributes:
        kind: of the object.
        name: of the object.
        where: such as `env TOKEN of container main`.
        keys: that it must have; empty for any.
        pull: whether the kubelet pulls images with it, or without it if it does not exist.
    """

    kind: Named
    name: str
    where: str
    keys: tuple[str, ...] = ()
    pull: bool = False


def kinds_named(demands: Iterable[Demand]) -> tuple[Named, ...]:
    """The kinds that pods of workloads refer to."""
    specs = [template.spec for demand in demands for template in demand.templates]
    named = {reference.kind for spec in specs for reference in references_of(spec)}
    return tuple(kind for kind in _KINDS if kind in named)


def references_of(spec: Manifest) -> Iterator[Reference]:
    """What a pod refers to, without what is `optional`."""
    for container in (*maps_at(spec, "initContainers"), *maps_at(spec, "containers")):
        yield from _of_container(container)
    for volume in maps_at(spec, "volumes"):
        where = f"volume {text_at(volume, 'name')}"
        for source in (volume, *maps_at(volume, "projected", "sources")):
            yield from _of_volume(source, where)
    for secret in maps_at(spec, "imagePullSecrets"):
        yield Reference("Secret", text_at(secret, "name"), "imagePullSecrets", pull=True)


def _of_container(container: Manifest) -> Iterator[Reference]:
    of = f"of container {text_at(container, 'name')}"
    for kind, key_field, whole_field, _ in _FROM:
        for variable in maps_at(container, "env"):
            source = map_at(variable, "valueFrom", key_field)
            if source and at(source, "optional") is not True:
                where = f"env {text_at(variable, 'name')} {of}"
                yield Reference(kind, text_at(source, "name"), where, (text_at(source, "key"),))
        for variables in maps_at(container, "envFrom"):
            source = map_at(variables, whole_field)
            if source and at(source, "optional") is not True:
                yield Reference(kind, text_at(source, "name"), f"envFrom {of}")


def _of_volume(volume: Manifest, where: str) -> Iterator[Reference]:
    for kind, _, _, field in _FROM:
        source = map_at(volume, field)
        if source and at(source, "optional") is not True:
            keys = tuple(text_at(item, "key") for item in maps_at(source, "items"))
            yield Reference(kind, text_at(source, "secretName") or text_at(source, "name"), where, keys)


def judge_references(state: State, team: str, sets: Iterable[PodSet]) -> Iterator[Answer]:
    """The check of the Secrets and ConfigMaps of a workload; none for a workload that refers to none.

    https://kubernetes.io/docs/concepts/configuration/secret/#using-a-secret
    """
    wanted = dict.fromkeys(reference for pods in sets if pods.count for reference in references_of(pods.spec))
    results: list[tuple[Verdict, str]] = []
    for kind in _KINDS:
        of_kind = [reference for reference in wanted if reference.kind == kind]
        if of_kind and not state.knows(kind):
            results.append(("unknown", state.missing[kind].text))
        elif of_kind:
            known = {name_of(one): one for one in state.of(kind, team)}
            results.extend(_judge(reference, known) for reference in of_kind)
    if results:
        yield Answer.of(Check.REFERENCES, dict.fromkeys(results))


def _judge(reference: Reference, known: Mapping[str, Manifest]) -> tuple[Verdict, str]:
    kind, name, where = reference.kind, reference.name, reference.where
    if name not in known:
        if reference.pull:
            return (
                "now",
                f"Secret {name} not found ({_PULLED_WITHOUT}); create it, or set another one; {nearest(name, known)}",
            )
        fix = f"create it, or set another one; {nearest(name, known)}"
        return "never", f"{kind} {name} not found ({where}), so pods do not start; {fix}"
    if reference.pull and (actual := text_at(known[name], "cells", "Type")) not in _PULL_TYPES:
        return "now", f"Secret {name} has type {actual} ({_PULLED_WITHOUT}); create it with type {_PULL_TYPES[0]}"
    names, complete = keys_of(known[name], kind)
    missing = [key for key in reference.keys if key not in names]
    if not missing:
        return "now", (
            f"{kind} {name} has the key {named(reference.keys)}" if reference.keys else f"{kind} {name} exists"
        )
    if complete:
        fix = f"add it, or set another one; {nearest(missing[0], names)}"
        return "never", f"{kind} {name} has no key {missing[0]} ({where}), so pods do not start; {fix}"
    return (
        "unknown",
        f"{kind} {name} exists; unknown whether it has the key {named(missing)} (not in its managedFields)",
    )


def keys_of(row: Manifest, kind: Named) -> tuple[frozenset[str], bool]:
    """The keys of a Secret or ConfigMap, without its values, and whether these are all.

    The API server records in `managedFields` who wrote which key. Whoever writes an object can delete these records, so
    they are compared with the number of keys that the server's table shows. A server-side apply of `stringData` leaves
    no record of keys in `data`, and its own record stays when a key is deleted.
    https://kubernetes.io/docs/reference/using-api/server-side-apply/#managing-fields
    """
    count, certain = int_at(row, "cells", "Data"), _recorded(row, *_FIELDS[kind])
    names = certain | _recorded(row, "f:stringData")
    return (names, True) if len(names) == count else (certain, len(certain) == count)


def _recorded(row: Manifest, *fields: str) -> frozenset[str]:
    return frozenset(
        key.removeprefix("f:")
        for manager in maps_at(row, "metadata", "managedFields")
        for field in fields
        for key in map_at(manager, "fieldsV1", field)
        if key.startswith("f:")
    )
