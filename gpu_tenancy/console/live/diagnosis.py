"""Why a workload in a queue of Kueue is pending, from its quota or from the simulation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from gpu_tenancy.console.live.queueing import ORDER, Leave, Refusal, Share, Taken
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.tree import ClusterQueue
from gpu_tenancy.console.live.unblock import Unblock
from gpu_tenancy.console.live.workloads import Workload


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


_REASONS: Final[dict[Leave, Reason]] = {
    "own": Reason.FREE,
    "borrowing": Reason.BORROWABLE,
    "reclaiming": Reason.RECLAIMABLE,
    "others": Reason.OTHERS,
    "own end": Reason.OWN_QUEUE_FULL,
    "never": Reason.NEVER,
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The reason with its facts.

    Attributes:
        shares: resources of the pod set that is hardest to admit.
        refused: flavors that cannot be used for that pod set.
        lenders: queues that borrow what is missing.
        lower_only: whether the queue reclaims only from workloads of lower priority.
        unblock: what the simulation reports, where there was one.
    """

    reason: Reason
    shares: tuple[Share, ...] = ()
    refused: tuple[Refusal, ...] = ()
    lenders: tuple[str, ...] = ()
    lower_only: bool = False
    unblock: Unblock | None = None


def by_arithmetic(queues: Queues, queue: ClusterQueue, taken: Sequence[Taken], ahead: Sequence[Workload]) -> Diagnosis:
    """The diagnosis from what the queues are guaranteed and use."""
    hardest, shares = _hardest(taken)
    reason = _REASONS[hardest.leave]
    if reason in {Reason.FREE, Reason.BORROWABLE} and ahead:
        reason = Reason.QUEUE_ORDER
    return Diagnosis(reason, shares, hardest.refused, _lenders(queues, queue.name, shares), queue.meekly)


def by_simulation(taken: Sequence[Taken], unblock: Unblock) -> Diagnosis:
    """The diagnosis from the simulation, which covers preemption and queue order as well."""
    hardest, shares = _hardest(taken)
    if unblock.admitted and unblock.gone:
        reason = Reason.ABOUT_TO_PREEMPT
    elif unblock.admitted:
        reason = _REASONS[hardest.leave] if hardest.leave in {"own", "borrowing"} else Reason.ABOUT_TO_ADMIT
    elif unblock.behind:
        reason = Reason.SIMULATED
    elif hardest.leave == "own end":
        reason = Reason.OWN_QUEUE_FULL
    elif hardest.leave == "others" and any(share.used + share.asked > share.nominal for share in shares):
        reason = Reason.BEYOND_GUARANTEE
    else:
        reason = Reason.SIMULATED
    return Diagnosis(reason, shares, hardest.refused, unblock=unblock)


def _hardest(taken: Sequence[Taken]) -> tuple[Taken, tuple[Share, ...]]:
    """The pod set that is hardest to admit, and the resources that make it so."""
    hardest = max(taken, key=lambda pod_set: ORDER.index(pod_set.leave))
    return hardest, tuple(share for share in hardest.shares if share.leave == hardest.leave)


def _lenders(queues: Queues, target: str, shares: Iterable[Share]) -> tuple[str, ...]:
    borrowers = [queues.tree.borrowers(target, (share.flavor, share.resource)) for share in shares if share.lacking]
    return tuple(dict.fromkeys(queue for amounts in borrowers for queue in amounts))
