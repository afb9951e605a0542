"""Why an object is pending, found by the way from the queue to the nodes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from gpu_tenancy.base.json import at, int_at, list_at, maps_at, text_at
from gpu_tenancy.base.quantity import CLAIMED, add, amount_text, leading_text
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.demand import Target, volcano_queue
from gpu_tenancy.cluster.gangs import ALONE, EXISTING, gang_queues, judge_gang, too_few
from gpu_tenancy.cluster.nodes import all_cordoned, given, read_nodes
from gpu_tenancy.cluster.pods import name_of, named, namespace_of, requests
from gpu_tenancy.cluster.queueing import Offer, Source, judge_queue
from gpu_tenancy.cluster.queues import KUEUE_NOT_RUNNING, NO_KUEUE, NO_LOCAL_QUEUE, Queues
from gpu_tenancy.cluster.reading import Kind, State
from gpu_tenancy.cluster.references import claim_pending
from gpu_tenancy.cluster.snapshot import NotSimulatedError, unseen_reclaim
from gpu_tenancy.cluster.supply import unusable
from gpu_tenancy.cluster.workloads import Reason, Workload, ahead, at_most, interrupted
from gpu_tenancy.explain import running
from gpu_tenancy.explain.pending import after_preemption, borrowed_lines, diagnose, messages_of
from gpu_tenancy.explain.unblock import Unblock, find_unblock
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.kueue.api import PREFERRED
from gpu_tenancy.model.names import QUEUE_LABEL

KINDS: Final[tuple[Kind, ...]] = (
    "AdmissionCheck", "ClusterQueue", "ClusterTrainingRuntime", "Cohort", "Job", "LocalQueue", "Namespace", "Node",
    "Pod", "PodGroup", "PriorityClass", "Queue", "ResourceFlavor", "Workload", "WorkloadPriorityClass",
)  # fmt: skip
OWN: Final[tuple[Kind, ...]] = ("Dataset", "Event", "PersistentVolumeClaim", "TrainingRuntime")
_FIRST: Final = ("waiting", "switched off", "checked", "admitted", "finished")
# Kueue's message about a topology without room: `notFitMessage` in
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/tas_flavor_snapshot.go
_NO_ROOM: Final = re.compile(r'topology "[^"]*" (doesn\'t allow|allows) to fit')


def why(target: Target, state: State) -> running.Why:
    """Follows one object from its queue to its pods."""
    found = running.with_rollout(_followed(target, state), target, state)
    messages = tuple(dict.fromkeys(messages_of(target, state)))
    # Pods of a Deployment are created and queued one by one: some wait for the queue while others are rejected.
    others = (running.explain_rejection(target, message).reason for message in running.rejected_pods(target, state)[:1])
    lines = (*found.lines, *(other for other in others if other != found.reason))
    return replace(found, title=target.title, lines=lines, messages=messages)


def _followed(target: Target, state: State) -> running.Why:
    if target.outcome:
        return running.Why((), f"not pending: ended ({target.outcome})", waits=False)
    gang = volcano_queue(target.demand, kueue=state.has_kueue)
    if (gang is not None or target.groups) and not target.workloads:
        return _gang(target, state)
    queues = Queues(state)
    if target.workloads:
        return _with_workload(target, queues)
    if not state.has_kueue:
        return running.running(target, state, (NO_KUEUE,))
    return _unqueued(target, queues)


def _with_workload(target: Target, queues: Queues) -> running.Why:
    """Of several Workloads, the one with the least progress decides."""
    workload = min(target.workloads, key=lambda workload: _FIRST.index(workload.stage))
    count, replicas = sum(pods.count for pods in workload.sets), int_at(target.manifest, "spec", "replicas")
    stuck = running.gated(target.pods) or (replicas and workload.stage == "finished")  # Kueue may end it as OutOfSync
    if text_at(target.manifest, "kind") == "StatefulSet" and replicas != count and stuck:
        reason = f"Kueue starts no more pods: it was scaled to {plural(replicas, 'pod')}, and its Workload has {count}"
        fix = f"Kueue does not follow such a change: delete the StatefulSet, and create it with replicas: {replicas}"
        return running.Why((), reason, fix)
    if workload.stage == "waiting" and not workload.queue:
        return running.Why((), *_without_label(target, queues))
    found = after_preemption(_queued(target, queues, workload), workload, queues)
    return replace(found, lines=(*found.lines, *(one.text for one in interrupted(target.workloads))))


def _unqueued(target: Target, queues: Queues) -> running.Why:
    state, namespace = queues.state, namespace_of(target.manifest)
    own = queues.homes.get(namespace, {})
    placed = [pod for pod in target.pods if text_at(pod, "spec", "nodeName")]
    if not state.sees("Workload"):
        return running.running(target, state, (state.missing["Workload"].text,))
    if placed or running.blocked_pods(target.pods, state):
        return running.running(target, state, ("Kueue does not manage it: it has no Workload",))
    if not target.queue:
        problem: Reason | None = _without_label(target, queues)
    elif target.queue not in own:
        problem = queues.unknown_local(namespace, target.queue)
    else:
        problem = _unknown_class(target, queues)
    if problem:
        return running.Why((), *problem)
    lines = (f"queue label: LocalQueue {target.queue} (ClusterQueue {own[target.queue]})",)
    if queues.uncounted:
        return running.running(target, state, (*lines, KUEUE_NOT_RUNNING))
    fix = "check that the Kueue controller is running, and that it manages this kind and this namespace"
    return running.Why(lines, "not queued yet: Kueue has not created a Workload for it", fix)


def _queued(target: Target, queues: Queues, workload: Workload) -> running.Why:
    name = queues.queue_of(workload)
    behind = f" (ClusterQueue {name})" if name else ""
    place = f"Workload {workload.name} in LocalQueue {workload.queue or '(none)'}{behind}"
    idle = workload.idle()
    lines = [f"{place}, priority {workload.priority}", *([f"GPUs: {idle}"] if idle else [])]
    match workload.stage:
        case "finished":
            return running.Why(lines, "not pending: ended", waits=False)
        case "switched off":
            return running.Why(lines, *_switched_off(workload))
        case "checked":
            return _checked(workload, lines)
        case "admitted":
            if worker := text_at(workload.manifest, "status", "clusterName"):
                reason = f"runs in worker cluster {worker}; this cluster has none of its pods"
                fix = f"for its pods, run `tenancy why` with the kubeconfig of {worker}"
                return running.Why(lines, reason, fix, waits=False)
            if any(not text_at(pod, "spec", "nodeName") for pod in target.pods):
                lines += unusable(queues.state, [flavor for flavor, _ in workload.held])
            lines += [*borrowed_lines(queues, workload), *_groups(target)]
            few = _too_few(target)
            return running.Why(lines, *few) if few else running.running(target, queues.state, lines)
        case "waiting":
            return _pending(queues, workload, lines)


def _switched_off(workload: Workload) -> Reason:
    # A user who may not change Workloads can requeue it, too.
    again = f"run `tenancy requeue {workload.label}`"
    if text_at(condition(workload.manifest, "Evicted"), "reason").endswith("MaximumExecutionTimeExceeded"):
        longest = int_at(workload.manifest, "spec", "maximumExecutionTimeSeconds")
        fix = f"{again}, which lets it run as long again; or submit it with a longer deadline"
        return f"it ran for its maximum run time of {longest} s, and Kueue stopped it", fix
    if idle := workload.idle():
        return f"its GPUs were idle ({idle})", again
    return "its Workload is deactivated (spec.active is false)", again


def _without_label(target: Target, queues: Queues) -> Reason:
    namespace = namespace_of(target.manifest)
    if text_at(target.manifest, "kind") == "Pod" and target.demand.gang is not None:
        reason, _, fix = ALONE.format(target.demand.gang).partition("; ")
        return reason, fix
    reason = f"no queue is set: the {text_at(target.manifest, 'kind')} has no label {QUEUE_LABEL}"
    local = queues.usual(namespace)
    name = f"{text_at(target.manifest, 'kind').lower()} {name_of(target.manifest)}"
    return reason, f"run `kubectl -n {namespace} label {name} {QUEUE_LABEL}={local}`" if local else NO_LOCAL_QUEUE


def _unknown_class(target: Target, queues: Queues) -> Reason | None:
    """A priority class that does not exist, for which Kueue creates no Workload; a workload keeps its class."""
    names = (text_at(template.spec, "priorityClassName") for template in target.demand.templates)
    missing = (queues.unknown_class("PriorityClass", name) for name in names)
    unknown = queues.unknown_class("WorkloadPriorityClass", target.demand.priority) or next(filter(None, missing), None)
    return unknown and (unknown[0], f"submit it again with another class; {unknown[1]}")


def _checked(workload: Workload, lines: list[str]) -> running.Why:
    states = maps_at(workload.manifest, "status", "admissionChecks")
    checks = [check for check in states if text_at(check, "state") != "Ready"]
    for check in checks:
        message = text_at(check, "message")
        state = f"admission check {text_at(check, 'name')} is {text_at(check, 'state')}"
        lines.append(f"{state}: {message}" if message else state)
    names = [text_at(check, "name") for check in checks]
    if workers := list_at(workload.manifest, "status", "nominatedClusterNames"):
        first = "the first that admits it runs it; quota there is not shown here"
        lines.append(f"pending in worker clusters {', '.join(workers)}: {first}")
    checks_text = ", ".join(names) or "of its queue"
    reason = f"quota is reserved ({leading_text(workload.total)}), but admission check {checks_text} is not ready"
    return running.Why(lines, reason, "wait for the check, for example for new nodes; see the AdmissionCheck")


def _pending(queues: Queues, workload: Workload, lines: list[str]) -> running.Why:
    state, name = queues.state, queues.queue_of(workload)
    own = queues.homes.get(workload.namespace, {})
    if workload.queue not in own and state.sees("LocalQueue"):
        return running.Why(lines, *queues.unknown_local(workload.namespace, workload.queue))
    first = ahead(workload, queues.members.get(name, ()))
    lines.append(_position(first, complete=name not in queues.cluster_queues or not queues.unseen(name)))
    if not state.knows("ClusterQueue"):
        lines += [missing.text for missing in state.refused("ClusterQueue", "Workload")]
        fix = f"ask {state.missing['ClusterQueue'].who}"
        return running.Why(lines, "pending for quota; you may not see how much is free", fix)
    queue = queues.cluster_queues.get(name)
    if queue is None:
        reason = f"ClusterQueue {name} of LocalQueue {workload.queue} not found"
        return running.Why(lines, reason, "create it, or set another clusterQueue in the LocalQueue")
    closed = queues.closed(workload.namespace, workload.queue, queue)
    if blocked := closed or claim_pending(workload) or workload.held_back:  # However much quota is free.
        return running.Why(lines, *blocked)
    offers = judge_queue(queues.quotas, queue.spec, state.of("ResourceFlavor"), workload.sets)
    if excluded := _excluded(workload, offers) or _cordoned(state, workload, offers):
        return running.Why(lines, *excluded)
    if first and queue.strict:
        lines.append("its queue is StrictFIFO: no workload passes the first, even if that one can never be admitted")
    # What exceeds the queue's limit needs no simulation: no end of another workload changes that.
    exceeds = any(offer.source is Source.NEVER for offer in offers)
    unblock, simulated = None, list[str]()
    try:
        if not exceeds and not unseen_reclaim(queues, offers):
            unblock = find_unblock(queues, workload)
            simulated += unblock.lines
    except NotSimulatedError as error:
        simulated.append(f"not simulated: {error}")
    flavors = [request.flavor for offer in offers for request in offer.requests]
    lines += [*_quota_lines(queues, name, offers, unblock), *unusable(state, flavors), *simulated]
    reason, fix = diagnose(queues, queue.spec, offers, unblock, is_head=not first)
    return running.Why(lines, reason, fix, unblock=unblock)


def _position(before: Sequence[Workload], *, complete: bool) -> str:
    seen = "" if complete else " (of those that you may see)"
    if not before:
        return f"no workload is ahead of it in the queue{seen}"
    count = plural(len(before), "workload is", "workloads are")
    requested = leading_text(add(*(other.total for other in before)))
    return f"{count} ahead of it{seen}, requesting {requested}: {named([other.label for other in before])}"


def _excluded(workload: Workload, offers: Sequence[Offer]) -> Reason | None:
    """A held flavor or a topology keeps a workload pending although its queue has the quota."""
    if held := next((refusal for offer in offers if (refusal := offer.held)), None):
        return held.text, held.fix
    message = text_at(condition(workload.manifest, "QuotaReserved"), "message")
    if _NO_ROOM.search(message) and all(offer.source.verdict == "now" for offer in offers):
        fix = f"wait until nodes near one another are free, request fewer pods, or use the annotation {PREFERRED}"
        return f"no part of the network has room for its pods: {message}", fix
    return None


def _cordoned(state: State, workload: Workload, offers: Sequence[Offer]) -> Reason | None:
    """That all nodes of the flavors for a pod set are cordoned: free quota alone would start nothing."""
    flavors = {name_of(flavor): flavor for flavor in state.of("ResourceFlavor")}
    nodes = read_nodes(state.of("Node"), ())
    for pods, offer in zip(workload.sets, offers, strict=True):
        own = [flavors[one.flavor] for one in offer.requests if one.flavor in flavors]
        if found := all_cordoned(given(pods.spec, own), nodes):
            return found
    return None


def _quota_lines(queues: Queues, name: str, offers: Sequence[Offer], unblock: Unblock | None) -> Iterator[str]:
    # Without when it fits, if the simulation disagrees.
    requests = [request for offer in offers for request in offer.requests]
    blocking = [request for request in requests if request.source.verdict != "now"]
    fits = all(offer.source.verdict == "now" for offer in offers)
    agree = unblock is None or (unblock.admitted and not unblock.preempted and fits)
    # Claims are no limit.
    relevant = blocking or [request for request in requests if request.resource not in CLAIMED]
    yield from dict.fromkeys(request.text if agree else request.numbers for request in relevant)
    refused = (refusal for offer in offers if offer.source is Source.NEVER for refusal in offer.refused)
    yield from dict.fromkeys(refusal.text for refusal in refused)
    for request in requests:
        borrowed = queues.quotas.borrowers(name, (request.flavor, request.resource))
        if request.source in {Source.RECLAIMED, Source.OTHERS} and borrowed:
            who = named([f"{queue} {amount_text(request.resource, amount)}" for queue, amount in borrowed.items()])
            yield f"{request.flavor} {request.resource} borrowed now by: {who}"


def _groups(target: Target) -> Iterator[str]:
    for group in target.groups:
        phase, members = text_at(group, "status", "phase"), at(group, "spec", "minMember")
        yield f"Volcano's PodGroup {name_of(group)}: {phase or 'no phase yet'}, {members} pods start together"


def _too_few(target: Target) -> Reason | None:
    """Why a gang never starts whose PodGroup needs more pods than it has, and the fix."""
    waiting = [group for group in target.groups if text_at(group, "status", "phase") != "Running"]
    together = max((int_at(group, "spec", "minMember") for group in waiting), default=0)
    return too_few(together, sum(template.count for template in target.demand.templates))


def _unstarted(target: Target, state: State) -> running.Why:
    """Why pods of a gang do not run for which its queue has quota."""
    if blocked := running.blocked_pods(target.pods, state):
        return blocked
    if rejected := running.rejected_pods(target, state):
        return running.explain_rejection(target, rejected[0])
    if not target.groups:
        fix = "check that the Volcano controller is running"
        return running.Why((), "Volcano has not created a PodGroup for it", fix)
    own = text_at(target.manifest, "apiVersion").startswith("batch.volcano.sh/")
    phases = {text_at(group, "status", "phase") for group in target.groups}
    if own and phases == {"Inqueue"} and state.sees("Pod") and not target.pods:
        # https://github.com/volcano-sh/volcano/issues/5973
        fix = "if that lasts, submit it with another name: Volcano can lose a Job with the name of one deleted before"
        return running.Why((), "Volcano lets it start, but has not created its pods", fix)
    reason = "no capacity for all pods of the gang at the same time"
    return running.Why((), reason, "wait for nodes; the gang starts as a whole")


def _gang(target: Target, state: State) -> running.Why:
    name = text_at(target.groups[0], "spec", "queue") if target.groups else target.demand.gang or "default"
    lines = [f"gang in Volcano queue {name}: all pods start together", *_groups(target)]
    if any(text_at(group, "status", "phase") == "Running" for group in target.groups):
        return running.running(target, state, lines)
    pods = [(requests(template.spec), template.count) for template in target.demand.templates]
    others = [group for group in state.of("PodGroup") if group not in target.groups]
    queues = gang_queues(state.of("Queue"), others, state.of("Pod"))
    if not target.groups and queues and not any(queue.counted for queue in queues):
        lines.append("Volcano has not reported usage for any queue: its controller is not running")
    answer, known = judge_gang(queues, name, pods, target.demand.together), state.knows("Queue")
    lines += answer.lines if known else [state.missing["Queue"].text]
    if few := _too_few(target):
        reason, fix = few
    elif known and name not in {queue.name for queue in queues} and answer.verdict == "never":
        reason, fix = f"Volcano queue {name} does not exist", EXISTING
    elif known and answer.verdict == "never":
        reason = f"Volcano queue {name} can never admit it: {answer.lines[0]}"
        fix = at_most("the limit", "capability of the queue")
    elif known and answer.verdict == "later":
        reason = f"Volcano queue {name} is at capacity: {answer.lines[0]}"
        fix = "wait until other gangs of the team end"
    else:
        found = _unstarted(target, state)
        return replace(found, lines=[*lines, *found.lines])
    return running.Why(lines, reason, fix)
