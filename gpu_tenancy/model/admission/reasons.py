"""Why a workload is pending, in Kueue's own words where it has some.

Source: pkg/scheduler and pkg/scheduler/flavorassigner of kubernetes-sigs/kueue at v0.19.2.
"""

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
        return f"behind {head.name}, the head of a StrictFIFO queue: {_reason(head, amount)}"
    return _reason(claim, amount)


def _reason(claim: WorkloadInfo, amount: Amount) -> str:
    verdict = claim.verdict
    if verdict is None:
        if claim.evictions:
            return f"evicted for {claim.evictions[-1].by} and not evaluated since"
        return "not evaluated yet"
    return _sentence(verdict, claim.queue, amount)


def _sentence(verdict: Verdict, queue: Queue, amount: Amount) -> str:
    match verdict.outcome:
        case Outcome.PREEMPTING:
            return f"pending the preemption of {_names(verdict.victims)}"
        case Outcome.OVERTAKEN:
            return "no longer fits after processing another workload in the same cycle"
        case Outcome.CONTESTED_VICTIMS:
            return f"overlapping preemption targets with another workload: {_names(verdict.victims)}"
        case Outcome.NO_VICTIMS:
            return f"{_lacks(verdict, queue, amount)}; no workload may be preempted for it"
        case Outcome.NO_FIT:
            return _lacks(verdict, queue, amount)
        case Outcome.ADMITTED:
            return "admitted"


def _lacks(verdict: Verdict, queue: Queue, amount: Amount) -> str:
    # A flavor that the pods exclude is named only if there is no other reason.
    lacks = tuple(each for each in verdict.lacks if each.most is not None or not each.flavor) or verdict.lacks
    if any(each.short and each.flavor for each in lacks):
        # What it waits for is what it could have.
        lacks = tuple(each for each in lacks if each.short)
    return "; ".join(dict.fromkeys(_lack(each, queue, amount) for each in lacks)) or "no resources requested"


def _lack(lack: Lack, queue: Queue, amount: Amount) -> str:
    if not lack.flavor:
        return f"resource {lack.resource} unavailable in ClusterQueue"
    if lack.most is None:
        return f"flavor {lack.flavor} does not match the pods"
    quota = f"{lack.resource} in flavor {lack.flavor}"
    if not lack.short:
        asked, most = amount(lack.resource, lack.asked), amount(lack.resource, lack.most)
        return f"insufficient quota for {quota}, request > maximum capacity ({asked} > {most})"
    return f"insufficient unused quota for {quota}, {amount(lack.resource, _short(lack, queue))} more needed"


def _short(lack: Lack, queue: Queue) -> int:
    """What is missing now: others may have been admitted since the last evaluation."""
    keys = dict(queue.group_of[lack.resource].flavors)[lack.flavor]
    short = lack.asked - max(0, queue.available(keys[lack.resource]))
    return short if short > 0 else lack.short


def _names(names: tuple[str, ...]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
