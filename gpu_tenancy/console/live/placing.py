"""Which nodes a pod may run on, and how many of it they take: as they are, and when they are empty.

Labels, required node affinity, taints and room, as the scheduler's filters judge them. What depends on other pods
(affinity between pods, spreading, ports, volumes' zones) is not judged here.
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.console.live.amounts import amounts
from gpu_tenancy.console.live.pods import Manifest, called, ended, requests
from gpu_tenancy.console.live.selecting import holds
from gpu_tenancy.console.offline.wire import Json, at, maps_at, text_at

_HOLDING: Final = ("NoSchedule", "NoExecute")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Spot:
    """One node.

    Attributes:
        whole: what pods may have of it when it is empty.
        free: what is left of that.
        taints: those that hold pods off.
        open: whether it takes new pods.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Manifest, ...]
    whole: Mapping[str, int]
    free: Mapping[str, int]
    open: bool = True


def spots(nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> list[Spot]:
    """The nodes with what their pods leave."""
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        node = text_at(pod, "spec", "nodeName")
        if node and not ended(pod):
            taken[node].update({**requests(_spec(pod)), "pods": 1})
    return [_spot(node, taken[called(node)]) for node in nodes]


def _spec(pod: Manifest) -> Mapping[str, Json]:
    spec = at(pod, "spec")
    return spec if isinstance(spec, dict) else {}


def _spot(node: Manifest, taken: Mapping[str, int]) -> Spot:
    whole = amounts(at(node, "status", "allocatable"))
    labels = at(node, "metadata", "labels")
    return Spot(
        name=called(node),
        labels={key: str(value) for key, value in labels.items()} if isinstance(labels, dict) else {},
        taints=tuple(each for each in maps_at(node, "spec", "taints") if text_at(each, "effect") in _HOLDING),
        whole=whole,
        free={name: value - taken.get(name, 0) for name, value in whole.items()},
        open=at(node, "spec", "unschedulable") is not True,
    )


def tolerates(tolerations: Sequence[Manifest], taint: Manifest) -> bool:
    """Whether one of a pod's tolerations covers a taint."""
    return any(_covers(each, taint) for each in tolerations)


def _covers(toleration: Manifest, taint: Manifest) -> bool:
    key, effect = text_at(toleration, "key"), text_at(toleration, "effect")
    if effect and effect != text_at(taint, "effect"):
        return False
    if text_at(toleration, "operator") == "Exists":
        return not key or key == text_at(taint, "key")
    return (key, text_at(toleration, "value")) == (text_at(taint, "key"), text_at(taint, "value"))


def untolerated(spec: Manifest, taints: Iterable[Manifest], further: Sequence[Manifest] = ()) -> str:
    """The first taint that holds a pod off, as `key=value:effect`; empty where none does."""
    tolerations = [*maps_at(spec, "tolerations"), *further]
    for taint in taints:
        if text_at(taint, "effect") in _HOLDING and not tolerates(tolerations, taint):
            value = text_at(taint, "value")
            return f"{text_at(taint, 'key')}{'=' + value if value else ''}:{text_at(taint, 'effect')}"
    return ""


def wants(spec: Manifest, labels: Mapping[str, str], name: str = "", *, keys: Iterable[str] | None = None) -> bool:
    """Whether a pod's selector and required affinity take a node.

    Args:
        spec: of the pod.
        labels: of the node.
        name: of the node, for affinity by field.
        keys: judge these labels alone, as Kueue does for a flavor, which knows no others; None for all.
    """
    judged = None if keys is None else set(keys)
    selector = at(spec, "nodeSelector")
    for key, value in (selector if isinstance(selector, dict) else {}).items():
        if (judged is None or key in judged) and labels.get(key) != value:
            return False
    terms = maps_at(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
    return not terms or any(_matches(term, labels, name, judged) for term in terms)


def _matches(term: Manifest, labels: Mapping[str, str], name: str, judged: set[str] | None) -> bool:
    rules = [each for each in maps_at(term, "matchExpressions") if judged is None or text_at(each, "key") in judged]
    fields = maps_at(term, "matchFields") if judged is None else []
    if not rules and not fields:
        return judged is not None  # An empty term takes no node, but one of which nothing is judged takes any flavor.
    here = {"metadata.name": name}
    return all(holds(each, labels) for each in rules) and all(holds(each, here) for each in fields)


def room_for(room: Mapping[str, int], pod: Mapping[str, int]) -> int:
    """How many of a pod fit into some room; a pod counts as one of the node's `pods`."""
    needed = {**{name: value for name, value in pod.items() if value}, "pods": 1}
    counts = [max(0, room.get(name, 0)) // value for name, value in needed.items() if name != "pods" or name in room]
    return min(counts, default=0)


@dataclass(frozen=True, slots=True)
class Found:
    """Where pods of one kind could go.

    Attributes:
        labelled: nodes that the pod's selector and affinity take.
        taints: of these, the taints that hold it off, and on how many nodes.
        closed: of these, nodes that take no new pods.
        fitting: what is left.
        now: pods that the fitting nodes take as they are.
        ever: pods that they take when they are empty.
    """

    labelled: int
    taints: Mapping[str, int]
    closed: int
    fitting: tuple[Spot, ...]
    now: int
    ever: int


def find(spec: Manifest, pod: Mapping[str, int], nodes: Iterable[Spot]) -> Found:
    """Looks for nodes that take a pod."""
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
    """The nodes with some pods more, each on the first of the fitting ones that has room."""
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
