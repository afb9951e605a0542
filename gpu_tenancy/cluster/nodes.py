"""Nodes that suit a pod, and their room for such pods, now and when empty.

Checks labels, required node affinity, taints and free resources as the scheduler's filters do; not constraints that
depend on other pods (pod affinity, spreading, ports, zones of volumes):
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import amount_text, amounts, amounts_text, gpus, ordered
from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.cluster.pods import Manifest, ended, matches, name_of, namespace_of, requests
from gpu_tenancy.cluster.reading import Answer, Check
from gpu_tenancy.cluster.workloads import PodSet, Reason

_LISTED: Final = 5  # nodes whose pods are named, and pods of each
_CORDONED: Final = "node.kubernetes.io/unschedulable"  # the taint of cordoned nodes
_OPENED: Final = 20  # cordoned nodes that a fix names
_EXCLUDING: Final = ("NoSchedule", "NoExecute")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Node:
    """A node with the taints that exclude pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Manifest, ...]
    whole: Mapping[str, int]  # allocatable resources
    free: Mapping[str, int]  # what its pods leave
    pods: Mapping[str, Mapping[str, int]]  # requests of its pods, by namespace/name
    open: bool = True


def read_nodes(nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> list[Node]:
    """Reads nodes and computes their free resources."""
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    here: dict[str, dict[str, Mapping[str, int]]] = defaultdict(dict)
    for pod in pods:
        if (name := text_at(pod, "spec", "nodeName")) and not ended(pod):
            asked = here[name][f"{namespace_of(pod)}/{name_of(pod)}"] = {**requests(map_at(pod, "spec")), "pods": 1}
            taken[name].update(asked)
    return [
        Node(
            name=name,
            labels=texts_at(node, "metadata", "labels"),
            taints=excluding_taints(node),
            whole=whole,
            free={resource: value - taken[name][resource] for resource, value in whole.items()},
            pods=here[name],
            open=at(node, "spec", "unschedulable") is not True,
        )
        for node in nodes
        for name, whole in ((name_of(node), amounts(at(node, "status", "allocatable"))),)
    ]


def excluding_taints(node: Manifest) -> tuple[Manifest, ...]:
    """Taints of a node that exclude pods."""
    return tuple(taint for taint in maps_at(node, "spec", "taints") if text_at(taint, "effect") in _EXCLUDING)


def taint_text(key: str, value: str, effect: str) -> str:
    """A taint as `key=value:effect`."""
    return f"{key}{'=' + value if value else ''}:{effect}"


def untolerated(spec: Manifest, taints: Iterable[Manifest], further: Sequence[Manifest] = ()) -> str:
    """The first taint that a pod does not tolerate, as `key=value:effect`; empty for none."""
    tolerations = [*maps_at(spec, "tolerations"), *further]
    for taint in taints:
        key, value, effect = (text_at(taint, part) for part in ("key", "value", "effect"))
        if effect in _EXCLUDING and not any(
            text_at(one, "effect") in {"", effect}
            and (
                text_at(one, "key") in {"", key}
                if text_at(one, "operator") == "Exists"
                else (text_at(one, "key"), text_at(one, "value")) == (key, value)
            )
            for one in tolerations
        ):
            return taint_text(key, value, effect)
    return ""


def suits_node(spec: Manifest, labels: Mapping[str, str], name: str = "", *, keys: Iterable[str] | None = None) -> bool:
    """Whether a node matches a pod's selector and affinity; with `keys`, these labels only, as Kueue checks flavors."""
    judged = None if keys is None else set(keys)
    for key, value in map_at(spec, "nodeSelector").items():
        if (judged is None or key in judged) and labels.get(key) != value:
            return False

    def matches_term(term: Manifest) -> bool:
        rules = [each for each in maps_at(term, "matchExpressions") if judged is None or text_at(each, "key") in judged]
        fields = maps_at(term, "matchFields") if judged is None else []
        if not rules and not fields:
            return judged is not None  # An empty term matches no node, but one without checked keys matches any flavor.
        here = {"metadata.name": name}
        return all(matches(rule, labels) for rule in rules) and all(matches(field, here) for field in fields)

    terms = maps_at(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
    return not terms or any(map(matches_term, terms))


def room_for(room: Mapping[str, int], pod: Mapping[str, int]) -> int:
    """Number of pods that fit into free resources; each pod counts as one of the node's `pods`."""
    needed = {**{name: value for name, value in pod.items() if value}, "pods": 1}
    counts = [max(0, room.get(name, 0)) // value for name, value in needed.items() if name != "pods" or name in room]
    return min(counts, default=0)


def fragments(nodes: Iterable[Node], pod: Mapping[str, int]) -> list[Node]:
    """Nodes with free GPUs, none with enough for the pod, which have enough in sum; the most free first."""
    name = next(iter(gpus(pod)), "")
    parts = [node for node in nodes if 0 < node.free.get(name, 0) < pod[name]] if name else []
    parts.sort(key=lambda node: -node.free[name])
    return parts if sum(node.free[name] for node in parts) >= pod.get(name, 1) else []


@dataclass(frozen=True, slots=True)
class Suitable:
    """Nodes for pods of one template; numbers of nodes, and of pods that fit."""

    labelled: int  # match selector and affinity
    taints: Mapping[str, int]  # not tolerated, on labelled nodes
    closed: int  # labelled, but unschedulable
    fitting: tuple[Node, ...]  # the remaining nodes
    now: int
    ever: int  # when empty


def find(spec: Manifest, pod: Mapping[str, int], nodes: Iterable[Node]) -> Suitable:
    """Finds the nodes that suit a pod."""
    labelled = [node for node in nodes if suits_node(spec, node.labels, node.name)]
    held = {node.name: untolerated(spec, node.taints) for node in labelled if node.open}
    fitting = tuple(node for node in labelled if node.open and not held[node.name])
    return Suitable(
        labelled=len(labelled),
        taints=Counter(taint for taint in held.values() if taint),
        closed=sum(1 for node in labelled if not node.open),
        fitting=fitting,
        now=sum(room_for(node.free, pod) for node in fitting),
        ever=sum(room_for(node.whole, pod) for node in fitting),
    )


def take(nodes: Iterable[Node], fitting: Iterable[Node], pod: Mapping[str, int], count: int) -> list[Node]:
    """Places each pod on the first node with room; returns the nodes with the remaining room."""
    names = {node.name for node in fitting}
    left, after = count, list[Node]()
    for node in nodes:
        here = min(left, room_for(node.free, pod)) if node.name in names else 0
        left -= here
        free = {name: value - here * (1 if name == "pods" else pod.get(name, 0)) for name, value in node.free.items()}
        after.append(replace(node, free=free))
    return after


def judge_nodes(
    nodes: Sequence[Node], pods: PodSet, flavors: Sequence[Manifest] = (), *, every_pod: bool = True
) -> tuple[Answer, list[Node]]:
    """Checks the room of nodes for pods; also returns the nodes after placing as many of the pods as fit.

    Kueue adds node labels and tolerations of `flavors` to the pods. `every_pod`: whether the nodes have the pods of all
    teams, or of the user's only.
    """
    spec = given(pods.spec, flavors)
    found = find(spec, pods.pod, nodes)
    if pods.within and found.fitting:
        # The part of the network that suits all pods best: with room now, else when empty.
        parts = grouped((name, node) for node in found.fitting if (name := node.labels.get(pods.within)))
        by_part = [find(spec, pods.pod, part) for part in parts.values()] or [find(spec, pods.pod, ())]
        found = max(by_part, key=lambda part: (part.now >= pods.count, part.ever, part.now))
        if found.ever < pods.count:
            must = f"{plural(pods.count, 'pod')} must run where nodes have one value of {pods.within}"
            line = f"{must}, but no value has room for more than {found.ever}"
            return Answer(Check.NODES, "never", (line,)), [*nodes]
    when = "now" if every_pod else "beside the pods of your team"
    answer = _judge_room(found, pods, when) if found.fitting else _no_node(found, spec, nodes, flavors)
    return answer, take(nodes, found.fitting, pods.pod, pods.count)


def _judge_room(found: Suitable, pods: PodSet, when: str) -> Answer:
    suitable = plural(len(found.fitting), "suitable node")
    if not found.ever:
        whole = [node.whole for node in found.fitting]
        lacking = [name for name, value in pods.pod.items() if all(have.get(name, 0) < value for have in whole)]
        names = ordered(lacking or [name for name in pods.pod if pods.pod[name]])
        most = ", ".join(f"{amount_text(name, max(have.get(name, 0) for have in whole))} {name}" for name in names)
        if absent := [name for name in names if not any(have.get(name) for have in whole)]:
            line = f"{suitable}, none with {', '.join(absent)}; request none, or ask the platform team for such nodes"
            return Answer(Check.NODES, "never", (line,))
        requested = amounts_text(gpus(pods.pod) or pods.pod)
        what = f"a pod requests {requested}, but the largest of {suitable} has {most}"
        return Answer(Check.NODES, "never", (f"{what}; request less in each of more pods",))
    now = f"room for {plural(found.now, 'such pod')} {when} and" if found.now else f"no room for such a pod {when}, for"
    room = f"{suitable}, {now} {found.ever} when empty"
    if found.now >= pods.count:
        return Answer(Check.NODES, "now", (room,))
    lines = [f"{room}; the autoscaler must add nodes" if found.ever < pods.count else room]
    name = next(iter(gpus(pods.pod)), "cpu")
    if free := Counter(node.free.get(name, 0) for node in found.fitting if not room_for(node.free, pods.pod)):
        parts = (f"{amount_text(name, amount)} on {plural(count, 'node')}" for amount, count in sorted(free.items()))
        lines.append(f"free {name}: {', '.join(parts)}")
    if pieces := fragments(found.fitting, pods.pod):
        total, nodes = sum(node.free[name] for node in pieces), plural(len(pieces), "node")
        lines.insert(0, f"a pod needs {pods.pod[name]} {name} on one node, and {total} are free on {nodes}")
        lines += [f"{node.name}: {', '.join(_users(node, name))}" for node in pieces[:_LISTED]]
    return Answer(Check.NODES, "later", tuple(lines))


def _users(node: Node, name: str) -> Iterator[str]:
    """The pods on a node that use a resource, such as `2 by vision/train-0`."""
    using = {pod: used[name] for pod, used in node.pods.items() if used.get(name)}
    yield from (f"{amount} by {pod}" for pod, amount in sorted(using.items())[:_LISTED])
    if len(using) > _LISTED:
        yield f"{len(using) - _LISTED} more pods"


def given(spec: Manifest, flavors: Iterable[Manifest]) -> Mapping[str, Json]:
    """The pod spec with the node labels and tolerations that Kueue adds from flavors."""
    selector = dict[str, Json](texts_at(spec, "nodeSelector"))
    tolerations: list[Json] = [*maps_at(spec, "tolerations")]
    for flavor in flavors:
        selector |= texts_at(flavor, "spec", "nodeLabels")
        tolerations += maps_at(flavor, "spec", "tolerations")
    return {**spec, "nodeSelector": selector, "tolerations": tolerations}


def all_cordoned(spec: Manifest, nodes: Iterable[Node]) -> Reason | None:
    """That all nodes which suit a pod are cordoned, and the fix; None if one is not, or no node suits it."""
    labelled = [node for node in nodes if suits_node(spec, node.labels, node.name)]
    others = ([taint for taint in node.taints if text_at(taint, "key") != _CORDONED] for node in labelled)
    if not labelled or any(node.open for node in labelled) or any(untolerated(spec, taints) for taints in others):
        return None
    names = [node.name for node in labelled]
    cordoned = "the node for its pods is" if len(names) == 1 else f"all {len(names)} nodes for its pods are"
    fix = f"ask the platform team for `kubectl uncordon {' '.join(names[:_OPENED])}`"
    return f"{cordoned} cordoned: {first_names(names, 3)}", fix


def _no_node(found: Suitable, spec: Manifest, nodes: Sequence[Node], flavors: Sequence[Manifest]) -> Answer:
    if found.labelled:
        if cordoned := all_cordoned(spec, nodes):
            return Answer(Check.NODES, "later", ("; ".join(cordoned),))
        verdict = "later" if found.closed and not found.taints else "never"
        taints = found.taints.items()
        parts = [f"{plural(count, 'node')} with taint {taint}, which it does not tolerate" for taint, count in taints]
        parts += [plural(found.closed, "unschedulable node")] if found.closed else []
        return Answer(Check.NODES, verdict, (f"matching nodes do not accept the pod: {'; '.join(parts)}",))
    for flavor in flavors:
        own = texts_at(flavor, "spec", "nodeLabels")
        if own and not any(own.items() <= node.labels.items() for node in nodes):
            line = f"no node of flavor {name_of(flavor)} exists yet; the autoscaler must add one"
            return Answer(Check.NODES, "later", (line,))
    unmatched: list[str] = []
    for key, value in texts_at(spec, "nodeSelector").items():
        existing = sorted({node.labels[key] for node in nodes if key in node.labels})
        if value not in existing:
            values = ", ".join(existing) or "none"
            unmatched.append(f"no node has the label {key}={value}; existing values: {values}")
    return Answer(Check.NODES, "never", tuple(unmatched) or ("no node matches the pod's node affinity",))
