"""Why a workload in a queue of Kueue is pending: the simulation decides, the queue's quota explains."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpu_tenancy.inspect.pods import named
from gpu_tenancy.inspect.queueing import Offer, QuotaRequest, Refusal, Source
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
        return _by_simulation(queue.name, hardest.source, requests, unblock)
    if hardest.source in _NOT_ADMITTED and not is_head:
        return "other workloads are ahead of it in its queue", "wait, or set a higher priority class"
    if hardest.source is Source.NEVER:
        return _never(queue.name, requests, hardest.refused)
    return _by_quota(queues, queue, hardest.source, requests)


def _never(queue: str, requests: Sequence[QuotaRequest], refused: Sequence[Refusal]) -> Reason:
    if not requests:
        first = next((refusal for refusal in refused if refusal.decisive), refused[0])
        return f"queue {queue} can never admit it: {first.text}", first.fix or "request a resource that the queue has"
    first = requests[0]
    if not first.limit:
        return f"queue {queue} has no {first.noun}", "request a resource that the queue has"
    amounts = f"{first.text_of(first.requested)} {first.noun} requested, limit {first.text_of(first.limit)}"
    fix = f"request at most {first.text_of(first.limit)}, or raise the limit of the team"
    return f"queue {queue} can never admit it: {amounts}", fix


def _by_simulation(queue: str, source: Source, requests: Sequence[QuotaRequest], unblock: Unblock) -> Reason:
    if unblock.admitted and unblock.preempted:
        return f"Kueue is about to admit it and to preempt {named(unblock.preempted)}", "no action needed"
    if unblock.admitted:
        return _NOT_ADMITTED.get(source, "Kueue is about to admit it"), CHECK_CONTROLLER
    if unblock.queue_head:
        return f"queue {queue} is StrictFIFO, and {unblock.queue_head} is ahead of it", unblock.fix
    if source is Source.OWN_QUEUE:
        return _at_limit(queue, requests), f"{unblock.fix}; or raise the limit of the team"
    if source is Source.OTHERS and any(request.borrows for request in requests):
        return _cannot_borrow(queue, requests), f"{unblock.fix}; or request less, or raise the guarantee"
    return f"other workloads get the quota first: {unblock.reason}", unblock.fix


def _by_quota(queues: Queues, queue: ClusterQueue, source: Source, requests: Sequence[QuotaRequest]) -> Reason:
    who = named(_borrowers(queues, queue.name, requests)) or "other queues"
    match source:
        case Source.RECLAIMED:
            reason = f"others borrow guaranteed quota of queue {queue.name}: {_missing(requests)}"
            if queue.preemption.reclaim is Policy.LOWER:
                only = "Kueue reclaims it only from workloads of lower priority"
                return reason, f"{only}; otherwise wait for {who} to release it"
            return reason, f"no action needed: Kueue reclaims it from {who}"
        case Source.OTHERS:
            fix = f"wait for {who} to release it, request less, or raise the guarantee"
            return _cannot_borrow(queue.name, requests), fix
        case Source.OWN_QUEUE:
            fix = "wait for workloads of the queue to end, end some of them, or raise the limit of the team"
            return _at_limit(queue.name, requests), fix
        case _:
            return _NOT_ADMITTED[source], CHECK_CONTROLLER


def _at_limit(queue: str, requests: Sequence[QuotaRequest]) -> str:
    first = requests[0]
    state = "is at its limit" if first.used >= first.limit else "would exceed its limit"
    return f"queue {queue} {state}: {first.state}"


def _cannot_borrow(queue: str, requests: Sequence[QuotaRequest]) -> str:
    first = next((request for request in requests if request.missing), requests[0])
    used, nominal = first.text_of(first.used), first.text_of(first.nominal)
    missing = f"{first.text_of(first.missing)} of {first.text_of(first.requested)} {first.noun} missing"
    return f"queue {queue} cannot borrow enough: {missing} ({used} in use, {nominal} guaranteed)"


def _missing(requests: Iterable[QuotaRequest]) -> str:
    """`8 a100 GPUs`, for the first resource that is missing."""
    return next((f"{request.text_of(request.missing)} {request.noun}" for request in requests if request.missing), "")


def _borrowers(queues: Queues, target: str, requests: Iterable[QuotaRequest]) -> tuple[str, ...]:
    amounts = [queues.quotas.borrowers(target, (part.flavor, part.resource)) for part in requests if part.missing]
    return tuple(dict.fromkeys(queue for borrowed in amounts for queue in borrowed))
