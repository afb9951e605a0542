"""Why a workload is pending or was preempted: the simulation decides, quota and controllers' messages explain."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from gpu_tenancy.base.json import int_at, text_at
from gpu_tenancy.base.quantity import amount_text, is_extended
from gpu_tenancy.cluster.demand import Target
from gpu_tenancy.cluster.gangs import messages
from gpu_tenancy.cluster.pods import name_of, named
from gpu_tenancy.cluster.queueing import Offer, QuotaRequest, Refusal, Source
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.cluster.workloads import Reason, Workload, at_most
from gpu_tenancy.explain.coverage import uncovered
from gpu_tenancy.explain.running import Why, rejected_pods
from gpu_tenancy.explain.unblock import Unblock
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.kueue import ClusterQueue, FlavorResource, Policy, by_time, preemptors
from gpu_tenancy.model.names import DEFAULT_GRACE

CHECK_CONTROLLER: Final = "if this persists, check the Kueue controller"
_NOT_ADMITTED: Final = {
    Source.NOMINAL: "quota is free but the workload is not admitted",
    Source.BORROWED: "quota can be borrowed but the workload is not admitted",
}


def diagnose(
    queues: Queues, queue: ClusterQueue, offers: Sequence[Offer], unblock: Unblock | None, *, is_head: bool
) -> Reason:
    """Why a workload with these offers of quota is pending; `is_head` if no other workload is ahead.

    The simulated outcome covers preemption and queue order. Without it, the quota alone decides.
    """
    hardest = max(offers, key=lambda offer: offer.source)
    requests = tuple(request for request in hardest.requests if request.source is hardest.source)
    if not (unblock and (unblock.admitted or unblock.queue_head)) and (bound := uncovered(queues, queue, offers)):
        return f"pending: {bound[0]}", bound[1]
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
    return f"queue {queue} can never admit it: {amounts}", at_most(first.text_of(first.limit))


def _by_simulation(queue: str, source: Source, requests: Sequence[QuotaRequest], unblock: Unblock) -> Reason:
    if unblock.admitted and unblock.preempted:
        return f"Kueue is about to admit it and to preempt {named(unblock.preempted)}", "no action needed"
    if unblock.admitted:
        return _NOT_ADMITTED.get(source, "Kueue is about to admit it"), CHECK_CONTROLLER
    if unblock.queue_head:
        return f"queue {queue} is StrictFIFO, and {unblock.queue_head} is ahead of it", unblock.fix
    if source is Source.OWN_QUEUE:
        return _at_limit(queue, requests), f"{unblock.fix}; or {at_most('')}"
    if source is Source.OTHERS and any(request.borrows for request in requests):
        return _cannot_borrow(queue, requests), f"{unblock.fix}; or request less, or {at_most('', 'guarantee')}"
    return f"other workloads get the quota first: {unblock.reason}", unblock.fix


def _by_quota(queues: Queues, queue: ClusterQueue, source: Source, requests: Sequence[QuotaRequest]) -> Reason:
    missing = [request for request in requests if request.missing]
    borrowed = (queues.quotas.borrowers(queue.name, (part.flavor, part.resource)) for part in missing)
    who = named(list(dict.fromkeys(name for amounts in borrowed for name in amounts))) or "other queues"
    match source:
        case Source.RECLAIMED:
            amount = f"{missing[0].text_of(missing[0].missing)} {missing[0].noun}" if missing else ""
            reason = f"others borrow guaranteed quota of queue {queue.name}: {amount}"
            if queue.preemption.reclaim is Policy.LOWER:
                only = "Kueue reclaims it only from workloads of lower priority"
                return reason, f"{only}; otherwise wait for {who} to release it"
            return reason, f"no action needed: Kueue reclaims it from {who}"
        case Source.OTHERS:
            fix = f"wait for {who} to release it, request less, or {at_most('', 'guarantee')}"
            return _cannot_borrow(queue.name, requests), fix
        case Source.OWN_QUEUE:
            fix = f"wait for workloads of the queue to end, end some of them, or {at_most('')}"
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


_PREEMPTED: Final = "; can be preempted by queue"


def borrowed_lines(queues: Queues, workload: Workload) -> Iterator[str]:
    """Borrowed GPUs of an admitted workload's queue, queues that can preempt it, and grace period in seconds."""
    graces = [int_at(pods.spec, "terminationGracePeriodSeconds", otherwise=DEFAULT_GRACE) for pods in workload.sets]
    grace = max(graces, default=DEFAULT_GRACE)
    for text in borrowings(queues, workload.holder, [line for line, amount in workload.held.items() if amount]):
        yield f"{text}; its pods then have {grace} s to stop" if _PREEMPTED in text else text


def borrowings(queues: Queues, name: str, lines: Iterable[FlavorResource]) -> Iterator[str]:
    """Borrowed GPUs of a queue, and queues that can preempt its workloads for them.

    Kueue preempts whole workloads of a borrowing queue, whichever of them use borrowed quota, and has no minimum
    runtime:
    https://github.com/kubernetes-sigs/kueue/pull/12791, open on 2026-11-24.
    """
    if name not in queues.cluster_queues:
        return
    for line in lines:
        flavor, resource = line
        if not (is_extended(resource) and (borrowed := queues.quotas.borrowed(name, line))):
            continue
        used = amount_text(resource, queues.quotas.usage(name, line))
        what = f"queue {name} borrows {amount_text(resource, borrowed)} of its {used} {flavor} {resource}"
        takers = [f"{named(found)} {when}" for when, found in by_time(preemptors(queues.quotas, name, line)).items()]
        yield f"{what}{_PREEMPTED} {', '.join(takers)}" if takers else f"{what}; no queue reclaims it"


# Kueue's message about the preemptor: `preemptionMessage` in
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go
_PREEMPTOR: Final = re.compile(r"workload \(UID: ([^,)]+),.*preemptor path: \S*/([^/;\s]+);")
_CAUSES: Final = {
    "InClusterQueue": "which has a higher priority in the same queue",
    "InCohortReclamation": "which reclaims its guaranteed quota",
    "InCohortFairSharing": "by fair sharing",
    "InCohortReclaimWhileBorrowing": "which has a higher priority and borrows",
}


def messages_of(target: Target, state: State) -> Iterator[str]:
    """Conditions of Workloads and PodGroups, the scheduler's messages about pods, and refused creations."""
    for workload in target.workloads:
        for kind in ("QuotaReserved", "Evicted", "Admitted"):
            current = condition(workload.manifest, kind)
            blocks = text_at(current, "status") == ("True" if kind == "Evicted" else "False")
            if current and blocks and text_at(current, "message"):
                yield f"Kueue condition {kind} ({text_at(current, 'reason')}): {text_at(current, 'message')}"
    for group in target.groups:
        yield from messages(group)
    for pod in target.pods:
        placed = condition(pod, "PodScheduled")
        if text_at(placed, "status") == "False" and text_at(placed, "message"):
            yield f"pod {name_of(pod)}: {text_at(placed, 'message')}"
    yield from (f"refused: {message}" for message in rejected_pods(target, state))


def after_preemption(found: Why, workload: Workload, queues: Queues) -> Why:
    """Adds the preemptor of a preempted workload, or the preemptor's queue if the user may not read the preemptor."""
    evicted = condition(workload.manifest, "Evicted")
    if not found.waits or text_at(evicted, "status") != "True" or text_at(evicted, "reason") != "Preempted":
        return found
    words = _PREEMPTOR.search(text_at(evicted, "message"))
    uid, queue = words.groups() if words else ("", "")
    label = next((each.label for each in queues.workloads if text_at(each.manifest, "metadata", "uid") == uid), "")
    who = label or (f"a workload of queue {queue}" if queue else "another workload")
    cause = _CAUSES.get(text_at(condition(workload.manifest, "Preempted"), "reason"), "")
    return replace(found, reason=f"preempted by {who}{f', {cause}' if cause else ''}; now {found.reason}")
