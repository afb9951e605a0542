"""A cluster as it would be with objects that are not applied yet, and its pods on nodes that a change takes away."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import Json, map_at, text_at
from gpu_tenancy.base.quantity import format_amounts, is_extended
from gpu_tenancy.cluster.cluster_queues import read_cluster_queue, reported_usage
from gpu_tenancy.cluster.pods import ended, label, name_of, namespace_of, requests
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import KUEUE, Kind, State
from gpu_tenancy.cluster.workloads import Workload
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.names import STACK
from gpu_tenancy.model.plan.pools import POOL_LABEL

_PROPOSED: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "LocalQueue", "Namespace", "ResourceFlavor", "ResourceQuota",
)  # fmt: skip
"""Kinds that a stack declares and that decide about workloads."""
_MANAGED: Final = "app.kubernetes.io/managed-by"
_ACTIVE: Final[Json] = {"conditions": [{"type": "Active", "status": "True", "reason": "Ready", "message": ""}]}
_DELETED: Final = "it is being deleted"


def proposed(state: State, objects: Iterable[Mapping[str, Json]], stack: str) -> State:
    """The cluster with the objects of a stack applied, and with what it has made and declares no more deleted.

    A ClusterQueue that is to be deleted stays until its last workload has ended and admits nothing until then: it has
    the finalizer `kueue.x-k8s.io/resource-in-use`
    (https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/core/clusterqueue_controller.go).
    """
    declared: dict[Kind, dict[tuple[str, str], Manifest]] = {kind: {} for kind in _PROPOSED}
    for manifest in objects:
        for kind in _PROPOSED:
            if text_at(manifest, "kind") == kind and text_at(manifest, "apiVersion") in {KUEUE, "v1"}:
                declared[kind][key_of(dict(manifest))] = dict(manifest)
    own = _own_tree(state, stack)
    gone = {
        name_of(one)
        for one in state.of("Namespace")
        if label(one, _MANAGED) == "gpu-tenancy" and key_of(one) not in declared["Namespace"]
    }
    found: dict[Kind, tuple[Manifest, ...]] = dict(state.objects)
    for kind in _PROPOSED:
        there = {key_of(one): one for one in state.of(kind)}
        kept = [
            _kept(kind, one, declared[kind].get(key), own=name_of(one) in own, gone=gone) for key, one in there.items()
        ]
        status: dict[str, Json] = {"status": _ACTIVE} if kind in {"ClusterQueue", "LocalQueue"} else {}
        new = [{**one, **status} for key, one in declared[kind].items() if key not in there]
        found[kind] = (*(one for one in kept if one is not None), *new)
    ends = [one for one in state.of("Workload") if namespace_of(one) in gone]
    found["Workload"] = tuple(one for one in state.of("Workload") if namespace_of(one) not in gone)
    if ends:
        ending = [Workload.of(one) for one in ends]
        found["ClusterQueue"] = tuple(_released(one, ending) for one in found["ClusterQueue"])
    return State(found, state.missing)


def _released(queue: Manifest, ends: Iterable[Workload]) -> Manifest:
    """A ClusterQueue that no longer counts workloads that end."""
    used = reported_usage(queue, "flavorsReservation")
    for workload in ends:
        if workload.holder == name_of(queue):
            for line, amount in workload.held.items():
                used[line] = used.get(line, 0) - amount
    names = dict.fromkeys(flavor for flavor, _ in used)
    left = {flavor: {name: amount for (of, name), amount in used.items() if of == flavor} for flavor in names}
    flavors: list[Json] = [
        {"name": flavor, "resources": [{"name": name, "total": text} for name, text in format_amounts(of).items()]}
        for flavor, of in left.items()
    ]
    return {**queue, "status": {**map_at(queue, "status"), "flavorsReservation": flavors}}


def _kept(
    kind: Kind, live: Manifest, declared: Manifest | None, *, own: bool, gone: Collection[str]
) -> Manifest | None:
    """An object of the cluster after the change; None where it is deleted at once."""
    if declared is not None:
        labels: Json = {**map_at(live, "metadata", "labels"), **map_at(declared, "metadata", "labels")}
        spec = dict(map_at(declared, "spec"))
        if held := text_at(live, "spec", "stopPolicy"):  # Written by somebody else, whose field it stays.
            spec.setdefault("stopPolicy", held)
        return {**live, "spec": spec, "metadata": {**map_at(live, "metadata"), "labels": labels}}
    if kind == "Namespace":
        return None if name_of(live) in gone else live
    if namespace_of(live) in gone:
        return None
    if kind in {"Cohort", "ResourceFlavor"} and own:
        return None
    if kind == "ClusterQueue" and own:
        stopped: Json = [{"type": "Active", "status": "False", "reason": "Terminating", "message": _DELETED}]
        return {**live, "status": {**map_at(live, "status"), "conditions": stopped}}
    return live


def key_of(manifest: Manifest) -> tuple[str, str]:
    """Namespace and name of an object."""
    return namespace_of(manifest), name_of(manifest)


def _own_tree(state: State, stack: str) -> set[str]:
    """Names of the Cohorts below the roots that a stack has made, of their ClusterQueues and these queues' flavors."""
    roots = {name_of(one) for one in state.of("Cohort") if text_at(one, "metadata", "annotations", STACK) == stack}
    above = {name_of(one): text_at(one, "spec", "parentName") for one in state.of("Cohort")}
    above |= {name_of(one): text_at(one, "spec", "cohortName") for one in state.of("ClusterQueue")}

    def below(name: str, seen: frozenset[str] = frozenset()) -> bool:
        return name in roots or (name in above and name not in seen and below(above[name], seen | {name}))

    own = {name for name in above if below(name)}
    queues = [one for one in state.of("ClusterQueue") if name_of(one) in own]
    return own | {flavor for one in queues for flavor, _ in read_cluster_queue(one).spec.quotas}


@dataclass(frozen=True, slots=True)
class SmallerPool:
    """A pool that will have fewer nodes than now run pods with GPUs.

    Attributes:
        nodes: the most that it may have after the change.
        busy: nodes of it that run pods with GPUs now.
        pods: those pods, as namespace and name; which of them end is the cloud's choice.
    """

    name: str
    nodes: int
    busy: int
    pods: tuple[str, ...]


def smaller_pools(now: State, nodes: Mapping[str, int]) -> tuple[SmallerPool, ...]:
    """The pools of a stack's nodes that will have too few nodes for what runs.

    Args:
        now: the cluster.
        nodes: the most nodes of each pool after the change; a pool that is not in it has none.
    """
    pools = {name_of(node): label(node, POOL_LABEL) for node in now.of("Node") if label(node, POOL_LABEL)}
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node, pod in _with_gpus(now):
        if node in pools:
            found[pools[node]][node].append(pod)
    return tuple(
        SmallerPool(pool, nodes.get(pool, 0), len(busy), tuple(sorted(pod for pods in busy.values() for pod in pods)))
        for pool, busy in sorted(found.items())
        if len(busy) > nodes.get(pool, 0)
    )


def on_removed_flavors(now: Queues, after: Queues) -> dict[str, tuple[str, ...]]:
    """Running pods with GPUs on nodes of flavors that go."""
    gone = {name_of(one) for one in now.state.of("ResourceFlavor")}
    gone -= {name_of(one) for one in after.state.of("ResourceFlavor")}
    found: dict[str, list[str]] = {}
    for node, pod in _with_gpus(now.state):
        flavor = now.flavor_by_node.get(node, "")
        if flavor in gone:
            found.setdefault(flavor, []).append(pod)
    return {flavor: tuple(sorted(pods)) for flavor, pods in sorted(found.items())}


def _with_gpus(state: State) -> Iterator[tuple[str, str]]:
    """Node, and namespace with name, of each pod with GPUs that runs."""
    for pod in state.of("Pod"):
        node = text_at(pod, "spec", "nodeName")
        if node and not ended(pod) and any(is_extended(name) for name in requests(map_at(pod, "spec"))):
            yield node, f"{namespace_of(pod)}/{name_of(pod)}"
