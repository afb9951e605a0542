"""Why a workload in a queue of Kueue is pending: the simulation decides, the queue's quota explains."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.inspect.pods import named
from gpu_tenancy.inspect.queueing import STATE_PLACE, Offer, QuotaRequest, Source, unstated_text
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.unblock import Unblock
from gpu_tenancy.inspect.workloads import Reason
from gpu_tenancy.kueue import ClusterQueue, Policy

CHECK_CONTROLLER: Final = "if this persists, check the Kueue controller"
_NOT_ADMITTED: Final = {
    Source.NOMINAL: "quota is free but the workload is not admitted",
    Source.BORROWED: "quota can be borrowed but the workload is not admitted",
}


def diagnose(
    queues: Queues, queue: ClusterQueue, offers: Sequence[Offer], unblock: Unblock | None, *, is_head: bool
) -> Reason:
    """Why a workload is pending.

    Args:
        queues: of the cluster.
        queue: in which it is pending.
        offers: the queue's quota for each of its pod sets.
        unblock: the simulated outcome, which covers preemption and queue order as well; None where it could not be
            simulated, so that the quota alone decides.
        is_head: whether no other workload is ahead of it in its queue.
    """
    hardest = max(offers, key=lambda offer: offer.source)
    requests = tuple(request for request in hardest.requests if request.source is hardest.source)
    if unblock:
        return _by_simulation(hardest.source, requests, unblock)
    if hardest.source in _NOT_ADMITTED and not is_head:
        return "other workloads are ahead of it in its queue", "wait, or set a higher priority class"
    if hardest.source is Source.NEVER:
        if unstated := unstated_text(hardest.refused):
            return f"its queue can never admit it: {unstated}", STATE_PLACE
        why = "; ".join([request.text for request in requests] or [refusal.text for refusal in hardest.refused])
        return f"its queue can never admit it: {why}", "request less, request another flavor, or raise the limit"
    return _by_quota(queues, queue, hardest.source, requests)


def _by_simulation(source: Source, requests: Iterable[QuotaRequest], unblock: Unblock) -> Reason:
    if unblock.admitted and unblock.preempted:
        return f"Kueue is about to admit it and to preempt {named(unblock.preempted)}", "no action needed"
    if unblock.admitted:
        return _NOT_ADMITTED.get(source, "Kueue is about to admit it"), CHECK_CONTROLLER
    if not unblock.queue_head and source is Source.OWN_QUEUE:
        return _own_queue_full(requests), f"{unblock.fix}; or end some of them, or raise the limit"
    if not unblock.queue_head and source is Source.OTHERS and any(request.borrows for request in requests):
        reason = f"the quota it needs beyond its guarantee is in use: {_missing(requests)}"
        return reason, f"{unblock.fix}; or request less, or raise the guarantee"
    return f"pending: {unblock.reason}", unblock.fix


def _by_quota(queues: Queues, queue: ClusterQueue, source: Source, requests: Sequence[QuotaRequest]) -> Reason:
    who = named(_borrowers(queues, queue.name, requests)) or "other queues"
    match source:
        case Source.RECLAIMED:
            reason = f"other queues borrow its guaranteed quota: {_missing(requests)}"
            if queue.preemption.reclaim is Policy.LOWER:
                only = "Kueue reclaims it only from workloads of lower priority"
                return reason, f"{only}; otherwise wait for {who} to release it"
            return reason, f"no action needed: Kueue reclaims it from {who}"
        case Source.OTHERS:
            reason = f"it needs quota beyond its guarantee that other queues use: {_missing(requests)}"
            return reason, f"wait for {who} to release it, request less, or raise the guarantee"
        case Source.OWN_QUEUE:
            fix = "wait for workloads of its own queue to end, end some of them, or raise the limit"
            return _own_queue_full(requests), fix
        case _:
            return _NOT_ADMITTED[source], CHECK_CONTROLLER


def _own_queue_full(requests: Iterable[QuotaRequest]) -> str:
    return f"its own queue uses all that it may use: {_missing(requests)} missing"


def _missing(requests: Iterable[QuotaRequest]) -> str:
    """`8 nvidia.com/gpu of a100`, for each resource that is missing."""
    return ", ".join(
        f"{amount_text(request.resource, request.missing)} {request.resource} of {request.flavor}"
        for request in requests
        if request.missing
    )


def _borrowers(queues: Queues, target: str, requests: Iterable[QuotaRequest]) -> tuple[str, ...]:
    amounts = [queues.quotas.borrowers(target, (part.flavor, part.resource)) for part in requests if part.missing]
    return tuple(dict.fromkeys(queue for borrowed in amounts for queue in borrowed))
