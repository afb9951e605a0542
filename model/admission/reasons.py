"""Why a workload waits, in words."""

from model.admission.claims import Claim
from model.admission.queues import Line
from model.admission.verdicts import Lack, Outcome, Verdict


def why(claim: Claim, line: Line) -> str:
    """The reason as of the last cycle that looked at the workload, or at one of its shape."""
    head = line.head
    if line.strict and head is not None and head is not claim:
        return f"waits behind {head.name}, the head of a StrictFIFO queue: {_said(head)}"
    return _said(claim)


def _said(claim: Claim) -> str:
    verdict = claim.verdict
    if verdict is None:
        if claim.evictions:
            return f"was evicted for {claim.evictions[-1].by}, and nobody has looked at it since"
        return "nobody has looked at it yet"
    return _sentence(verdict)


def _sentence(verdict: Verdict) -> str:
    match verdict.outcome:
        case Outcome.PREEMPTING:
            return f"waits for {_names(verdict.victims)} to leave"
        case Outcome.OVERTAKEN:
            return "what it needs went to another workload in the same cycle"
        case Outcome.CONTESTED_VICTIMS:
            return f"{_names(verdict.victims)} would have to leave, and another workload was first to say so"
        case Outcome.NO_VICTIMS:
            return f"{_lacks(verdict)}, and whoever holds it may not be preempted for it"
        case Outcome.NO_FIT:
            return _lacks(verdict)
        case Outcome.ADMITTED:
            return "is admitted"


def _lacks(verdict: Verdict) -> str:
    return "; ".join(dict.fromkeys(_lack(each) for each in verdict.lacks)) or "it asks for nothing"


def _lack(lack: Lack) -> str:
    if not lack.flavor:
        return f"no resource group of the queue covers {lack.resource}"
    if lack.most is None:
        return f"flavor {lack.flavor} does not suit its pods"
    if not lack.short:
        return (
            f"{lack.asked} {lack.resource} of {lack.flavor} is more than {lack.most}, the most the queue can ever have"
        )
    return f"{lack.short} {lack.resource} of {lack.flavor} is missing"


def _names(names: tuple[str, ...]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
