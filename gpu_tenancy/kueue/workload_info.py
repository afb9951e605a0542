"""Workloads with scheduling state, their ClusterQueues, and the cohort trees, between which quota never moves.

Rules: pkg/workload and pkg/cache/scheduler of kubernetes-sigs/kueue at v0.19.2.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from gpu_tenancy.kueue import api
from gpu_tenancy.kueue.resource_node import Amounts, Node


class Outcome(Enum):
    """Result of a scheduling cycle for the head of a ClusterQueue."""

    ADMITTED = auto()
    PREEMPTING = auto()
    NO_FIT = auto()
    NO_CANDIDATES = auto()
    NO_LONGER_FITS = auto()
    OVERLAPPING_TARGETS = auto()


class FlavorReason(NamedTuple):
    """Why a pod set does not fit in a flavor."""

    resource: str
    flavor: str  # empty if no resource group covers the resource
    requested: int  # by this pod set and those before it
    missing: int  # missing unused quota; 0 if the flavor is ruled out regardless of usage
    maximum: int | None  # the maximum capacity of the ClusterQueue; None if the flavor does not match the pods


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a workload's last search, why flavors did not fit, and the names of the workloads to preempt."""

    outcome: Outcome
    reasons: tuple[FlavorReason, ...] = ()
    targets: tuple[str, ...] = ()
    amounts: Amounts = ()  # the request in the best flavors, by key
    reclaims: bool = False  # whether Kueue reclaims for it, if all its requests are within nominal quota

    def after(self, earlier: "Verdict | None") -> "Verdict":
        """The verdict on all flavors, if an earlier cycle has tried some: Kueue reports the last cycle alone."""
        if self.outcome is not Outcome.NO_FIT or earlier is None or earlier.outcome not in _NO_QUOTA:
            return self
        return replace(earlier, reasons=(*earlier.reasons, *self.reasons))


_NO_QUOTA: Final = (Outcome.NO_FIT, Outcome.NO_CANDIDATES)

PODS: Final = "pods"  # counts pods if a ClusterQueue has a quota for it


@dataclass(frozen=True, slots=True)
class LastAssignment:
    """Where the flavor search of an earlier cycle stopped; Kueue's `AssignmentClusterQueueState`.

    `last_tried_flavor` has for each pod set and resource the index in the resource group, -1 if all flavors were tried.
    `generation` is the ClusterQueue's at that time.
    """

    last_tried_flavor: tuple[dict[str, int], ...]
    cycle: int
    generation: int
    pending_flavors: bool  # whether some flavors were not tried


@dataclass(frozen=True, slots=True)
class Evicted:
    """One preemption, at a time in seconds of the logical clock, with the reason of Kueue's condition `Preempted`."""

    name: str
    by: str
    reason: str
    at: float


@dataclass(slots=True, eq=False)
class WorkloadInfo:
    """A workload with its scheduling state; Kueue's `workload.Info`."""

    spec: api.Workload
    queue: "Queue"
    created: int  # position in the order of creation; an eviction does not change it
    scheduling_hash: Hashable  # equal for workloads that the scheduler treats alike
    requests: tuple[dict[str, int], ...]  # for each pod set the total amount of each resource
    flavors: tuple[dict[str, str], ...] = ()  # for each pod set the flavor of each resource, while admitted
    usage: Amounts = ()
    reserved_at: int = 0  # the second of its quota reservation
    admitted: bool = False
    evicting: bool = False  # it keeps its quota until it has stopped
    last_assignment: LastAssignment | None = None
    verdict: Verdict | None = None
    evictions: list[Evicted] = field(default_factory=list[Evicted])

    @classmethod
    def new(cls, spec: api.Workload, queue: "Queue", created: int) -> "WorkloadInfo":
        """A pending workload."""
        counts_pods = PODS in queue.group_of
        requests: list[dict[str, int]] = []
        for pod_set in spec.pod_sets:
            amounts = {resource: amount * pod_set.count for resource, amount in pod_set.requests.items()}
            if counts_pods:
                amounts[PODS] = pod_set.count
            requests.append(amounts)
        scheduling_hash = (
            spec.priority,
            tuple(
                (pod_set.name, pod_set.count, tuple(sorted(pod_set.requests.items())), pod_set.flavors)
                for pod_set in spec.pod_sets
            ),
        )
        return cls(spec, queue, created, scheduling_hash, tuple(requests))

    def reserve_quota(self, usage: Amounts, flavors: tuple[dict[str, str], ...], *, second: int) -> None:
        """Records the admission; the caller adds the usage to the tree."""
        self.admitted = True
        self.usage, self.flavors, self.reserved_at = usage, flavors, second

    @property
    def name(self) -> str:
        """The workload's name."""
        return self.spec.name

    @property
    def priority(self) -> int:
        """The workload's priority."""
        return self.spec.priority


@dataclass(frozen=True, slots=True)
class Group:
    """A resource group; `flavors` has the names and the keys of the resources, in search order."""

    covered: frozenset[str]
    flavors: tuple[tuple[str, dict[str, int]], ...]


class Queue(Node):
    """A ClusterQueue as a leaf of the tree, with its admitted workloads.

    Attributes:
        workloads: admitted workloads that can be preempted.
        generation: number of releases of quota; a `LastAssignment` of an older generation is outdated.
        can_always_reclaim: it can reclaim its nominal quota regardless of priorities. If not, a head without preemption
            candidates reserves quota for the rest of the cycle.
    """

    leaf = True
    __slots__ = ("can_always_reclaim", "generation", "group_of", "spec", "workloads")

    def __init__(
        self,
        spec: api.ClusterQueue,
        parent: Node | None,
        quotas: Sequence[api.Quota],
        keys: Mapping[api.FlavorResource, int],
        position: int,
    ) -> None:
        super().__init__(spec.name, parent, spec.weight, quotas, position)
        self.spec = spec
        self.group_of: dict[str, Group] = {}
        for group in spec.groups:
            flavors = (
                (flavor.flavor, {resource: keys[flavor.flavor, resource] for resource in flavor.resources})
                for flavor in group.flavors
            )
            self.group_of |= dict.fromkeys(group.covered, Group(group.covered, tuple(flavors)))
        self.workloads: dict[WorkloadInfo, None] = {}
        self.generation = 0
        self.can_always_reclaim = spec.preemption.reclaim is api.Policy.ANY


@dataclass(eq=False)
class CohortTree:
    """One tree of cohorts, or one ClusterQueue without a cohort."""

    names: tuple[api.FlavorResource, ...]  # the flavor and resource of each key
    resources: list[int]  # the number of each key's resource
    fair: tuple[api.FairStrategy, ...] | None  # the preemption strategies of fair sharing; None if it is off
    queues: dict[str, Queue] = field(default_factory=dict[str, Queue])
    cohorts: dict[str, Node] = field(default_factory=dict[str, Node])


def cohort_trees(tenancy: api.Tenancy, used: Iterable[api.FlavorResource] = ()) -> list[CohortTree]:
    """The trees of a tenancy in the order of its ClusterQueues; `used` may have usage although no quota is set.

    Raises ValueError: a duplicate name, or a cycle of cohorts.
    """
    parent_of = api.parents(tenancy)
    roots: dict[str, str] = {}
    for name in parent_of:
        top = name
        while (parent := parent_of[top]) is not None:
            top = parent
        roots[name] = top
    members: dict[tuple[str, str], list[api.ClusterQueue]] = {}
    for queue in tenancy.queues:
        # A ClusterQueue without a cohort and a cohort may have the same name.
        place = ("queue", queue.name) if queue.cohort is None else ("cohort", roots[queue.cohort])
        members.setdefault(place, []).append(queue)
    declared = {cohort.name: cohort for cohort in tenancy.cohorts}
    more = tuple(used)
    return [
        _tree(
            queues,
            [declared.get(name, api.Cohort(name)) for name in parent_of if kind == "cohort" and roots[name] == root],
            tenancy.fair_sharing,
            more,
        )
        for (kind, root), queues in members.items()
    ]


def _tree(
    queues: Sequence[api.ClusterQueue],
    cohorts: Sequence[api.Cohort],
    fair: tuple[api.FairStrategy, ...] | None,
    more: Sequence[api.FlavorResource],
) -> CohortTree:
    names = dict.fromkeys((*(name for owner in (*queues, *cohorts) for name in owner.quotas), *more))
    keys = {name: key for key, name in enumerate(names)}
    kinds = {resource: number for number, resource in enumerate(dict.fromkeys(resource for _, resource in names))}
    tree = CohortTree(tuple(names), [kinds[resource] for _, resource in names], fair)
    quotas_of: dict[Node, list[api.Quota]] = {}
    by_name = {cohort.name: cohort for cohort in cohorts}

    def cohort_node(name: str) -> Node:
        if name not in tree.cohorts:
            cohort = by_name[name]
            quotas = _by_key(cohort.quotas, keys)
            parent = None if cohort.parent is None else cohort_node(cohort.parent)
            tree.cohorts[name] = Node(name, parent, cohort.weight, quotas, len(tree.cohorts))
            quotas_of[tree.cohorts[name]] = quotas
        return tree.cohorts[name]

    for cohort in cohorts:
        cohort_node(cohort.name)
    for position, queue in enumerate(queues):
        quotas = _by_key(queue.quotas, keys)
        parent = None if queue.cohort is None else cohort_node(queue.cohort)
        node = Queue(queue, parent, quotas, keys, position)
        quotas_of[node] = quotas
        tree.queues[queue.name] = node
    # Parents come before their children.
    for node, quotas in reversed(quotas_of.items()):
        node.update_subtree_quota(quotas)
    for node in quotas_of:
        node.update_potential_available(tree.resources, len(kinds))
    return tree


def _by_key(quotas: Mapping[api.FlavorResource, api.Quota], keys: Mapping[api.FlavorResource, int]) -> list[api.Quota]:
    none = api.Quota()
    return [quotas.get(name, none) for name in keys]
