"""Checks objects that pods refer to: volume claims, Secrets, ConfigMaps and claims of devices.

Values of Secrets and ConfigMaps are never read. Kueue counts claims of channels and RDMA interfaces, and does not admit
pods with other claims: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/claims.go.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from gpu_tenancy.base.json import at, int_at, list_at, map_at, maps_at, text_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import CHANNELS, CLAIMED, INTERFACES, add
from gpu_tenancy.cluster.demand import Demand, channels_of
from gpu_tenancy.cluster.pods import Manifest, ended, name_of, named
from gpu_tenancy.cluster.reading import Answer, Check, Kind, State, Verdict, decisive
from gpu_tenancy.cluster.workloads import PodSet, Reason, Workload
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.model.names import CHANNEL_CLASS, CLAIM_CLASSES, INTERFACE_CLASS

_EXCLUSIVE: Final = {"ReadWriteOnce", "ReadWriteOncePod"}
_UNBOUND: Final = "claim {} is not bound: it can be mounted once {}; check its events"
_DATASET: Final = "dataset://"


def judge_volumes(state: State, team: str, sets: Sequence[PodSet]) -> Iterator[Answer]:
    """Checks volume claims; no result for a workload without claims.

    https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes
    """
    wanted = Counter[str]()
    for pods in sets:
        wanted.update(dict.fromkeys(_names(pods.spec), pods.count))
    if not +wanted:
        return
    if not state.knows("PersistentVolumeClaim"):
        yield state.unknown(Check.VOLUMES, "PersistentVolumeClaim")
        return
    known = {name_of(claim): claim for claim in state.of("PersistentVolumeClaim", team)}
    results = [_claim(state, team, name, number, known) for name, number in wanted.items() if number]
    results.extend(
        ("now", f"claim {one} is read-only (ReadOnlyMany): writing fails; set readOnly: true for its mount")
        for one in _written(sets)
        if list_at(known.get(one, {}), "spec", "accessModes") == ["ReadOnlyMany"]
    )
    yield Answer.of(Check.VOLUMES, results)


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
    modes = list_at(claim, "spec", "accessModes")
    users = sorted(
        (node, name_of(pod))
        for pod in (state.of("Pod", team) if set(modes) <= _EXCLUSIVE else ())
        if not ended(pod) and (node := text_at(pod, "spec", "nodeName")) and name in _names(map_at(pod, "spec"))
    )
    if users:
        node, pod = users[0]
        place = f"mounted by pod {pod} on node {node}; end it, or run on the same node"
        return "later", f"claim {name} is {modes[0]} and {place}"
    return "now", f"claim {name} is bound ({', '.join(modes)})"


def _refusal(name: str, claim: Manifest, pods: int) -> str:
    """Why the pods can never mount a claim; empty if they can."""
    if text_at(claim, "metadata", "deletionTimestamp"):
        return f"claim {name} is being deleted; new pods cannot mount it"
    if text_at(claim, "status", "phase") == "Lost":
        return f"claim {name} has lost its PersistentVolume; recreate the claim"
    modes = list_at(claim, "spec", "accessModes")
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
    if text_at(classes[class_name], "volumeBindingMode") == "WaitForFirstConsumer":
        return "now", f"claim {name} is bound when its first pod is scheduled (StorageClass {class_name})"
    return "later", _UNBOUND.format(name, f"StorageClass {class_name} creates one")


def _written(sets: Iterable[PodSet]) -> Iterator[str]:
    """Claims that a container mounts without `readOnly`."""
    found: dict[str, None] = {}
    for pods in sets:
        mounts = [one for container in maps_at(pods.spec, "containers") for one in maps_at(container, "volumeMounts")]
        written = {text_at(mount, "name") for mount in mounts if at(mount, "readOnly") is not True}
        for volume in maps_at(pods.spec, "volumes"):
            claim = map_at(volume, "persistentVolumeClaim")
            if text_at(volume, "name") in written and at(claim, "readOnly") is not True:
                found[text_at(claim, "claimName")] = None
    yield from filter(None, found)


def waits_for_cache(state: State, namespace: str, claim: str) -> str:
    """Why a claim waits for a cache of Fluid; empty if no Dataset has its name.

    Fluid creates the claim once the cache is ready:
    https://github.com/fluid-cloudnative/fluid/tree/v1.0.8/pkg/utils/dataset/volume.
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
# Fields of a kind in `env`, `envFrom` and `volumes`.
_FROM: Final[tuple[tuple[Named, str, str, str], ...]] = (
    ("Secret", "secretKeyRef", "secretRef", "secret"),
    ("ConfigMap", "configMapKeyRef", "configMapRef", "configMap"),
)


@dataclass(frozen=True, slots=True)
class Reference:
    """Required reference of a pod to a Secret or ConfigMap."""

    kind: Named
    name: str
    where: str  # such as `env TOKEN of container main`
    keys: tuple[str, ...] = ()  # all must exist
    pull: bool = False  # the kubelet pulls images with it, or without it if it does not exist


def kinds_named(demands: Iterable[Demand]) -> tuple[Named, ...]:
    """Kinds that pods of workloads refer to."""
    specs = [template.spec for demand in demands for template in demand.templates]
    named = {reference.kind for spec in specs for reference in references_of(spec)}
    return tuple(kind for kind in _KINDS if kind in named)


def references_of(spec: Manifest) -> Iterator[Reference]:
    """References of a pod that are not `optional`."""
    for kind, source, where in _sources(spec):
        if source and at(source, "optional") is not True:
            keys = [source] if "key" in source else maps_at(source, "items")
            name = text_at(source, "secretName") or text_at(source, "name")
            yield Reference(kind, name, where, tuple(text_at(one, "key") for one in keys))
    for secret in maps_at(spec, "imagePullSecrets"):
        yield Reference("Secret", text_at(secret, "name"), "imagePullSecrets", pull=True)


def _sources(spec: Manifest) -> Iterator[tuple[Named, Manifest, str]]:
    """Fields that can refer to an object, with their places; empty if unset."""
    for container in (*maps_at(spec, "initContainers"), *maps_at(spec, "containers")):
        of = f"of container {text_at(container, 'name')}"
        for kind, key_field, whole_field, _ in _FROM:
            for variable in maps_at(container, "env"):
                yield kind, map_at(variable, "valueFrom", key_field), f"env {text_at(variable, 'name')} {of}"
            for variables in maps_at(container, "envFrom"):
                yield kind, map_at(variables, whole_field), f"envFrom {of}"
    for volume in maps_at(spec, "volumes"):
        for source in (volume, *maps_at(volume, "projected", "sources")):
            for kind, _, _, field in _FROM:
                yield kind, map_at(source, field), f"volume {text_at(volume, 'name')}"


def judge_references(state: State, team: str, sets: Iterable[PodSet]) -> Iterator[Answer]:
    """Checks Secrets and ConfigMaps; no result for a workload without references.

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
        fix = f"create it, or set another one; {nearest(name, known)}"
        if reference.pull:
            return "now", f"Secret {name} not found ({_PULLED_WITHOUT}); {fix}"
        return "never", f"{kind} {name} not found ({where}), so pods do not start; {fix}"
    if reference.pull and (actual := text_at(known[name], "cells", "Type")) not in _PULL_TYPES:
        return "now", f"Secret {name} has type {actual} ({_PULLED_WITHOUT}); create it with type {_PULL_TYPES[0]}"
    names, complete = keys_of(known[name], kind)
    missing = [key for key in reference.keys if key not in names]
    if not missing:
        return "now", f"{kind} {name} " + (f"has the key {named(reference.keys)}" if reference.keys else "exists")
    if complete:
        fix = f"add it, or set another one; {nearest(missing[0], names)}"
        return "never", f"{kind} {name} has no key {missing[0]} ({where}), so pods do not start; {fix}"
    keys = f"whether it has the key {named(missing)} (not in its managedFields)"
    return "unknown", f"{kind} {name} exists; unknown {keys}"


def keys_of(row: Manifest, kind: Named) -> tuple[frozenset[str], bool]:
    """Keys of a Secret or ConfigMap without values, and whether they are complete.

    `managedFields` records the keys, but a writer can delete records, so the number of keys in the server's table is
    compared. Server-side apply of `stringData` records no keys of `data`, and its record stays when a key is deleted.
    https://kubernetes.io/docs/reference/using-api/server-side-apply/#managing-fields
    """

    def recorded(*fields: str) -> frozenset[str]:
        return frozenset(
            key.removeprefix("f:")
            for manager in maps_at(row, "metadata", "managedFields")
            for field in fields
            for key in map_at(manager, "fieldsV1", field)
            if key.startswith("f:")
        )

    count, certain = int_at(row, "cells", "Data"), recorded(*_FIELDS[kind])
    names = certain | recorded("f:stringData")
    return (names, True) if len(names) == count else (certain, len(certain) == count)


_Classes: TypeAlias = Mapping[str, int]  # devices of each DeviceClass in a ResourceClaimTemplate
_RESOURCES: Final = {name: resource for resource, name in CLAIM_CLASSES.items()}
_NO_TEMPLATE: Final = re.compile(r"failed to get claim spec for ResourceClaimTemplate (\S+) .* not found")
_UNMAPPED: Final = re.compile(r"DeviceClass (\S+) is not mapped")
_OTHER: Final = re.compile(rf"quota for (?!{'|'.join(map(re.escape, CLAIMED))})")  # missing quota of other resources
_NOUNS: Final = {CHANNELS: "channels", INTERFACES: "RDMA interfaces of DRANET"}
_CREATE_DOMAIN: Final = "create a ComputeDomain with spec.channel.resourceClaimTemplate.name"
_REQUEST_GPUS: Final = "request GPUs under resources of the containers"


def kinds_claimed(demands: Iterable[Demand]) -> tuple[Kind, ...]:
    """Kinds to read for workloads whose pods claim devices."""
    claims = any(maps_at(template.spec, "resourceClaims") for demand in demands for template in demand.templates)
    return ("ResourceClaimTemplate", "ComputeDomain") if claims else ()


def claimed(resource: str) -> str:
    """Noun for a claimed resource of Kueue."""
    return _NOUNS[resource]


def with_channels(state: State, team: str, sets: Sequence[PodSet]) -> list[PodSet]:
    """Adds claimed devices to the requests of pods, as Kueue counts them."""
    classes = _classes(state, team)

    def counted(spec: Manifest) -> Iterator[dict[str, int]]:
        for claim in maps_at(spec, "resourceClaims"):
            # A template that the driver of ComputeDomains has not made yet is one of a channel.
            requested = classes.get(text_at(claim, "resourceClaimTemplateName"), {CHANNEL_CLASS: 1})
            if requested.keys() <= _RESOURCES.keys() and text_at(claim, "resourceClaimTemplateName"):
                yield {_RESOURCES[name]: count for name, count in requested.items()}

    return [replace(pods, pod=add(pods.pod, *counted(pods.spec))) for pods in sets]


def _classes(state: State, team: str) -> Mapping[str, _Classes]:
    """DeviceClasses of each ResourceClaimTemplate of a team."""
    return {
        name_of(template): {
            text_at(request, "exactly", "deviceClassName"): int_at(request, "exactly", "count", otherwise=1)
            for request in maps_at(template, "spec", "spec", "devices", "requests")
        }
        for template in state.of("ResourceClaimTemplate", team)
    }


def judge_claims(state: State, team: str, demand: Demand, sets: Iterable[PodSet]) -> Iterator[Answer]:
    """Checks device claims; no result for a workload without claims."""
    claims = [claim for pods in sets if pods.count for claim in maps_at(pods.spec, "resourceClaims")]
    if not claims:
        return
    if not state.knows("ResourceClaimTemplate"):
        yield state.unknown(Check.CLAIMS, "ResourceClaimTemplate")
        return
    made = {*demand.channels, *(channels_of(domain) for domain in state.of("ComputeDomain", team))}
    classes = _classes(state, team)
    yield Answer(Check.CLAIMS, *decisive(dict.fromkeys(_judge_claim(claim, classes, made) for claim in claims)))


def _judge_claim(claim: Manifest, classes: Mapping[str, _Classes], made: Iterable[str]) -> tuple[Verdict, str]:
    name = text_at(claim, "resourceClaimTemplateName")
    if not name:
        own = text_at(claim, "resourceClaimName")
        return "never", f"Kueue admits no pod with a ResourceClaim ({own}); set resourceClaimTemplateName instead"
    template = f"ResourceClaimTemplate {name}"
    if name not in classes and name in made:
        return "now", f"{template} is made by NVIDIA's DRA driver for its ComputeDomain"
    if name not in classes:
        return "never", f"{template} not found; {_CREATE_DOMAIN}: {name}"
    if other := next((one for one in classes[name] if one not in _RESOURCES), None):
        return "never", f"{template} claims devices of DeviceClass {other}, which Kueue does not admit; {_REQUEST_GPUS}"
    if interfaces := classes[name].get(INTERFACE_CLASS):
        return "now", f"each pod claims {interfaces} RDMA interfaces of its node by {template}; they have no limit"
    return "now", f"each pod claims the channel of its node by {template}; channels have no limit"


def claim_pending(workload: Workload) -> Reason | None:
    """Why Kueue cannot count the claims of a pending workload; None if another cause keeps it pending."""
    message = text_at(condition(workload.manifest, "QuotaReserved"), "message")
    if found := _NO_TEMPLATE.search(message):
        missing = f"its pods claim devices by ResourceClaimTemplate {found[1]}, which does not exist"
        fix = f"{_CREATE_DOMAIN}: {found[1]}, or, if there is one, check that the driver's controller is running"
        return f"{missing}: NVIDIA's DRA driver makes it for a ComputeDomain", fix
    if found := _UNMAPPED.search(message):
        mapping = f"add {found[1]} to deviceClassMappings of Kueue's configuration"
        reason = f"its pods claim devices of DeviceClass {found[1]}, which Kueue does not count"
        return reason, mapping if found[1] in _RESOURCES else _REQUEST_GPUS
    if not _OTHER.search(message):
        for resource, claimed_devices, nodes, select in _NOT_OFFERED:
            if resource in message:
                reason = f"its pods claim {claimed_devices}, and no flavor that they can use has nodes with {nodes}"
                return reason, f"select nodes {select}, or remove resourceClaims"
    return None


_NOT_OFFERED: Final = (
    (INTERFACES, _NOUNS[INTERFACES], "them", "of a pool with fabric: dranet"),
    (CHANNELS, "channels of a ComputeDomain", "channels", "with NVLink between machines"),
)
