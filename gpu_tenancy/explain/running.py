"""Pods that do not run: rejected by the API server, without a node, or with containers that do not start."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.json import at, int_at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import format_duration, gpus
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.budgets import exceeded_quota
from gpu_tenancy.cluster.demand import Target, owners
from gpu_tenancy.cluster.nodes import Node, all_cordoned, find, fragments, judge_nodes, read_nodes
from gpu_tenancy.cluster.pods import ADMISSION_GATE, Manifest, label, name_of, namespace_of, requests
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.cluster.references import waits_for_cache
from gpu_tenancy.cluster.rejections import happened, refusal, rejections
from gpu_tenancy.cluster.workloads import PodSet, read_workloads
from gpu_tenancy.explain.unblock import Unblock
from gpu_tenancy.kube.waiting import condition, is_true

_SET: Final = "leaderworkerset.sigs.k8s.io/name"  # label of its pods
_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
# https://github.com/kubernetes-sigs/kueue/issues/8769
_NO_SURGE: Final = (
    "Kueue makes none for groups that the surge of a rollout adds: delete the object, and create it with maxSurge: 0"
)
_GATES: Final = frozenset({ADMISSION_GATE, "kueue.x-k8s.io/topology"})
# The scheduler's message about a node without a free device for a pod's claim:
# https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go
_NO_CLAIM: Final = "not found"
_NO_DEVICE: Final = "cannot allocate all claims"
OWN_PODS: Final = "what pods of other teams use on these nodes is not counted: you may not read them"
_PLACED: Final = re.compile(r"kueue\.x-k8s\.io/podset-.*topology")  # annotations of pods to which Kueue assigns nodes
_TO_AVOID: Final = "with `topology: node` for its pool in the stack, Kueue admits only what fits on nodes"


@dataclass(frozen=True, slots=True)
class Why:
    """Why an object, or its pods, are pending."""

    lines: Sequence[str]  # findings from the queue to the nodes
    reason: str  # what blocks it, or that it is not pending
    fix: str = ""  # empty if the user can do nothing
    waits: bool = True  # False if nothing blocks it
    unblock: Unblock | None = None  # simulated ways to get it admitted; None without a simulation
    title: str = ""  # such as `Job ml-research/nightly`
    messages: Sequence[str] = ()  # of controllers

    @property
    def conclusion(self) -> str:
        """Reason and fix."""
        return f"{self.reason}; {self.fix}" if self.fix else self.reason


def rejected_pods(target: Target, state: State) -> tuple[str, ...]:
    """Messages about refused pods and children of an object, newest first; none if it has all pods since."""
    if len(target.pods) >= sum(template.count for template in target.demand.templates):
        return ()
    namespace = namespace_of(target.manifest)
    own = f"{namespace}/{name_of(target.manifest)}"
    own_uids = dict.fromkeys((target.uid, *(owner for pod in target.pods for owner in owners(pod))), own)
    workloads = read_workloads(state.of("Workload", namespace))
    return rejections(state.of("Event", namespace), workloads, own_uids).get(own, ())


def blocked_pods(pods: Sequence[Manifest], state: State) -> Why | None:
    """The reason why the first pods do not run; None if all run or are about to run."""
    without_node = [pod for pod in pods if not text_at(pod, "spec", "nodeName")]
    if held := [pod for pod in without_node if maps_at(pod, "spec", "schedulingGates")]:
        gates = sorted({text_at(gate, "name") for pod in held for gate in maps_at(pod, "spec", "schedulingGates")})
        reason = f"{plural(len(held), 'pod')} blocked by scheduling gate {', '.join(gates)}"
        if gated(held) and _surging(pods, state):
            return Why((), f"{reason}, and Kueue has no Workload for them", _NO_SURGE)
        kueue = "check its Workload: `kubectl get workloads`"
        return Why((), reason, kueue if gated(held) else "wait until its controller removes it")
    if unplaced := [pod for pod in without_node if text_at(condition(pod, "PodScheduled"), "status") == "False"]:
        return _unplaced(unplaced, state)
    if stuck := [message for pod in pods if (message := _stuck(pod))]:
        return Why(tuple(dict.fromkeys(stuck)), f"containers do not start: {stuck[0]}", "fix this error")
    if without_node:
        reason = f"{plural(len(without_node), 'pod')} not handled by any scheduler yet"
        return Why((), reason, "check that the pod's scheduler is running")
    return None


def _surging(pods: Sequence[Manifest], state: State) -> bool:
    """Whether a LeaderWorkerSet has more groups than Workloads."""
    groups = {(label(pod, _SET), label(pod, _INDEX)) for pod in pods if label(pod, _SET)}
    workloads = state.of("Workload", namespace_of(pods[0]))
    named = [text_at(owner, "name") for one in workloads for owner in maps_at(one, "metadata", "ownerReferences")]
    return state.sees("Workload") and len(groups) > sum(name in dict(groups) for name in named)


def gated(pods: Sequence[Manifest]) -> bool:
    """Whether a pod has a scheduling gate of Kueue; the topology gate can remain after the admission gate."""
    return any(text_at(gate, "name") in _GATES for pod in pods for gate in maps_at(pod, "spec", "schedulingGates"))


def _unplaced(pods: Sequence[Manifest], state: State) -> Why:
    first = pods[0]
    message = text_at(condition(first, "PodScheduled"), "message")
    lines = [f"{plural(len(pods), 'pod')} unschedulable, such as {name_of(first)}"]
    namespace = namespace_of(first)
    if claims := _claims(first, state):
        fix = f"see its events: `kubectl -n {namespace} describe pvc`"
        if claims[0].endswith(_NO_CLAIM):
            fix = f"create it, or submit again with another claim: `tenancy claims {namespace}` lists them"
        return Why((*lines, *claims), f"volumes not ready: {claims[0]}", fix)
    if _NO_DEVICE in message and maps_at(first, "spec", "resourceClaims"):
        return Why(
            lines,
            "no node with room has a free channel: a node has one channel, for one pod with a ComputeDomain",
            "request all GPUs of a node for each pod, or wait until the pod that has the channel ends",
        )
    if not state.knows("Node"):
        lines += [missing.text for missing in state.refused("Node")]
        return Why(lines, f"pods unschedulable: {message}", "fix this error")
    nodes = read_nodes(state.of("Node"), state.of("Pod"))
    spec = map_at(first, "spec")
    if cordoned := all_cordoned(spec, nodes):
        return Why(lines, *cordoned)
    wanted = PodSet("pod", len(pods), requests(spec), spec)
    answer, _ = judge_nodes(nodes, wanted)
    why = message if answer.verdict == "now" else answer.lines[0]
    fixes = {"never": "request what the nodes have, or tolerate their taint", "later": "wait, or add nodes"}
    fix = fixes.get(answer.verdict, "capacity is available; check scheduler events")
    fitting = find(spec, wanted.pod, nodes).fitting
    if answer.verdict == "later" and any(map(_PLACED.fullmatch, texts_at(first, "metadata", "annotations"))):
        fix = "requeue the job with `tenancy requeue`: Kueue then assigns other nodes"
    elif fragments(fitting, wanted.pod):
        fix = f"wait until the pods on one of these nodes end, or ask an administrator to delete them; {_TO_AVOID}"
    elif answer.verdict == "now" and not state.knows("Pod"):
        fix = f"wait, or ask an administrator whose pods use the nodes; {_TO_AVOID}"
        why = _counted(wanted, fitting, state) or message
        lines.append(OWN_PODS)
    return Why((*lines, *answer.lines), f"pods unschedulable: {why}", fix)


def _counted(pods: PodSet, fitting: Sequence[Node], state: State) -> str:
    """GPUs that are free by the usage of queues, for users who may not read all pods; empty if it is not enough."""
    name, queues = next(iter(gpus(pods.pod)), ""), Queues(state)
    flavors = {flavor for node in fitting if (flavor := queues.flavor_by_node.get(node.name))}
    used = sum(queue.usage.get((flavor, name), 0) for queue in queues.cluster_queues.values() for flavor in flavors)
    whole = sum(node.whole.get(name, 0) for node in fitting)
    free = whole - used + pods.total.get(name, 0)
    if not used or free < pods.pod[name]:
        return ""
    needs = pods.pod[name]
    return f"a pod needs {needs} {name} on one node, and none has {needs} free; queues count {free} of {whole} as free"


def _claims(pod: Manifest, state: State) -> tuple[str, ...]:
    """Claims of the pod that are missing or not bound."""
    if not state.knows("PersistentVolumeClaim"):
        return ()
    claims = state.of("PersistentVolumeClaim", namespace_of(pod))
    phases = {name_of(claim): text_at(claim, "status", "phase") for claim in claims}
    wanted = [text_at(volume, "persistentVolumeClaim", "claimName") for volume in maps_at(pod, "spec", "volumes")]
    return tuple(
        waits_for_cache(state, namespace_of(pod), name) or f"claim {name} is {phases.get(name, '') or _NO_CLAIM}"
        for name in wanted
        if name and phases.get(name) != "Bound"
    )


def _stuck(pod: Manifest) -> str:
    """Why a container of a scheduled pod does not start; empty if it does or is about to start."""
    for status in (*maps_at(pod, "status", "initContainerStatuses"), *maps_at(pod, "status", "containerStatuses")):
        reason, message = (text_at(status, "state", "waiting", key) for key in ("reason", "message"))
        if reason and reason not in {"ContainerCreating", "PodInitializing"}:
            return f"{text_at(status, 'name')}: {reason}{': ' + message if message else ''}"
    return ""


def running(target: Target, state: State, lines: Sequence[str]) -> Why:
    """State of the pods of an object without a queue, and the reason if they are blocked."""
    if rejected := rejected_pods(target, state):
        return replace(explain_rejection(target, rejected[0]), lines=lines)
    alive = sum(1 for pod in target.pods if text_at(pod, "status", "phase") == "Running")
    if blocked := blocked_pods(target.pods, state):
        others = [plural(alive, "other pod running", "other pods running")] if alive else []
        return replace(blocked, lines=(*lines, *others, *blocked.lines))
    if alive:
        return Why(lines, f"not pending: {plural(alive, 'pod running', 'pods running')}", waits=False)
    return _without_pods(target, state, lines)


def _without_pods(target: Target, state: State, lines: Sequence[str]) -> Why:
    if not any(template.count for template in target.demand.templates):
        return Why(lines, "not pending: no pods requested", waits=False)
    if "Pod" in state.missing:
        return Why(lines, "its pods are not readable by you", f"ask {state.missing['Pod'].who}")
    if at(target.manifest, "spec", "suspend") is True:
        return Why(lines, "suspended (spec.suspend is true)", "set spec.suspend to false, or let Kueue do it")
    admitted = "admitted, but " if target.workloads else ""
    return Why(lines, f"{admitted}no pods created yet", "check the events of its controller: `kubectl describe`")


def explain_rejection(target: Target, message: str) -> Why:
    """Why the API server refuses pods or children: the namespace's ResourceQuota, or its message."""
    if 'pods "' not in message or not (exceeded := exceeded_quota(message)):
        return Why((), *refusal(message, admitted=any(one.stage == "admitted" for one in target.workloads)))
    alive, wanted = len(target.pods), sum(template.count for template in target.demand.templates)
    return Why((), f"{alive} of {plural(wanted, 'pod')} created: {exceeded[0]}", exceeded[1])


# https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#failed-deployment
_LATE: Final = "ProgressDeadlineExceeded"
_REMOVES_FIRST: Final = "or set maxUnavailable: 1, so that an old pod is removed first"
# Kinds with a rollout, and the status field with the number of serving replicas.
_ANSWERING: Final = {"Deployment": "availableReplicas", "LeaderWorkerSet": "readyReplicas"}
# Event of a LeaderWorkerSet that replaces all pods of a group because one of them ended:
# https://github.com/kubernetes-sigs/lws/blob/v0.9.0/pkg/controllers/pod_controller.go
_RECREATED: Final = "RecreateGroup"


def with_rollout(found: Why, target: Target, state: State) -> Why:
    """Adds the reason that blocks the rollout of a server; unchanged without a rollout in progress.

    Replicas of a LeaderWorkerSet are groups, and it has no deadline for a rollout.
    """
    manifest = target.manifest
    answering = _ANSWERING.get(text_at(manifest, "kind"))
    if answering is None:
        return found
    wanted = int_at(manifest, "spec", "replicas")
    replicas, new, available = (int_at(manifest, "status", key) for key in ("replicas", "updatedReplicas", answering))
    rejected = is_true(manifest, "ReplicaFailure")
    if not replicas or (replicas <= new and not rejected):
        return found
    line = f"rollout: {new} of {plural(wanted, 'replica is', 'replicas are')} new, {available} available"
    late = text_at(condition(manifest, "Progressing"), "reason") == _LATE
    if late:
        most = format_duration(int_at(manifest, "spec", "progressDeadlineSeconds"))
        line += f"; it is late: no new pod became ready in {most}"
    lines = (line, *found.lines)
    if found.waits:
        reason = f"rollout not complete, {plural(available, 'replica serves', 'replicas serve')}: {found.reason}"
        stuck = str(at(manifest, "spec", "strategy", "rollingUpdate", "maxUnavailable")) in {"0", "0%"}
        return replace(found, lines=lines, reason=reason, fix=f"{found.fix}; {_REMOVES_FIRST}" if stuck else found.fix)
    ended = (*_recreated(target, state), *_not_ready(target, late=late))
    cause = _rejected(manifest) if rejected else next(iter(ended), None)
    if cause is None:
        return replace(found, lines=lines, reason=f"rollout in progress: {found.reason.removeprefix('not pending: ')}")
    reason = f"rollout not complete, {plural(available, 'replica serves', 'replicas serve')}: {cause[0]}"
    return replace(found, lines=lines, reason=reason, fix=cause[1], waits=True)


def _rejected(manifest: Manifest) -> tuple[str, str]:
    message = text_at(condition(manifest, "ReplicaFailure"), "message")
    if exceeded := exceeded_quota(message):
        fix = f"wait until quota is free, raise the team's guarantee by one replica, {_REMOVES_FIRST}"
        return f"new pods are rejected: {exceeded[0]}", fix
    return f"new pods are rejected: {message}", "fix this error"


def _recreated(target: Target, state: State) -> Iterator[tuple[str, str]]:
    """Groups that a LeaderWorkerSet recreated during the rollout, whose pods are too new to tell why."""
    manifest, namespace = target.manifest, namespace_of(target.manifest)
    own = (text_at(manifest, "kind"), name_of(manifest))
    ready = {name_of(pod) for pod in target.pods if is_true(pod, "Ready")}
    begun = text_at(condition(manifest, "UpdateInProgress"), "lastTransitionTime")
    for event in state.of("Event", namespace):
        about = (text_at(event, "involvedObject", "kind"), text_at(event, "involvedObject", "name"))
        lasts = happened(event) >= begun and text_at(event, "related", "name") not in ready
        if text_at(event, "reason") == _RECREATED and about == own and lasts:
            times = max(1, int_at(event, "series", "count"), int_at(event, "count"))
            cause = f"a group was recreated {plural(times, 'time')}: {text_at(event, 'message')}"
            yield cause, f"see `kubectl -n {namespace} logs -f` of its pods while they start"


def _not_ready(target: Target, *, late: bool) -> Iterator[tuple[str, str]]:
    """New pods whose containers ended or, with `late`, are not ready."""
    namespace = namespace_of(target.manifest)
    for pod in target.pods:
        if is_true(pod, "Ready"):
            continue
        name = name_of(pod)
        for status in maps_at(pod, "status", "containerStatuses"):
            key = "state" if text_at(status, "state", "terminated", "reason") else "lastState"
            if restarts := int_at(status, "restartCount"):
                code = int_at(status, key, "terminated", "exitCode")
                reason = text_at(status, key, "terminated", "reason") or "unknown reason"
                cause = f"pod {name}: container {text_at(status, 'name')} ended {plural(restarts, 'time')}"
                fix = f"see `kubectl -n {namespace} logs {name} -c {text_at(status, 'name')} --previous`"
                yield f"{cause}, last with code {code} ({reason})", fix
        if late:
            yield (
                f"pod {name} runs, but is not ready",
                f"see `kubectl -n {namespace} describe pod {name}` for its probes",
            )
