"""Why an object with a Workload of Kueue is pending: quota, queue order, an admission check, or the nodes."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.base.quantity import CHANNELS, add
from gpu_tenancy.inspect import narrative
from gpu_tenancy.inspect.channels import claim_pending
from gpu_tenancy.inspect.cluster_queues import ClusterQueue
from gpu_tenancy.inspect.diagnosis import diagnose
from gpu_tenancy.inspect.queueing import VERDICTS, Offer, QuotaRequest, Source, judge_queue
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.running import running
from gpu_tenancy.inspect.snapshot import NotSimulated
from gpu_tenancy.inspect.target import Target
from gpu_tenancy.inspect.unblock import Unblock, find_unblock
from gpu_tenancy.inspect.verdicts import Why
from gpu_tenancy.inspect.workloads import HeldBackBy, Workload, ahead
from gpu_tenancy.kube.waiting import condition

_NO_ROOM: Final = re.compile(r'topology "[^"]*" (doesn\'t allow|allows) to fit')


def queued(target: Target, queues: Queues, workload: Workload) -> Why:
    """Follows a Workload to the stage that it has reached."""
    place = narrative.workload_place(workload.name, workload.queue, queues.queue_of(workload), workload.priority)
    lines = [place, *_conditions(workload)]
    match workload.stage:
        case "finished":
            return Why(target.title, tuple(lines), narrative.ended(), "", waits=False)
        case "switched off":
            fix = narrative.activate(workload.namespace, workload.name)
            return Why(target.title, tuple(lines), narrative.INACTIVE, fix)
        case "checked":
            return _checked(target, workload, lines)
        case "admitted":
            if worker := text_at(workload.manifest, "status", "clusterName"):
                return Why(target.title, tuple(lines), *narrative.in_worker(worker), waits=False)
            return running(target, queues.state, tuple(lines))
        case "waiting":
            return _pending(target, queues, workload, lines)


def _conditions(workload: Workload) -> Iterator[str]:
    """Conditions of the Workload that explain why it is not admitted."""
    for kind in ("QuotaReserved", "Evicted", "Admitted"):
        current = condition(workload.manifest, kind)
        blocks = text_at(current, "status") == ("True" if kind == "Evicted" else "False")
        if current and blocks and text_at(current, "message"):
            yield narrative.condition_text(kind, text_at(current, "reason"), text_at(current, "message"))


def _checked(target: Target, workload: Workload, lines: list[str]) -> Why:
    """Quota is reserved, and admission checks are not ready."""
    states = maps_at(workload.manifest, "status", "admissionChecks")
    checks = [check for check in states if text_at(check, "state") != "Ready"]
    lines += (narrative.check_text(*(text_at(check, key) for key in ("name", "state", "message"))) for check in checks)
    names = [text_at(check, "name") for check in checks]
    workers = at(workload.manifest, "status", "nominatedClusterNames")
    if isinstance(workers, list) and workers:
        lines.append(narrative.nominated(workers))
    return Why(target.title, tuple(lines), *narrative.checks_pending(names, workload.total))


def _pending(target: Target, queues: Queues, workload: Workload, lines: list[str]) -> Why:
    """No quota is reserved."""
    state, name = queues.state, queues.queue_of(workload)
    own = queues.homes.get(workload.namespace, {})
    if workload.queue not in own and state.knows("LocalQueue"):
        reason = narrative.no_local_queue(workload.queue, workload.namespace)
        return Why(target.title, tuple(lines), reason, narrative.known_queues(workload.queue, own))
    first = ahead(workload, queues.members.get(name, ()))
    requested = add(*(other.total for other in first))
    labels = [other.label for other in first]
    lines.append(narrative.queue_position(labels, requested, complete=state.knows("Workload")))
    if not state.knows("ClusterQueue"):
        lines += [narrative.missing_text(missing) for missing in state.refused("ClusterQueue", "Workload")]
        fix = narrative.ask(state.missing["ClusterQueue"])
        return Why(target.title, tuple(lines), narrative.QUOTA_UNREADABLE, fix)
    queue = queues.cluster_queues.get(name)
    if queue is None:
        reason = narrative.no_cluster_queue(workload.queue, name)
        return Why(target.title, tuple(lines), reason, narrative.CREATE_CLUSTER_QUEUE)
    if blocked := _not_considered(queues, queue, workload):
        return Why(target.title, tuple(lines), *blocked)
    offers = judge_queue(queues.quotas, queue.spec, state.of("ResourceFlavor"), workload.sets)
    if message := _no_room_together(workload, offers):
        return Why(target.title, tuple(lines), *narrative.no_room_together(message))
    if first and queue.strict:
        lines.append(narrative.STRICT_FIFO)
    # What exceeds the queue's limit needs no simulation: no end of another workload changes that.
    exceeds = any(offer.source is Source.NEVER for offer in offers)
    simulated = None if exceeds else find_unblock(queues, workload)
    unblock = simulated if isinstance(simulated, Unblock) else None
    lines += _quota_lines(queues, name, offers, unblock)
    if unblock:
        lines += narrative.unblock_lines(unblock)
    elif isinstance(simulated, NotSimulated):
        lines.append(narrative.not_simulated(simulated))
    diagnosis = diagnose(queues, queue.spec, offers, unblock, is_head=not first)
    return Why(target.title, tuple(lines), *narrative.diagnosis_text(diagnosis), unblock=unblock)


def _no_room_together(workload: Workload, offers: Sequence[Offer]) -> str:
    """Kueue's message where there is quota for a workload, but no part of a topology with room; empty otherwise.

    `notFitMessage` in https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/tas_flavor_snapshot.go
    """
    message = text_at(condition(workload.manifest, "QuotaReserved"), "message")
    free = all(VERDICTS[offer.source] == "now" for offer in offers)
    return message if free and _NO_ROOM.search(message) else ""


def _quota_lines(queues: Queues, name: str, offers: Sequence[Offer], unblock: Unblock | None) -> Iterator[str]:
    """The quota of the queue, without when it fits where the simulation disagrees."""
    requests = [request for offer in offers for request in offer.requests]
    fits = all(VERDICTS[offer.source] == "now" for offer in offers)
    agree = unblock is None or (unblock.admitted and not unblock.gone and fits)
    text = narrative.request_text if agree else narrative.request_numbers
    yield from dict.fromkeys(text(request) for request in _relevant(requests))
    refused = (refusal for offer in offers if offer.source is Source.NEVER for refusal in offer.refused)
    yield from dict.fromkeys(narrative.refusal_text(refusal) for refusal in refused)
    for request in requests:
        borrowed = queues.quotas.borrowers(name, (request.flavor, request.resource))
        if request.source in {Source.RECLAIMED, Source.OTHERS} and borrowed:
            yield narrative.borrowers(request, borrowed)


def _relevant(requests: list[QuotaRequest]) -> list[QuotaRequest]:
    """The resources that block the workload; all of them where none does, but not channels, which are no limit."""
    blocking = [request for request in requests if VERDICTS[request.source] != "now"]
    return blocking or [request for request in requests if request.resource != CHANNELS]


def _not_considered(queues: Queues, queue: ClusterQueue, workload: Workload) -> tuple[str, str] | None:
    """Reason and fix where Kueue does not consider the workload, however much quota is free."""
    if closed := queues.closed(workload.namespace, workload.queue, queue):
        return narrative.closed_text(closed), narrative.closed_fix(closed)
    if claiming := claim_pending(workload):
        return claiming
    if held := workload.held_back:
        backoff = held.cause is HeldBackBy.BACKOFF
        return narrative.held_back_text(held), narrative.WAIT_UNTIL_THEN if backoff else narrative.FIX_THIS
    return None
