"""Why an object with a Workload of Kueue is pending: quota, queue order, an admission check, or the nodes."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gpu_tenancy.base.amounts import amount_text, leading_text
from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.base.quantity import CHANNELS, add
from gpu_tenancy.base.texts import plural
from gpu_tenancy.inspect.channels import claim_pending
from gpu_tenancy.inspect.cluster_queues import ClusterQueue
from gpu_tenancy.inspect.diagnosis import diagnose
from gpu_tenancy.inspect.pods import named
from gpu_tenancy.inspect.queueing import VERDICTS, Offer, QuotaRequest, Source, judge_queue
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.running import Why, running
from gpu_tenancy.inspect.snapshot import NotSimulated
from gpu_tenancy.inspect.target import Target
from gpu_tenancy.inspect.unblock import Unblock, find_unblock
from gpu_tenancy.inspect.workloads import Workload, ahead
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.kueue.topology import PREFERRED

_NO_ROOM: Final = re.compile(r'topology "[^"]*" (doesn\'t allow|allows) to fit')


def queued(target: Target, queues: Queues, workload: Workload) -> Why:
    """Follows a Workload to the stage that it has reached."""
    name = queues.queue_of(workload)
    behind = f" (ClusterQueue {name})" if name else ""
    place = f"Workload {workload.name} in LocalQueue {workload.queue or '(none)'}{behind}"
    lines = [f"{place}, priority {workload.priority}", *_conditions(workload)]
    match workload.stage:
        case "finished":
            return Why(target.title, tuple(lines), "not pending: ended", "", waits=False)
        case "switched off":
            patch = """--type merge -p '{"spec":{"active":true}}'"""
            fix = f"kubectl -n {workload.namespace} patch workload {workload.name} {patch}"
            return Why(target.title, tuple(lines), "its Workload is deactivated (spec.active is false)", fix)
        case "checked":
            return _checked(target, workload, lines)
        case "admitted":
            if worker := text_at(workload.manifest, "status", "clusterName"):
                return Why(
                    target.title,
                    tuple(lines),
                    f"runs in worker cluster {worker}; this cluster has none of its pods",
                    f"for its pods, run `tenancy why` with the kubeconfig of {worker}",
                    waits=False,
                )
            return running(target, queues.state, tuple(lines))
        case "waiting":
            return _pending(target, queues, workload, lines)


def _conditions(workload: Workload) -> Iterator[str]:
    """Conditions of the Workload that explain why it is not admitted."""
    for kind in ("QuotaReserved", "Evicted", "Admitted"):
        current = condition(workload.manifest, kind)
        blocks = text_at(current, "status") == ("True" if kind == "Evicted" else "False")
        if current and blocks and text_at(current, "message"):
            yield f"Kueue condition {kind} ({text_at(current, 'reason')}): {text_at(current, 'message')}"


def _checked(target: Target, workload: Workload, lines: list[str]) -> Why:
    """Quota is reserved, and admission checks are not ready."""
    states = maps_at(workload.manifest, "status", "admissionChecks")
    checks = [check for check in states if text_at(check, "state") != "Ready"]
    for check in checks:
        message = text_at(check, "message")
        state = f"admission check {text_at(check, 'name')} is {text_at(check, 'state')}"
        lines.append(f"{state}: {message}" if message else state)
    names = [text_at(check, "name") for check in checks]
    workers = at(workload.manifest, "status", "nominatedClusterNames")
    if isinstance(workers, list) and workers:
        clusters = ", ".join(str(worker) for worker in workers)
        first = "the first that admits it runs it; quota there is not shown here"
        lines.append(f"pending in worker clusters {clusters}: {first}")
    checks_text = ", ".join(names) or "of its queue"
    reason = f"quota is reserved ({leading_text(workload.total)}), but admission check {checks_text} is not ready"
    fix = "wait for the check, for example for new nodes; see the AdmissionCheck"
    return Why(target.title, tuple(lines), reason, fix)


def _pending(target: Target, queues: Queues, workload: Workload, lines: list[str]) -> Why:
    """No quota is reserved."""
    state, name = queues.state, queues.queue_of(workload)
    own = queues.homes.get(workload.namespace, {})
    if workload.queue not in own and state.knows("LocalQueue"):
        return Why(target.title, tuple(lines), *queues.unknown_local(workload.namespace, workload.queue))
    first = ahead(workload, queues.members.get(name, ()))
    lines.append(_position(first, complete=state.knows("Workload")))
    if not state.knows("ClusterQueue"):
        lines += [missing.text for missing in state.refused("ClusterQueue", "Workload")]
        fix = f"ask {state.missing['ClusterQueue'].who}"
        return Why(target.title, tuple(lines), "pending for quota; you may not see how much is free", fix)
    queue = queues.cluster_queues.get(name)
    if queue is None:
        reason = f"ClusterQueue {name} of LocalQueue {workload.queue} not found"
        return Why(target.title, tuple(lines), reason, "create it, or set another clusterQueue in the LocalQueue")
    if blocked := _not_considered(queues, queue, workload):
        return Why(target.title, tuple(lines), *blocked)
    offers = judge_queue(queues.quotas, queue.spec, state.of("ResourceFlavor"), workload.sets)
    if message := _no_room_together(workload, offers):
        fix = f"wait until nodes near one another are free, request fewer pods, or use the annotation {PREFERRED}"
        return Why(target.title, tuple(lines), f"no part of the network has room for its pods: {message}", fix)
    if first and queue.strict:
        lines.append("its queue is StrictFIFO: no workload passes the first, even if that one can never be admitted")
    # What exceeds the queue's limit needs no simulation: no end of another workload changes that.
    exceeds = any(offer.source is Source.NEVER for offer in offers)
    simulated = None if exceeds else find_unblock(queues, workload)
    unblock = simulated if isinstance(simulated, Unblock) else None
    lines += _quota_lines(queues, name, offers, unblock)
    if unblock:
        lines += unblock.lines
    elif isinstance(simulated, NotSimulated):
        lines.append(f"not simulated: {simulated.reason}")
    reason, fix = diagnose(queues, queue.spec, offers, unblock, is_head=not first)
    return Why(target.title, tuple(lines), reason, fix, unblock=unblock)


def _position(before: Sequence[Workload], *, complete: bool) -> str:
    """How many workloads are ahead in the queue, and what they request."""
    seen = "" if complete else " (of those that you may see)"
    if not before:
        return f"no workload is ahead of it in the queue{seen}"
    count = plural(len(before), "workload is", "workloads are")
    requested = leading_text(add(*(other.total for other in before)))
    return f"{count} ahead of it{seen}, requesting {requested}: {named([other.label for other in before])}"


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
    agree = unblock is None or (unblock.admitted and not unblock.preempted and fits)
    yield from dict.fromkeys(request.text if agree else request.numbers for request in _relevant(requests))
    refused = (refusal for offer in offers if offer.source is Source.NEVER for refusal in offer.refused)
    yield from dict.fromkeys(refusal.text for refusal in refused)
    for request in requests:
        borrowed = queues.quotas.borrowers(name, (request.flavor, request.resource))
        if request.source in {Source.RECLAIMED, Source.OTHERS} and borrowed:
            who = named([f"{queue} {amount_text(request.resource, amount)}" for queue, amount in borrowed.items()])
            yield f"{request.flavor} {request.resource} borrowed now by: {who}"


def _relevant(requests: list[QuotaRequest]) -> list[QuotaRequest]:
    """The resources that block the workload; all of them where none does, but not channels, which are no limit."""
    blocking = [request for request in requests if VERDICTS[request.source] != "now"]
    return blocking or [request for request in requests if request.resource != CHANNELS]


def _not_considered(queues: Queues, queue: ClusterQueue, workload: Workload) -> tuple[str, str] | None:
    """Reason and fix where Kueue does not consider the workload, however much quota is free."""
    if closed := queues.closed(workload.namespace, workload.queue, queue):
        return closed.text, closed.fix
    return claim_pending(workload) or workload.held_back
