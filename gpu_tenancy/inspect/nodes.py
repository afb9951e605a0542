"""Whether nodes have room for pods, now and when they are empty."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpu_tenancy.base.amounts import amount_text, amounts_text, gpus, ordered
from gpu_tenancy.base.json import Json, maps_at, texts_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.inspect.answers import Answer, Check
from gpu_tenancy.inspect.placing import Found, Spot, find, room_for, take
from gpu_tenancy.inspect.pods import Manifest, called
from gpu_tenancy.inspect.workloads import PodSet


def judge_nodes(nodes: Sequence[Spot], pods: PodSet, flavors: Sequence[Manifest] = ()) -> tuple[Answer, list[Spot]]:
    """Whether nodes have room for pods, and the nodes with as many of these pods as they have room for.

    Args:
        nodes: with what is free on them.
        pods: as written by the user.
        flavors: those that Kueue would assign, whose labels and tolerations it adds to the pods.
    """
    spec = given(pods.spec, flavors)
    found = find(spec, pods.pod, nodes)
    if pods.within and found.fitting:
        found = _best_part(spec, pods, found.fitting)
        if found.ever < pods.count:
            must = f"{plural(pods.count, 'pod')} must run where nodes have one value of {pods.within}"
            line = f"{must}, but no value has room for more than {found.ever}"
            return Answer(Check.NODES, "never", (line,)), [*nodes]
    after = take(nodes, found.fitting, pods.pod, pods.count)
    if not found.fitting:
        return _no_node(found, spec, nodes, flavors), after
    suitable = plural(len(found.fitting), "suitable node")
    if not found.ever:
        requested = amounts_text(gpus(pods.pod) or pods.pod)
        line = f"a pod requests {requested}, but the largest of {suitable} has {_largest(found, pods.pod)}"
        return Answer(Check.NODES, "never", (line,)), after
    room = f"{suitable}, room for {plural(found.now, 'such pod')} now and {found.ever} when empty"
    if found.now >= pods.count:
        return Answer(Check.NODES, "now", (room,)), after
    if found.ever < pods.count:
        room = f"{room}; the autoscaler must add nodes"
    return Answer(Check.NODES, "later", (room, *_free(found, pods.pod))), after


def _best_part(spec: Manifest, pods: PodSet, fitting: Iterable[Spot]) -> Found:
    """The nodes of one part of the network that suit all pods of a workload best: with room now, else when empty.

    Without nodes, where none has the label.
    """
    parts: dict[str, list[Spot]] = {}
    for node in fitting:
        if name := node.labels.get(pods.within):
            parts.setdefault(name, []).append(node)
    found = [find(spec, pods.pod, part) for part in parts.values()] or [find(spec, pods.pod, ())]
    return max(found, key=lambda part: (part.now >= pods.count, part.ever, part.now))


def given(spec: Manifest, flavors: Iterable[Manifest]) -> Mapping[str, Json]:
    """A pod with what Kueue adds at admission: node labels and tolerations of its flavors."""
    selector = dict[str, Json](texts_at(spec, "nodeSelector"))
    tolerations: list[Json] = [*maps_at(spec, "tolerations")]
    for flavor in flavors:
        selector |= texts_at(flavor, "spec", "nodeLabels")
        tolerations += maps_at(flavor, "spec", "tolerations")
    return {**spec, "nodeSelector": selector, "tolerations": tolerations}


def _no_node(found: Found, spec: Manifest, nodes: Sequence[Spot], flavors: Sequence[Manifest]) -> Answer:
    """Why no node is suitable."""
    if found.labelled:
        verdict = "later" if found.closed and not found.taints else "never"
        parts = [
            f"{plural(count, 'node')} with taint {taint}, which it does not tolerate"
            for taint, count in found.taints.items()
        ]
        parts += [plural(found.closed, "unschedulable node")] if found.closed else []
        return Answer(Check.NODES, verdict, (f"matching nodes do not accept the pod: {'; '.join(parts)}",))
    for flavor in flavors:
        own = texts_at(flavor, "spec", "nodeLabels")
        if own and not any(own.items() <= node.labels.items() for node in nodes):
            return Answer(
                Check.NODES, "later", (f"no node of flavor {called(flavor)} exists yet; the autoscaler must add one",)
            )
    return Answer(
        Check.NODES, "never", tuple(_unmatched_labels(spec, nodes)) or ("no node matches the pod's node affinity",)
    )


def _unmatched_labels(spec: Manifest, nodes: Sequence[Spot]) -> Iterable[str]:
    for key, value in texts_at(spec, "nodeSelector").items():
        if not any(node.labels.get(key) == value for node in nodes):
            existing = sorted({node.labels[key] for node in nodes if key in node.labels})
            yield f"no node has the label {key}={value}; existing values: {', '.join(existing) or 'none'}"


def _largest(found: Found, pod: Mapping[str, int]) -> str:
    """The largest amounts on one node, of the resources of which no node has enough."""
    lacking = [name for name, value in pod.items() if all(node.whole.get(name, 0) < value for node in found.fitting)]
    names = ordered(lacking or [name for name in pod if pod[name]])
    return ", ".join(
        f"{amount_text(name, max(node.whole.get(name, 0) for node in found.fitting))} {name}" for name in names
    )


def _free(found: Found, pod: Mapping[str, int]) -> Iterable[str]:
    """How many nodes have how much free of the pod's first resource."""
    name = next(iter(gpus(pod)), "cpu")
    counts = Counter(node.free.get(name, 0) for node in found.fitting if not room_for(node.free, pod))
    if counts:
        parts = (f"{amount_text(name, free)} on {plural(count, 'node')}" for free, count in sorted(counts.items()))
        yield f"free {name}: {', '.join(parts)}"
