"""Which nodes suit a pod, and how many such pods they have room for, now and when they are empty.

Labels, required node affinity, taints and free resources, as in the scheduler's filters. What depends on other pods
(pod affinity, spreading, ports, zones of volumes) is not checked here.
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.amounts import amounts
from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.inspect.pods import Manifest, called, ended, holds, requests

_EXCLUDING: Final = ("NoSchedule", "NoExecute")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Spot:
    """One node.

    Attributes:
        whole: its allocatable resources.
        free: what its pods leave of them.
        taints: those that exclude pods.
        open: whether it is schedulable.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Manifest, ...]
    whole: Mapping[str, int]
    free: Mapping[str, int]
    open: bool = True


def spots(nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> list[Spot]:
    """Nodes with their free resources."""
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        node = text_at(pod, "spec", "nodeName")
        if node and not ended(pod):
            taken[node].update({**requests(_spec(pod)), "pods": 1})
    return [_spot(node, taken[called(node)]) for node in nodes]


def _spec(pod: Manifest) -> Mapping[str, Json]:
    return map_at(pod, "spec")


def _spot(node: Manifest, taken: Mapping[str, int]) -> Spot:
    whole = amounts(at(node, "status", "allocatable"))
    return Spot(
        name=called(node),
        labels=texts_at(node, "metadata", "labels"),
        taints=tuple(each for each in maps_at(node, "spec", "taints") if text_at(each, "effect") in _EXCLUDING),
        whole=whole,
        free={name: value - taken.get(name, 0) for name, value in whole.items()},
        open=at(node, "spec", "unschedulable") is not True,
    )


def tolerates(tolerations: Sequence[Manifest], taint: Manifest) -> bool:
    """Whether one of a pod's tolerations covers a taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Manifest, taint: Manifest) -> bool:
    key, effect = text_at(toleration, "key"), text_at(toleration, "effect")
    if effect and effect != text_at(taint, "effect"):
        return False
    if text_at(toleration, "operator") == "Exists":
        return not key or key == text_at(taint, "key")
    return (key, text_at(toleration, "value")) == (text_at(taint, "key"), text_at(taint, "value"))


def untolerated(spec: Manifest, taints: Iterable[Manifest], further: Sequence[Manifest] = ()) -> str:
    """The first taint that a pod does not tolerate, as `key=value:effect`; empty for none."""
    tolerations = [*maps_at(spec, "tolerations"), *further]
    for taint in taints:
        if text_at(taint, "effect") in _EXCLUDING and not tolerates(tolerations, taint):
            value = text_at(taint, "value")
            return f"{text_at(taint, 'key')}{'=' + value if value else ''}:{text_at(taint, 'effect')}"
    return ""


def wants(spec: Manifest, labels: Mapping[str, str], name: str = "", *, keys: Iterable[str] | None = None) -> bool:
    """Whether a node matches a pod's selector and required affinity.

    Args:
        spec: of the pod.
        labels: of the node.
        name: of the node, for affinity by field.
        keys: check only these labels, as Kueue does for a flavor, which has no others; None for all.
    """
    judged = None if keys is None else set(keys)
    for key, value in map_at(spec, "nodeSelector").items():
        if (judged is None or key in judged) and labels.get(key) != value:
            return False
    terms = maps_at(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
    return not terms or any(_matches(term, labels, name, judged) for term in terms)


def _matches(term: Manifest, labels: Mapping[str, str], name: str, judged: set[str] | None) -> bool:
    rules = [each for each in maps_at(term, "matchExpressions") if judged is None or text_at(each, "key") in judged]
    fields = maps_at(term, "matchFields") if judged is None else []
    if not rules and not fields:
        return judged is not None  # An empty term matches no node, but a term without checked keys matches any flavor.
    here = {"metadata.name": name}
    return all(holds(each, labels) for each in rules) and all(holds(each, here) for each in fields)


def room_for(room: Mapping[str, int], pod: Mapping[str, int]) -> int:
    """How many pods fit into free resources; each counts as one of the node's `pods`."""
    needed = {**{name: value for name, value in pod.items() if value}, "pods": 1}
    counts = [max(0, room.get(name, 0)) // value for name, value in needed.items() if name != "pods" or name in room]
    return min(counts, default=0)


@dataclass(frozen=True, slots=True)
class Found:
    """Nodes for pods of one template.

    Attributes:
        labelled: how many nodes match the pod's selector and affinity.
        taints: of these, taints that the pod does not tolerate, and on how many nodes.
        closed: of these, how many are unschedulable.
        fitting: the suitable nodes that remain.
        now: pods that these nodes have room for.
        ever: pods that they have room for when empty.
    """

    labelled: int
    taints: Mapping[str, int]
    closed: int
    fitting: tuple[Spot, ...]
    now: int
    ever: int


def find(spec: Manifest, pod: Mapping[str, int], nodes: Iterable[Spot]) -> Found:
    """Finds the nodes that suit a pod."""
    labelled = [each for each in nodes if wants(spec, each.labels, each.name)]
    held = {each.name: untolerated(spec, each.taints) for each in labelled if each.open}
    fitting = tuple(each for each in labelled if each.open and not held[each.name])
    return Found(
        labelled=len(labelled),
        taints=Counter(taint for taint in held.values() if taint),
        closed=sum(1 for each in labelled if not each.open),
        fitting=fitting,
        now=_many(fitting, pod, lambda each: each.free),
        ever=_many(fitting, pod, lambda each: each.whole),
    )


def take(nodes: Iterable[Spot], fitting: Iterable[Spot], pod: Mapping[str, int], count: int) -> list[Spot]:
    """The nodes after placing pods, each on the first suitable node with room."""
    names = {each.name for each in fitting}
    left, after = count, list[Spot]()
    for node in nodes:
        here = min(left, room_for(node.free, pod)) if node.name in names else 0
        left -= here
        free = {name: value - here * (1 if name == "pods" else pod.get(name, 0)) for name, value in node.free.items()}
        after.append(replace(node, free=free))
    return after


def _many(nodes: Iterable[Spot], pod: Mapping[str, int], room: Callable[[Spot], Mapping[str, int]]) -> int:
    return sum(room_for(room(each), pod) for each in nodes)
