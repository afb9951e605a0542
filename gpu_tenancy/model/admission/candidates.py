"""Whom a workload may preempt at all, in which order victims are taken, and which are given back."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from gpu_tenancy.model.admission.quota import Asks
from gpu_tenancy.model.admission.spec import Policy
from gpu_tenancy.model.admission.workload_info import Queue, WorkloadInfo


class Reason(StrEnum):
    """Why a victim had to go, as Kueue's condition `Preempted` says it."""

    WITHIN_QUEUE = "InClusterQueue"
    RECLAIM = "InCohortReclamation"
    FAIR = "InCohortFairSharing"
    RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


@dataclass(frozen=True, slots=True)
class Victim:
    """A running workload that would make room."""

    claim: WorkloadInfo
    reason: Reason


@dataclass(frozen=True, slots=True)
class Need:
    """What a workload needs room for.

    Attributes:
        contested: the flavors and resources that do not fit now; only who uses one of them can be a victim.
        asks: all that it would use.
    """

    claim: WorkloadInfo
    contested: frozenset[int]
    asks: Asks

    @property
    def queue(self) -> Queue:
        """Where the workload waits."""
        return self.claim.queue


Fits: TypeAlias = Callable[[], bool]


def permits(policy: Policy, claim: WorkloadInfo, other: WorkloadInfo) -> bool:
    """Whether a policy lets a workload preempt another."""
    if policy is Policy.ANY:
        return True
    if policy is Policy.NEVER:
        return False
    if claim.priority > other.priority:
        return True
    return policy is Policy.LOWER_OR_NEWER and claim.priority == other.priority and claim.born < other.born


def permits_elsewhere(policy: Policy, priority: int, other: WorkloadInfo) -> bool:
    """Whether a policy of reclaim lets a workload of a priority preempt one of another queue."""
    return policy is Policy.ANY or other.priority < priority


def uses(claim: WorkloadInfo, contested: frozenset[int]) -> bool:
    """Whether a running workload uses something of what is contested."""
    return any(key in contested for key, _ in claim.usage)


def order(queue: Queue | None, claim: WorkloadInfo) -> tuple[bool, bool, int, int, int]:
    """Sorts victims: those already evicted, then other queues', the lowest priority, the newest reservation.

    Reservations are compared in whole seconds. Within one, Kueue decides by the workloads' random ids; here the one
    that was created last goes first.
    """
    return (not claim.evicting, claim.queue is queue, claim.priority, -claim.reserved, -claim.born)


def own(need: Need) -> list[WorkloadInfo]:
    """Running workloads of the workload's own queue that it may preempt, in the order of victims."""
    policy = need.queue.spec.preemption.within
    if policy is Policy.NEVER:
        return []
    found = [each for each in need.queue.running if permits(policy, need.claim, each) and uses(each, need.contested)]
    return sorted(found, key=lambda each: order(need.queue, each))


def out_of_reach(need: Need, mine: Iterable[WorkloadInfo]) -> bool:
    """Whether the queue's own limit rules it out, even with every candidate of its own gone: others' going cannot help.

    This only saves the search for what it would not find.
    """
    queue = need.queue
    if queue.parent is None:
        return False
    return any(
        _beyond(need, key, amount, limit, mine)
        for key, amount in need.asks
        if (limit := queue.borrowing[key]) is not None
    )


def out_of_nominal(need: Need, mine: Iterable[WorkloadInfo]) -> bool:
    """Whether the workload would borrow even with every candidate of its own queue gone."""
    return any(_beyond(need, key, amount, 0, mine) for key, amount in need.asks)


def _beyond(need: Need, key: int, amount: int, limit: int, mine: Iterable[WorkloadInfo]) -> bool:
    most = need.queue.subtree[key] + limit - need.queue.used[key]
    if amount <= most:
        return False
    return amount > most + sum(asked for each in mine for at, asked in each.usage if at == key)


def give_back(victims: list[Victim], fits: Fits) -> list[Victim]:
    """Takes back victims that turn out not to be needed, the last taken first; all of them are removed already.

    The very last is the one that made room, so it stays.
    """
    kept = victims[-1:]
    for each in reversed(victims[:-1]):
        each.claim.queue.use(each.claim.usage)
        if not fits():
            each.claim.queue.free(each.claim.usage)
            kept.append(each)
    return kept


def restore(victims: Iterable[Victim]) -> None:
    """Puts back the usage of those that were removed to try."""
    for each in victims:
        each.claim.queue.use(each.claim.usage)
