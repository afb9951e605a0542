"""Why a workload waits, in words."""

from collections.abc import Callable
from typing import TypeAlias

from gpu_tenancy.model.admission.pending_queue import PendingQueue
from gpu_tenancy.model.admission.verdicts import Lack, Outcome, Verdict
from gpu_tenancy.model.admission.workload_info import Queue, WorkloadInfo

Amount: TypeAlias = Callable[[str, int], str]
"""How an amount of a resource is written."""


def bare(resource: str, amount: int) -> str:  # noqa: ARG001 - one way to write amounts among others
    """An amount in the unit in which the simulation was given it."""
    return str(amount)


def why(claim: WorkloadInfo, line: PendingQueue, amount: Amount) -> str:
    """The reason as of the last cycle that looked at the workload, or at one of its shape; amounts are those of now."""
    head = line.head
    if line.strict and head is not None and head is not claim:
        return f"waits behind {head.name}, the head of a StrictFIFO queue: {_said(head, amount)}"
    return _said(claim, amount)


def _said(claim: WorkloadInfo, amount: Amount) -> str:
    verdict = claim.verdict
    if verdict is None:
        if claim.evictions:
            return f"was evicted for {claim.evictions[-1].by}, and nobody has looked at it since"
        return "nobody has looked at it yet"
    return _sentence(verdict, claim.queue, amount)


def _sentence(verdict: Verdict, queue: Queue, amount: Amount) -> str:
    match verdict.outcome:
        case Outcome.PREEMPTING:
            return f"waits for {_names(verdict.victims)} to leave"
        case Outcome.OVERTAKEN:
            return "what it needs went to another workload in the same cycle"
        case Outcome.CONTESTED_VICTIMS:
            return f"{_names(verdict.victims)} would have to leave, and another workload was first to say so"
        case Outcome.NO_VICTIMS:
            return f"{_lacks(verdict, queue, amount)}, and whoever holds it may not be preempted for it"
        case Outcome.NO_FIT:
            return _lacks(verdict, queue, amount)
        case Outcome.ADMITTED:
            return "is admitted"


def _lacks(verdict: Verdict, queue: Queue, amount: Amount) -> str:
    lacks = verdict.lacks
    if any(each.short and each.flavor for each in lacks):
        # What it waits for is what it could have.
        lacks = tuple(each for each in lacks if each.short)
    return "; ".join(dict.fromkeys(_lack(each, queue, amount) for each in lacks)) or "it asks for nothing"


def _lack(lack: Lack, queue: Queue, amount: Amount) -> str:
    if not lack.flavor:
        return f"no resource group of the queue covers {lack.resource}"
    if lack.most is None:
        return f"flavor {lack.flavor} does not suit its pods"
    what = f"{lack.resource} of {lack.flavor}"
    if not lack.short:
        asked, most = amount(lack.resource, lack.asked), amount(lack.resource, lack.most)
        return f"{asked} {what} is more than {most}, the most the queue can ever have"
    return f"{amount(lack.resource, _short(lack, queue))} {what} is missing"


def _short(lack: Lack, queue: Queue) -> int:
    """What is missing as things are now: nobody looks again at what is known to find nothing."""
    keys = dict(queue.group_of[lack.resource].flavors)[lack.flavor]
    short = lack.asked - max(0, queue.available(keys[lack.resource]))
    return short if short > 0 else lack.short


def _names(names: tuple[str, ...]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
