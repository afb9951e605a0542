"""A cluster with objects that are not applied yet: pods on removed nodes, and pods that are refused.

Recreated pods can be refused by LimitRanges, or by guards that deny. Bounds of containers, priority classes, schedulers
and grace periods are checked; images, volumes, privileges and submitters are not, since a snapshot lacks these fields.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import Json, at, int_at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import amount_text, amounts, format_amounts, is_extended, parse_quantity
from gpu_tenancy.cluster.budgets import container_rules, with_defaults
from gpu_tenancy.cluster.cluster_queues import read_cluster_queue, reported_usage
from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.pods import container_amounts, ended, label, name_of, namespace_of, requests, scheduler
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, State
from gpu_tenancy.cluster.workloads import Workload
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.names import DEFAULT_GRACE, KUEUE, STACK
from gpu_tenancy.model.plan.guards import FACTS
from gpu_tenancy.model.plan.pools import POOL_LABEL
from gpu_tenancy.model.spec.people import Grace

# Kinds of a stack that affect workloads.
_PROPOSED: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "LocalQueue", "Namespace", "ResourceFlavor", "ResourceQuota",
)  # fmt: skip
_MANAGED: Final = "app.kubernetes.io/managed-by"
_ACTIVE: Final[Json] = {"conditions": [{"type": "Active", "status": "True", "reason": "Ready", "message": ""}]}
_DELETED: Final = "it is being deleted"


def proposed(state: State, objects: Iterable[Mapping[str, Json]], stack: str) -> State:
    """The cluster after applying the objects of a stack and deleting objects that it no longer declares.

    A deleted ClusterQueue admits nothing, and stays until its last workload has ended, by its finalizer
    `kueue.x-k8s.io/resource-in-use`
    (https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/core/clusterqueue_controller.go).
    """
    manifests = [dict(one) for one in objects]
    ours = [one for one in manifests if text_at(one, "apiVersion") in {KUEUE, "v1"}]
    declared = {kind: {key_of(one): one for one in ours if text_at(one, "kind") == kind} for kind in _PROPOSED}
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
    batch = (one for one in manifests if (text_at(one, "apiVersion"), text_at(one, "kind")) == ("batch/v1", "Job"))
    jobs = {"/".join(key_of(one)): one for one in batch}
    ending: list[Workload] = []
    workloads: list[Manifest] = []
    for manifest in state.of("Workload"):
        workload = Workload.of(manifest)
        new = None if workload.namespace in gone else _resized(state, workload, jobs.get(workload.label))
        if workload.namespace in gone or new:
            ending.append(workload)
        if workload.namespace not in gone:
            workloads.append(new or dict(manifest))
    found["Workload"] = tuple(workloads)
    if ending:
        found["ClusterQueue"] = tuple(_released(one, ending) for one in found["ClusterQueue"])
    return State(found, state.missing)


def _resized(state: State, workload: Workload, job: Mapping[str, Json] | None) -> Manifest | None:
    """The new pending Workload of a Job that the change replaces by one of another size; None for others."""
    owners = {text_at(owner, "kind") for owner in maps_at(workload.manifest, "metadata", "ownerReferences")}
    if job is None or workload.stage == "finished" or owners != {"Job"}:
        return None
    (pods,), old = demand(job, workload.namespace).templates, workload.sets[0]
    spec, _ = with_defaults(state.of("LimitRange", workload.namespace), pods.spec)
    if (old.count, old.pod) == (pods.count, requests(spec)):
        return None
    sets: Json = [{"name": old.name, "count": pods.count, "template": {"spec": dict(spec)}}]
    return {**workload.manifest, "spec": {**map_at(workload.manifest, "spec"), "podSets": sets}, "status": {}}


def _released(queue: Manifest, ends: Iterable[Workload]) -> Manifest:
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
    """The object after the change; None if it is deleted at once."""
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
    """Names of Cohorts below the stack's roots, of their ClusterQueues, and of the flavors of these queues."""
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
    """A pool with fewer nodes after the change than nodes in use by pods with GPUs."""

    name: str
    nodes: int  # maximum after the change
    busy: int  # nodes that run pods with GPUs now
    pods: tuple[str, ...]  # on busy nodes, as namespace/name; the cloud chooses which nodes to delete


def smaller_pools(now: State, nodes: Mapping[str, int]) -> tuple[SmallerPool, ...]:
    """Pools that shrink below their use; `nodes` is the maximum of each pool, 0 for pools without entry."""
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
    """Running pods with GPUs on nodes of deleted flavors, by flavor."""
    gone = {name_of(one) for one in now.state.of("ResourceFlavor")}
    gone -= {name_of(one) for one in after.state.of("ResourceFlavor")}
    found: dict[str, list[str]] = {}
    for node, pod in _with_gpus(now.state):
        flavor = now.flavor_by_node.get(node, "")
        if flavor in gone:
            found.setdefault(flavor, []).append(pod)
    return {flavor: tuple(sorted(pods)) for flavor, pods in sorted(found.items())}


def _with_gpus(state: State) -> Iterator[tuple[str, str]]:
    """Node, and namespace/name, of each running pod with GPUs."""
    for pod in state.of("Pod"):
        node = text_at(pod, "spec", "nodeName")
        if node and not ended(pod) and any(is_extended(name) for name in requests(map_at(pod, "spec"))):
            yield node, f"{namespace_of(pod)}/{name_of(pod)}"


# Owners of server pods, whose grace period has the upper bound, by group and kind. Guards judge other pods as jobs.
_SERVERS: Final = frozenset(
    key for key, kind in kinds().items() if kind.work == "serving" or (kind.made and kind.work is None)
)


@dataclass(frozen=True, slots=True)
class Refused:
    """Pods of a namespace that one bound refuses, by name."""

    team: str
    why: str
    pods: tuple[str, ...]


def refused(now: State, objects: Iterable[Mapping[str, Json]], grace: Grace | None) -> tuple[Refused, ...]:
    """Running or pending pods that only the objects of a stack refuse; `grace` is None if guards do not deny."""
    declared = [dict(one) for one in objects]
    spaces = {name_of(one): one for one in declared if text_at(one, "kind") == "Namespace"}
    live = {name_of(one): one for one in now.of("Namespace")}
    classes = [name_of(one) for one in declared if text_at(one, "kind") == "PriorityClass"]
    ranges = [one for one in declared if text_at(one, "kind") == "LimitRange"]
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in now.of("Pod"):
        space = namespace_of(pod)
        if space not in spaces or ended(pod):
            continue
        reasons = dict.fromkeys(_beyond(pod, ranges))
        before = set(_beyond(pod, now.of("LimitRange")))
        if grace:
            reasons |= dict.fromkeys(_denied(pod, spaces[space], classes, grace))
            before |= set(_denied(pod, live.get(space, {}), None, None))
        for reason in reasons:
            if reason not in before:
                found[space, reason].append(name_of(pod))
    return tuple(Refused(team, why, tuple(sorted(pods))) for (team, why), pods in sorted(found.items()))


def _beyond(pod: Manifest, ranges: Iterable[Manifest]) -> Iterator[str]:
    # https://kubernetes.io/docs/concepts/policy/limit-range/.
    containers = [*maps_at(pod, "spec", "containers"), *maps_at(pod, "spec", "initContainers")]
    for _, item in container_rules(one for one in ranges if namespace_of(one) == namespace_of(pod)):
        most, least = amounts(at(item, "max")), amounts(at(item, "min"))
        ratios = texts_at(item, "maxLimitRequestRatio")
        for container in containers:
            limits, asked = (container_amounts(container, which) for which in ("limits", "requests"))
            for name, limit in limits.items():
                text = f"limit of {amount_text(name, limit)} {name} in a container"
                if name in most and limit > most[name]:
                    yield f"{text} exceeds the maximum of {amount_text(name, most[name])}"
                if name in ratios and limit > parse_quantity(ratios[name]) * asked.get(name, limit):
                    yield f"{text} exceeds {ratios[name]} times its request"
            for name, amount in asked.items():
                if amount < least.get(name, 0):
                    text = f"request of {amount_text(name, amount)} {name} in a container"
                    yield f"{text} is below the minimum of {amount_text(name, least[name])}"


def _denied(pod: Manifest, space: Manifest, classes: list[str] | None, grace: Grace | None) -> Iterator[str]:
    """Reasons of guards to deny a pod; `classes` or `grace` None is unknown and denies nothing."""
    spec, facts = map_at(pod, "spec"), texts_at(space, "metadata", "annotations")
    own = facts.get(f"{FACTS}priority-classes", "")
    allowed = own.split(",") if own else classes
    name = text_at(spec, "priorityClassName")
    if name and allowed is not None and name not in allowed:
        yield f"priority class {name} is not one of the team's"
    if classes is not None or any(key.startswith(FACTS) for key in facts):
        schedulers = facts.get(f"{FACTS}schedulers", "default-scheduler").split(",")
        if scheduler(spec) not in schedulers:
            yield f"scheduler {scheduler(spec)} is not one of the team's"
    if grace and any(is_extended(resource) for resource in requests(spec)):
        owners = maps_at(pod, "metadata", "ownerReferences")
        served = any(
            (text_at(one, "apiVersion").rpartition("/")[0], text_at(one, "kind")) in _SERVERS for one in owners
        )
        bound = grace.servers if served else grace.jobs
        if (seconds := int_at(spec, "terminationGracePeriodSeconds", otherwise=DEFAULT_GRACE)) > bound:
            yield f"grace period of {seconds} s exceeds the maximum of {bound:g} s"
