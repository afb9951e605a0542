"""Why a workload is pending, in Kueue's own words where it has some.

Source: pkg/scheduler and pkg/scheduler/flavorassigner of kubernetes-sigs/kueue at v0.19.2.
"""

from collections.abc import Callable
from typing import TypeAlias

from gpu_tenancy.kueue.pending_queue import PendingQueue
from gpu_tenancy.kueue.workload_info import FlavorReason, Outcome, Queue, Verdict, WorkloadInfo

FormatAmount: TypeAlias = Callable[[str, int], str]
"""Formats an amount of a resource."""


def plain_amount(resource: str, amount: int) -> str:  # noqa: ARG001 - the signature of `FormatAmount`
    """An amount in the unit of the tenancy."""
    return str(amount)


def pending_reason(workload: WorkloadInfo, pending_queue: PendingQueue, format_amount: FormatAmount) -> str:
    """The reason of the last cycle that evaluated the workload or an equivalent one, with the present amounts."""
    head = pending_queue.head
    if pending_queue.strict_fifo and head is not None and head is not workload:
        reason = _reason(head, pending_queue.verdict(head), format_amount)
        return f"behind {head.name}, the head of a StrictFIFO queue: {reason}"
    return _reason(workload, pending_queue.verdict(workload), format_amount)


def _reason(workload: WorkloadInfo, verdict: Verdict | None, format_amount: FormatAmount) -> str:
    if verdict is None:
        if workload.evictions:
            return f"evicted for {workload.evictions[-1].by} and not evaluated since"
        return "not evaluated yet"
    return _outcome_message(verdict, workload.queue, format_amount)


def _outcome_message(verdict: Verdict, queue: Queue, format_amount: FormatAmount) -> str:
    match verdict.outcome:
        case Outcome.PREEMPTING:
            return f"pending the preemption of {_names(verdict.targets)}"
        case Outcome.NO_LONGER_FITS:
            return "no longer fits after processing another workload in the same cycle"
        case Outcome.OVERLAPPING_TARGETS:
            return f"overlapping preemption targets with another workload: {_names(verdict.targets)}"
        case Outcome.NO_CANDIDATES:
            return f"{_flavor_messages(verdict, queue, format_amount)}; no workload may be preempted for it"
        case Outcome.NO_FIT:
            return _flavor_messages(verdict, queue, format_amount)
        case Outcome.ADMITTED:
            return "admitted"


def _flavor_messages(verdict: Verdict, queue: Queue, format_amount: FormatAmount) -> str:
    # A flavor that does not match the pods is named only if there is no other reason.
    reasons = tuple(reason for reason in verdict.reasons if reason.maximum is not None or not reason.flavor)
    reasons = reasons or verdict.reasons
    if any(reason.missing and reason.flavor for reason in reasons):
        # The workload waits for the flavors that it could get.
        reasons = tuple(reason for reason in reasons if reason.missing)
    messages = dict.fromkeys(_flavor_message(reason, queue, format_amount) for reason in reasons)
    return "; ".join(messages) or "no resources requested"


def _flavor_message(reason: FlavorReason, queue: Queue, format_amount: FormatAmount) -> str:
    if not reason.flavor:
        return f"resource {reason.resource} unavailable in ClusterQueue"
    if reason.maximum is None:
        return f"flavor {reason.flavor} does not match the pods"
    quota = f"{reason.resource} in flavor {reason.flavor}"
    if not reason.missing:
        requested = format_amount(reason.resource, reason.requested)
        maximum = format_amount(reason.resource, reason.maximum)
        return f"insufficient quota for {quota}, request > maximum capacity ({requested} > {maximum})"
    missing = format_amount(reason.resource, _missing(reason, queue))
    return f"insufficient unused quota for {quota}, {missing} more needed"


def _missing(reason: FlavorReason, queue: Queue) -> int:
    """What is missing now: other workloads may have been admitted since the last evaluation."""
    keys = dict(queue.group_of[reason.resource].flavors)[reason.flavor]
    missing = reason.requested - max(0, queue.available(keys[reason.resource]))
    return missing if missing > 0 else reason.missing


def _names(names: tuple[str, ...]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
