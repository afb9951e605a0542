"""Kueue's objects as plain frozen data: ClusterQueues, cohorts and workloads.

The terms and defaults are those of Kueue 0.19 (`kueue.x-k8s.io/v1beta2`). Amounts are integers in any unit, as long as
a resource keeps to one: GPUs, millicores, bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias


class Policy(StrEnum):
    """Whom a workload may preempt."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class Strategy(StrEnum):
    """What a queue does behind a workload that does not fit."""

    STRICT = "StrictFIFO"
    BEST_EFFORT = "BestEffortFIFO"


class Fungible(StrEnum):
    """Whether the next flavor is looked at although this one would do, by borrowing or by preemption."""

    STOP = "MayStopSearch"
    NEXT = "TryNextFlavor"


class Preference(StrEnum):
    """Which of two flavors is better, where one would need to borrow and the other to preempt."""

    BORROW = "BorrowingOverPreemption"
    PREEMPT = "PreemptionOverBorrowing"


class FairStrategy(StrEnum):
    """When fair sharing lets one queue preempt another's workload."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    INITIAL_SHARE = "LessThanInitialShare"


FlavorResource: TypeAlias = tuple[str, str]
"""A flavor and a resource, Kueue's `FlavorResource`."""

FAIR: Final = (FairStrategy.FINAL_SHARE, FairStrategy.INITIAL_SHARE)
"""Kueue's own choice where fair sharing is on and no strategies are named."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a node of the tree has of one resource in one flavor; a limit of None is no limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """One flavor of a resource group: a quota for each resource that the group covers."""

    flavor: str
    resources: Mapping[str, Quota]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Flavors in the order in which they are tried, all for the same resources."""

    flavors: tuple[FlavorQuotas, ...]

    @property
    def covered(self) -> frozenset[str]:
        """The resources that a pod set gets from one and the same flavor."""
        return frozenset(resource for each in self.flavors for resource in each.resources)


@dataclass(frozen=True, slots=True)
class BorrowWithinCohort:
    """Preemption in other queues by a workload that would borrow: only of lower priority, and up to a threshold."""

    threshold: int | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    """Whom the workloads of a queue may preempt; `borrow` None is the policy Never."""

    within: Policy = Policy.NEVER
    reclaim: Policy = Policy.NEVER
    borrow: BorrowWithinCohort | None = None


@dataclass(frozen=True, slots=True)
class Fungibility:
    """`flavorFungibility`: by default a flavor is taken where it means borrowing, not where it means preemption."""

    when_can_borrow: Fungible = Fungible.STOP
    when_can_preempt: Fungible = Fungible.NEXT
    preference: Preference = Preference.BORROW


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A queue with its quota; without a cohort it neither borrows nor lends."""

    name: str
    groups: tuple[ResourceGroup, ...]
    cohort: str | None = None
    strategy: Strategy = Strategy.BEST_EFFORT
    preemption: Preemption = field(default_factory=Preemption)
    fungibility: Fungibility = field(default_factory=Fungibility)
    weight: float | None = None

    @property
    def quotas(self) -> dict[FlavorResource, Quota]:
        """The quotas of all groups."""
        return _quotas(self.groups)


@dataclass(frozen=True, slots=True)
class Cohort:
    """A node of the tree above queues, with a quota of its own or without; a root has no parent."""

    name: str
    parent: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    weight: float | None = None

    @property
    def quotas(self) -> dict[FlavorResource, Quota]:
        """The quotas of all groups."""
        return _quotas(self.groups)


def _quotas(groups: Iterable[ResourceGroup]) -> dict[FlavorResource, Quota]:
    return {
        (flavor.flavor, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.resources.items()
    }


@dataclass(frozen=True, slots=True)
class Tenancy:
    """All queues and cohorts of a cluster.

    Attributes:
        cohorts: a cohort that is only named, by a queue or by another cohort, exists too: a root without quota.
        fair_sharing: the preemption strategies of fair sharing; None where it is off.
    """

    queues: tuple[ClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    fair_sharing: tuple[FairStrategy, ...] | None = None


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one shape; `requests` are of one pod, `flavors` those that its labels and taints suit, None for all."""

    requests: Mapping[str, int]
    count: int = 1
    flavors: frozenset[str] | None = None
    name: str = "main"


@dataclass(frozen=True, slots=True)
class Workload:
    """What is admitted whole or not at all: every pod of every pod set."""

    name: str
    queue: str
    pod_sets: tuple[PodSet, ...]
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """First each of `finish` ends, then each of `submit` arrives; everything comes to rest between two of them."""

    submit: tuple[Workload, ...] = ()
    finish: tuple[str, ...] = ()


def parents(tenancy: Tenancy) -> dict[str, str | None]:
    """Each cohort's parent, those included that are only named.

    Raises:
        ValueError: a name twice, or a cohort that is its own ancestor.
    """
    once((each.name for each in tenancy.cohorts), "Cohort")
    once((each.name for each in tenancy.queues), "ClusterQueue")
    above: dict[str, str | None] = {each.name: each.parent for each in tenancy.cohorts}
    for named in [*(each.parent for each in tenancy.cohorts), *(each.cohort for each in tenancy.queues)]:
        if named is not None:
            above.setdefault(named, None)
    for start, parent in above.items():
        seen = {start}
        at = parent
        while at is not None:
            if at in seen:
                raise ValueError(
                    f"Cohort {start}: its parents form a cycle at {at}; Kueue admits nothing in such a tree"
                )
            seen.add(at)
            at = above[at]
    return above


def without_cycles(tenancy: Tenancy) -> Tenancy:
    """A tenancy in which one cohort of each cycle is a root."""
    parent_of = {cohort.name: cohort.parent for cohort in tenancy.cohorts}
    for start in parent_of:
        seen, name = {start}, start
        while (parent := parent_of.get(name)) is not None:
            if parent in seen:
                parent_of[name] = None
                break
            seen.add(parent)
            name = parent
    return replace(tenancy, cohorts=tuple(replace(cohort, parent=parent_of[cohort.name]) for cohort in tenancy.cohorts))


def validate(tenancy: Tenancy) -> None:
    """Rejects resource groups that Kueue's webhooks reject.

    Raises:
        ValueError: a resource in two groups of a ClusterQueue, or a flavor without quota for a resource of its group.
    """
    for queue in tenancy.queues:
        seen: set[str] = set()
        for group in queue.groups:
            covered = group.covered
            if twice := sorted(seen & covered):
                raise ValueError(f"ClusterQueue {queue.name}: {', '.join(twice)} is covered by two resource groups")
            seen |= covered
            for flavor in group.flavors:
                if missing := sorted(covered - set(flavor.resources)):
                    raise ValueError(
                        f"ClusterQueue {queue.name}: flavor {flavor.flavor} has no quota for {', '.join(missing)}"
                    )


def once(names: Iterable[str], kind: str) -> None:
    """Raises a ValueError for the first duplicate name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"duplicate {kind} {name!r}")
        seen.add(name)


REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
"""All pods run in one part of the network of this level, a node label:
https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/."""
PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
"""All pods run in one part of this level if one has room, else in a larger one."""
GROUP: Final = "kueue.x-k8s.io/podset-group-name"
"""Two pod sets with the same name run in the same part; one of them has one pod."""
UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
"""The pods run on any nodes."""
