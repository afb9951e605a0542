"""Kueue's objects as frozen data, with the terms and defaults of Kueue 0.19 (`kueue.x-k8s.io/v1beta2`).

Amounts are integers; each resource has one unit, such as GPUs, millicores or bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias


class Policy(StrEnum):
    """Which workloads a preemptor may preempt."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class Strategy(StrEnum):
    """Whether a workload that does not fit blocks the workloads behind it."""

    STRICT = "StrictFIFO"
    BEST_EFFORT = "BestEffortFIFO"


class Fungible(StrEnum):
    """Whether to try the next flavor after a flavor that needs borrowing or preemption."""

    STOP = "MayStopSearch"
    NEXT = "TryNextFlavor"


class Preference(StrEnum):
    """Which of two flavors is better if one needs borrowing and the other preemption."""

    BORROW = "BorrowingOverPreemption"
    PREEMPT = "PreemptionOverBorrowing"


class FairStrategy(StrEnum):
    """When fair sharing lets one queue preempt another's workload."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    INITIAL_SHARE = "LessThanInitialShare"


FlavorResource: TypeAlias = tuple[str, str]

FAIR: Final = (FairStrategy.FINAL_SHARE, FairStrategy.INITIAL_SHARE)


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of a ClusterQueue or cohort for one resource in one flavor; a limit of None is no limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """One flavor of a resource group, with a quota for each resource of the group."""

    flavor: str
    resources: Mapping[str, Quota]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Flavors for the same resources, in the order in which Kueue tries them."""

    flavors: tuple[FlavorQuotas, ...]

    @property
    def covered(self) -> frozenset[str]:
        """The resources that a pod set gets from the same flavor."""
        return frozenset(resource for each in self.flavors for resource in each.resources)


@dataclass(frozen=True, slots=True)
class BorrowWithinCohort:
    """Preemption in other queues while borrowing: workloads of lower priority, up to the priority `threshold`."""

    threshold: int | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    """Which workloads a ClusterQueue's workloads may preempt; `borrow` None is the policy Never."""

    within: Policy = Policy.NEVER
    reclaim: Policy = Policy.NEVER
    borrow: BorrowWithinCohort | None = None


@dataclass(frozen=True, slots=True)
class Fungibility:
    """`flavorFungibility`; by default the search stops at a flavor that needs borrowing, not preemption."""

    when_can_borrow: Fungible = Fungible.STOP
    when_can_preempt: Fungible = Fungible.NEXT
    preference: Preference = Preference.BORROW


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A ClusterQueue with its quotas; without a cohort it neither borrows nor lends."""

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
    """A cohort, with or without quotas of its own; a root has no parent."""

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
    """ClusterQueues and cohorts of a cluster; `fair_sharing` has the preemption strategies, None if it is off.

    A cohort that is only named, by a queue or by another cohort, is a root without quota.
    """

    queues: tuple[ClusterQueue, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    fair_sharing: tuple[FairStrategy, ...] | None = None


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one shape; `requests` are of one pod, `flavors` suit its labels and taints, None for all flavors."""

    requests: Mapping[str, int]
    count: int = 1
    flavors: frozenset[str] | None = None
    name: str = "main"


@dataclass(frozen=True, slots=True)
class Workload:
    """Pod sets that Kueue admits together: all pods or none."""

    name: str
    queue: str
    pod_sets: tuple[PodSet, ...]
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """Workloads that finish, then workloads that are submitted; the scheduler settles after each of them."""

    submit: tuple[Workload, ...] = ()
    finish: tuple[str, ...] = ()


def parents(tenancy: Tenancy) -> dict[str, str | None]:
    """The parent of each cohort, also of cohorts that are only named. Raises ValueError for duplicates and cycles."""
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
    """The tenancy with one cohort of each cycle turned into a root."""
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

    Raises ValueError: a resource in two groups, or a flavor without quota for a resource of its group.
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
"""All pods run in one domain of this topology level, a node label:
https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/.
"""
PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
"""All pods run in one domain of this level if one has room, else in a domain of a higher level."""
GROUP: Final = "kueue.x-k8s.io/podset-group-name"
"""Two pod sets with the same name run in the same domain; one of them has one pod."""
UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"  # on any nodes
