"""Whether pods can mount the claims that they name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpu_tenancy.base.json import at, list_at, map_at, maps_at, text_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.inspect.answers import Answer, Check, Verdict
from gpu_tenancy.inspect.pods import Manifest, ended, name_of
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.inspect.workloads import PodSet

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
