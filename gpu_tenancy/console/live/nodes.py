"""Whether the nodes that are there take some pods, now and when they are empty."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpu_tenancy.console.live.amounts import gpus, listed, many, ordered, said
from gpu_tenancy.console.live.answers import Answer
from gpu_tenancy.console.live.placing import Found, Spot, find, room_for, take
from gpu_tenancy.console.live.pods import Manifest, called
from gpu_tenancy.console.live.queues import labels
from gpu_tenancy.console.live.workloads import PodSet
from gpu_tenancy.console.offline.wire import Json, maps_at

ABOUT = "nodes"


def judge_nodes(nodes: Sequence[Spot], pods: PodSet, flavors: Sequence[Manifest] = ()) -> tuple[Answer, list[Spot]]:
    """Whether nodes take pods, and the nodes with as many of them as they take now.

    Args:
        nodes: with what is free on them.
        pods: as they are written.
        flavors: those that Kueue would give, whose labels and tolerations it adds.
    """
    spec = given(pods.spec, flavors)
    found = find(spec, pods.pod, nodes)
    after = take(nodes, found.fitting, pods.pod, pods.count)
    if not found.fitting:
        return _nowhere(found, spec, nodes, flavors), after
    each = listed(gpus(pods.pod)) if gpus(pods.pod) else listed(pods.pod)
    of = many(len(found.fitting), "node")
    if not found.ever:
        words = f"a pod asks for {each}, and the largest of {of} that may be used has {_largest(found, pods.pod)}"
        return Answer(ABOUT, "never", (words,)), after
    room = f"room for {many(found.now, 'such pod')} now, for {found.ever} when empty"
    numbers = f"{of} may be used, with {room}"
    if found.now >= pods.count:
        return Answer(ABOUT, "now", (numbers,)), after
    if found.ever < pods.count:
        return Answer(ABOUT, "later", (f"{numbers}; an autoscaler must bring more", *_free(found, pods.pod))), after
    return Answer(ABOUT, "later", (numbers, *_free(found, pods.pod))), after


def given(spec: Manifest, flavors: Iterable[Manifest]) -> Mapping[str, Json]:
    """A pod with what Kueue adds when it admits it: its flavors' node labels and tolerations."""
    selector = dict[str, Json](labels(spec, "nodeSelector"))
    tolerations: list[Json] = [*maps_at(spec, "tolerations")]
    for flavor in flavors:
        selector |= labels(flavor, "spec", "nodeLabels")
        tolerations += maps_at(flavor, "spec", "tolerations")
    return {**spec, "nodeSelector": selector, "tolerations": tolerations}


def _nowhere(found: Found, spec: Manifest, nodes: Sequence[Spot], flavors: Sequence[Manifest]) -> Answer:
    """Why no node may be used."""
    taints = [
        f"{many(count, 'node')} with the taint {taint}, which it does not tolerate"
        for taint, count in found.taints.items()
    ]
    if found.closed:
        taints.append(f"{many(found.closed, 'node')} closed to new pods")
    if found.labelled:
        verdict = "later" if found.closed and not found.taints else "never"
        return Answer(ABOUT, verdict, (f"what it asks for have only {'; '.join(taints)}",))
    for flavor in flavors:
        own = labels(flavor, "spec", "nodeLabels")
        if own and not any(own.items() <= node.labels.items() for node in nodes):
            return Answer(
                ABOUT, "later", (f"no node of flavor {called(flavor)} is there; an autoscaler must bring one",)
            )
    return Answer(ABOUT, "never", tuple(_absent(spec, nodes)) or ("no node has what its node affinity asks for",))


def _absent(spec: Manifest, nodes: Sequence[Spot]) -> Iterable[str]:
    wanted = labels(spec, "nodeSelector")
    for key, value in wanted.items():
        if not any(node.labels.get(key) == value for node in nodes):
            there = sorted({node.labels[key] for node in nodes if key in node.labels})
            yield f"no node has {key}={value}; there are: {', '.join(there) or 'none with that label'}"


def _largest(found: Found, pod: Mapping[str, int]) -> str:
    """The most that one node has of what is too much."""
    lacking = [name for name, value in pod.items() if all(node.whole.get(name, 0) < value for node in found.fitting)]
    names = ordered(lacking or [name for name in pod if pod[name]])
    return ", ".join(f"{said(name, max(node.whole.get(name, 0) for node in found.fitting))} {name}" for name in names)


def _free(found: Found, pod: Mapping[str, int]) -> Iterable[str]:
    """How many nodes have how much left of what the pod asks for."""
    name = next(iter(gpus(pod)), "cpu")
    counts = Counter(node.free.get(name, 0) for node in found.fitting if not room_for(node.free, pod))
    if counts:
        yield f"{name} free: " + ", ".join(
            f"{said(name, free)} on {many(count, 'node')}" for free, count in sorted(counts.items())
        )
