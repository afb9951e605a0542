"""Rules of classical preemption and fair sharing: a candidate may be preempted, a target is a chosen candidate.

Rules: pkg/scheduler/preemption of kubernetes-sigs/kueue at v0.19.2.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpu_tenancy.kueue.api import Policy
from gpu_tenancy.kueue.resource_node import Amounts
from gpu_tenancy.kueue.workload_info import Queue, WorkloadInfo


class Reason(StrEnum):
    """Why a workload is preempted: the reason of Kueue's condition `Preempted`."""

    WITHIN_QUEUE = "InClusterQueue"
    RECLAIM = "InCohortReclamation"
    FAIR = "InCohortFairSharing"
    RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


@dataclass(frozen=True, slots=True)
class Target:
    """A workload to preempt."""

    workload: WorkloadInfo
    reason: Reason


@dataclass(frozen=True, slots=True)
class PreemptionContext:
    """The preemptor, its request, and the keys of which every target uses at least one; Kueue's `preemptionCtx`."""

    preemptor: WorkloadInfo
    needs_preemption: frozenset[int]
    amounts: Amounts

    @property
    def queue(self) -> Queue:
        """The preemptor's ClusterQueue."""
        return self.preemptor.queue


def satisfies_policy(policy: Policy, preemptor: WorkloadInfo, candidate: WorkloadInfo) -> bool:
    """Whether a policy other than Never allows a preemption; Kueue's `SatisfiesPreemptionPolicy`."""
    if policy is Policy.ANY:
        return True
    if preemptor.priority > candidate.priority:
        return True
    return (
        policy is Policy.LOWER_OR_NEWER
        and preemptor.priority == candidate.priority
        and preemptor.created < candidate.created
    )


def satisfies_reclaim_policy(policy: Policy, priority: int, candidate: WorkloadInfo) -> bool:
    """Whether `reclaimWithinCohort` lets a preemptor of this priority preempt a candidate of another queue."""
    return policy is Policy.ANY or candidate.priority < priority


def uses_any_of(workload: WorkloadInfo, keys: frozenset[int]) -> bool:
    """Whether an admitted workload uses any of these; Kueue's `WorkloadUsesResources`."""
    return any(key in keys for key, _ in workload.usage)


def candidates_ordering(queue: Queue | None, workload: WorkloadInfo) -> tuple[bool, bool, int, int, int]:
    """Sort key of candidates: evicted ones, other queues, lowest priority, newest reservation; `CandidatesOrdering`.

    Reservations are compared in whole seconds. Within a second Kueue compares random UIDs; here the newest workload is
    first. `queue` is the preemptor's; None if no candidate is in it.
    """
    return (not workload.evicting, workload.queue is queue, workload.priority, -workload.reserved_at, -workload.created)


def same_queue_candidates(context: PreemptionContext) -> list[WorkloadInfo]:
    """Candidates in the preemptor's own ClusterQueue, in preemption order."""
    policy = context.queue.spec.preemption.within
    if policy is Policy.NEVER:
        return []
    candidates = [
        workload
        for workload in context.queue.workloads
        if satisfies_policy(policy, context.preemptor, workload) and uses_any_of(workload, context.needs_preemption)
    ]
    return sorted(candidates, key=lambda workload: candidates_ordering(context.queue, workload))


def exceeds_borrowing_limit(context: PreemptionContext, same_queue: Iterable[WorkloadInfo]) -> bool:
    """Whether the preemptor exceeds the borrowing limit even without all candidates of its queue.

    Then no target in other queues helps; Kueue finds that out by trying.
    """
    queue = context.queue
    if queue.parent is None:
        return False
    return any(
        _exceeds(context, key, amount, limit, same_queue)
        for key, amount in context.amounts
        if (limit := queue.borrowing_limit[key]) is not None
    )


def must_borrow(context: PreemptionContext, same_queue: Iterable[WorkloadInfo]) -> bool:
    """Whether the preemptor borrows even without all candidates of its queue."""
    return any(_exceeds(context, key, amount, 0, same_queue) for key, amount in context.amounts)


def _exceeds(context: PreemptionContext, key: int, amount: int, limit: int, same_queue: Iterable[WorkloadInfo]) -> bool:
    unused = context.queue.subtree_quota[key] + limit - context.queue.usage[key]
    if amount <= unused:
        return False
    preemptible = sum(used for workload in same_queue for used_key, used in workload.usage if used_key == key)
    return amount > unused + preemptible


def fill_back_workloads(targets: list[Target], fits: Callable[[], bool]) -> list[Target]:
    """Adds back targets that are not needed, in reverse order, and returns the others; Kueue's `fillBackWorkloads`.

    `fits` tells whether the preemptor fits in the present state of the tree.
    """
    needed = targets[-1:]
    for target in reversed(targets[:-1]):
        target.workload.queue.add_usage(target.workload.usage)
        if not fits():
            target.workload.queue.remove_usage(target.workload.usage)
            needed.append(target)
    return needed


def restore_snapshot(targets: Iterable[Target]) -> None:
    """Adds the usage of targets back to the tree; Kueue's `restoreSnapshot`."""
    for target in targets:
        target.workload.queue.add_usage(target.workload.usage)
