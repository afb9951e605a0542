"""Why a workload in a queue of Kueue is pending: the simulation decides, the queue's quota explains."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from gpu_tenancy.inspect.queueing import Offer, QuotaRequest, Refusal, Source
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.unblock import Unblock
from gpu_tenancy.kueue import ClusterQueue, Policy


class Reason(Enum):
    """What blocks a workload."""

    FREE = auto()
    """Nothing: its quota is free."""
    BORROWABLE = auto()
    """Nothing: it can borrow."""
    ABOUT_TO_ADMIT = auto()
    """Nothing: the simulation admits it."""
    ABOUT_TO_PREEMPT = auto()
    """Nothing: the simulation admits it and preempts others."""
    QUEUE_ORDER = auto()
    """Workloads ahead of it in its queue."""
    RECLAIMABLE = auto()
    """Other queues borrow its guarantee, which Kueue reclaims."""
    OTHERS = auto()
    """Other queues use what it needs."""
    BEYOND_GUARANTEE = auto()
    """It needs more than its guarantee, and that is in use."""
    OWN_QUEUE_FULL = auto()
    """Its own queue is at its limit."""
    NEVER = auto()
    """It exceeds what its queue can ever use."""
    SIMULATED = auto()
    """What the simulation reports as its reason."""


_REASONS: Final[dict[Source, Reason]] = {
    Source.NOMINAL: Reason.FREE,
    Source.BORROWED: Reason.BORROWABLE,
    Source.RECLAIMED: Reason.RECLAIMABLE,
    Source.OTHERS: Reason.OTHERS,
    Source.OWN_QUEUE: Reason.OWN_QUEUE_FULL,
    Source.NEVER: Reason.NEVER,
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The reason with its facts.

    Attributes:
        requests: resources of the pod set that is hardest to admit.
        refused: flavors that cannot be used for that pod set.
        borrowers: queues that borrow what is missing.
        lower_only: whether the queue reclaims only from workloads of lower priority.
        unblock: the simulated outcome; None where it could not be simulated, so that the quota alone decides.
    """

    reason: Reason
    requests: tuple[QuotaRequest, ...] = ()
    refused: tuple[Refusal, ...] = ()
    borrowers: tuple[str, ...] = ()
    lower_only: bool = False
    unblock: Unblock | None = None


def diagnose(
    queues: Queues, queue: ClusterQueue, offers: Sequence[Offer], unblock: Unblock | None, *, is_head: bool
) -> Diagnosis:
    """The diagnosis of a pending workload.

    Args:
        queues: of the cluster.
        queue: in which it is pending.
        offers: the queue's quota for each of its pod sets.
        unblock: the simulated outcome; None where it could not be simulated.
        is_head: whether no other workload is ahead of it in its queue.
    """
    hardest = max(offers, key=lambda offer: offer.source)
    requests = tuple(request for request in hardest.requests if request.source is hardest.source)
    return Diagnosis(
        _simulated(hardest.source, requests, unblock) if unblock else _by_quota(hardest.source, is_head=is_head),
        requests,
        hardest.refused,
        _borrowers(queues, queue.name, requests),
        queue.preemption.reclaim is Policy.LOWER,
        unblock,
    )


def _simulated(source: Source, requests: Iterable[QuotaRequest], unblock: Unblock) -> Reason:
    """The reason where the simulation decides, which covers preemption and queue order as well."""
    if unblock.admitted and unblock.gone:
        return Reason.ABOUT_TO_PREEMPT
    if unblock.admitted:
        return _REASONS[source] if source in {Source.NOMINAL, Source.BORROWED} else Reason.ABOUT_TO_ADMIT
    if unblock.behind:
        return Reason.SIMULATED
    if source is Source.OWN_QUEUE:
        return Reason.OWN_QUEUE_FULL
    if source is Source.OTHERS and any(request.borrows for request in requests):
        return Reason.BEYOND_GUARANTEE
    return Reason.SIMULATED


def _by_quota(source: Source, *, is_head: bool) -> Reason:
    reason = _REASONS[source]
    return Reason.QUEUE_ORDER if reason in {Reason.FREE, Reason.BORROWABLE} and not is_head else reason


def _borrowers(queues: Queues, target: str, requests: Iterable[QuotaRequest]) -> tuple[str, ...]:
    amounts = [queues.quotas.borrowers(target, (part.flavor, part.resource)) for part in requests if part.missing]
    return tuple(dict.fromkeys(queue for borrowed in amounts for queue in borrowed))
