"""Whether pods can mount the claims, Secrets and ConfigMaps that they name; values are never read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.base.json import at, int_at, list_at, map_at, maps_at, text_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.cluster.answers import Answer, Check, Verdict
from gpu_tenancy.cluster.demand import Demand
from gpu_tenancy.cluster.pods import Manifest, ended, name_of, named
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.cluster.workloads import PodSet

_WAITS: Final = "WaitForFirstConsumer"
_EXCLUSIVE: Final = {"ReadWriteOnce", "ReadWriteOncePod"}
_READ_ONLY: Final = ["ReadOnlyMany"]
_UNBOUND: Final = "claim {} is not bound: it can be mounted once {}; check its events"
_DATASET: Final = "dataset://"


def judge_volumes(state: State, team: str, sets: Sequence[PodSet]) -> Iterator[Answer]:
    """The check of the claims of a workload; none for a workload without claims.

    https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes
    """
    wanted = {name: number for name, number in _claims(sets).items() if number}
    if not wanted:
        return
    if not state.knows("PersistentVolumeClaim"):
        yield state.unknown(Check.VOLUMES, "PersistentVolumeClaim")
        return
    known = {name_of(claim): claim for claim in state.of("PersistentVolumeClaim", team)}
    results = [_claim(state, team, name, number, known) for name, number in wanted.items()]
    results.extend(
        ("now", f"claim {one} is read-only (ReadOnlyMany): writing fails; set readOnly: true for its mount")
        for one in _written(sets)
        if _modes(known.get(one, {})) == _READ_ONLY
    )
    yield Answer.of(Check.VOLUMES, results)


def _claims(sets: Iterable[PodSet]) -> dict[str, int]:
    """Claims, and the pods that mount each."""
    found: dict[str, int] = {}
    for pods in sets:
        for name in dict.fromkeys(_names(pods.spec)):
            found[name] = found.get(name, 0) + pods.count
    return found


def _names(spec: Manifest) -> Iterator[str]:
    for volume in maps_at(spec, "volumes"):
        if name := text_at(volume, "persistentVolumeClaim", "claimName"):
            yield name


def _claim(state: State, team: str, name: str, pods: int, known: Mapping[str, Manifest]) -> tuple[Verdict, str]:
    claim = known.get(name)
    bound = claim is not None and text_at(claim, "status", "phase") == "Bound"
    if not bound and (cache := waits_for_cache(state, team, name)):
        return "later", cache
    if claim is None:
        return "never", f"claim {name} not found in namespace {team}; {nearest(name, known)}"
    if refusal := _refusal(name, claim, pods):
        return "never", refusal
    if not bound:
        return _unbound(state, name, claim)
    modes = _modes(claim)
    if users := _users(state, team, name) if set(modes) <= _EXCLUSIVE else []:
        node, pod = users[0]
        return (
            "later",
            f"claim {name} is {modes[0]} and mounted by pod {pod} on node {node}; end it, or run on the same node",
        )
    return "now", f"claim {name} is bound ({', '.join(modes)})"


def _refusal(name: str, claim: Manifest, pods: int) -> str:
    """Why no such pods can ever mount a claim; empty if they can."""
    if text_at(claim, "metadata", "deletionTimestamp"):
        return f"claim {name} is being deleted; new pods cannot mount it"
    if text_at(claim, "status", "phase") == "Lost":
        return f"claim {name} has lost its PersistentVolume; recreate the claim"
    modes = _modes(claim)
    if pods == 1 or not modes or not set(modes) <= _EXCLUSIVE:
        return ""
    place = "one pod" if modes[0] == "ReadWriteOncePod" else "pods of one node"
    return f"claim {name} is {modes[0]}: only {place} can mount it, not {pods} pods; use a claim with ReadWriteMany"


def _unbound(state: State, name: str, claim: Manifest) -> tuple[Verdict, str]:
    """A claim that is bound when a pod mounts it, or that waits for a volume."""
    class_name = text_at(claim, "spec", "storageClassName")
    if not class_name:
        return "later", _UNBOUND.format(name, "a PersistentVolume is created for it")
    if not state.knows("StorageClass"):
        return "unknown", state.missing["StorageClass"].text
    classes = {name_of(one): one for one in state.of("StorageClass")}
    if class_name not in classes:
        return "never", f"claim {name} is not bound, and its StorageClass {class_name} does not exist"
    if text_at(classes[class_name], "volumeBindingMode") == _WAITS:
        return "now", f"claim {name} is bound when its first pod is scheduled (StorageClass {class_name})"
    return "later", _UNBOUND.format(name, f"StorageClass {class_name} creates one")


def _users(state: State, team: str, name: str) -> list[tuple[str, str]]:
    """Nodes and pods that mount a claim now."""
    return sorted(
        (node, name_of(pod))
        for pod in state.of("Pod", team)
        if not ended(pod) and (node := text_at(pod, "spec", "nodeName")) and name in _names(map_at(pod, "spec"))
    )


def _modes(claim: Manifest) -> list[str]:
    return list_at(claim, "spec", "accessModes")


def _written(sets: Iterable[PodSet]) -> list[str]:
    """Claims that a container mounts without `readOnly`."""
    found: dict[str, None] = {}
    for pods in sets:
        for volume in maps_at(pods.spec, "volumes"):
            claim = text_at(volume, "persistentVolumeClaim", "claimName")
            mounts = [
                mount
                for container in maps_at(pods.spec, "containers")
                for mount in maps_at(container, "volumeMounts")
                if text_at(mount, "name") == text_at(volume, "name")
            ]
            whole = at(volume, "persistentVolumeClaim", "readOnly") is True
            if claim and not whole and any(at(mount, "readOnly") is not True for mount in mounts):
                found[claim] = None
    return list(found)


def waits_for_cache(state: State, namespace: str, claim: str) -> str:
    """Why a claim that is missing or not bound waits for a cache; empty if no Dataset of Fluid has its name.

    Fluid creates the claim once the cache is ready. A Dataset has the name of its claim: https://github.com/fluid-cloudnative/fluid/tree/v1.0.8/pkg/utils/dataset/volume.
    """
    for dataset in state.of("Dataset", namespace):
        if name_of(dataset) == claim:
            mounts = [text_at(mount, "mountPoint") for mount in maps_at(dataset, "spec", "mounts")]
            source = next((mount.removeprefix(_DATASET) for mount in mounts if mount.startswith(_DATASET)), "")
            cache = "/".join(source.split("/")[:2]) or f"{namespace}/{claim}"
            phase = text_at(dataset, "status", "phase")
            now = {"": "Fluid has not seen it", "NotBound": "it is not ready"}.get(phase, f"it is {phase}")
            return f"claim {claim} waits for cache {cache}: {now}"
    return ""


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
