"""Pods that do not run: rejected by the API server, without a node, or with containers that do not start."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.json import at, map_at, maps_at, text_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.inspect.budgets import exceeded_quota
from gpu_tenancy.inspect.nodes import judge_nodes, read_nodes
from gpu_tenancy.inspect.pods import Manifest, name_of, namespace_of, requests
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.inspect.target import Target, owners
from gpu_tenancy.inspect.unblock import Unblock
from gpu_tenancy.inspect.volumes import waits_for_cache
from gpu_tenancy.inspect.workloads import PodSet
from gpu_tenancy.kube.waiting import condition

_GATES: Final = frozenset({"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"})
_NO_DEVICE: Final = "cannot allocate all claims"
"""The scheduler's words about a node on which a claim of a pod finds no free device:
https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go"""


@dataclass(frozen=True, slots=True)
class Why:
    """Why an object, or pods of it, are pending.

    Attributes:
        lines: what was found on the way from the queue to the nodes, one text each.
        messages: what controllers say of it, in their own words.
        reason: what blocks it; where nothing does, that it is not pending.
        fix: what the user can do; empty where there is nothing to do.
        waits: whether something blocks it.
        unblock: the simulated ways to get it admitted, where the queue could be simulated.
        title: such as `Job ml-research/nightly`.
    """

    lines: Sequence[str]
    reason: str
    fix: str = ""
    waits: bool = True
    unblock: Unblock | None = None
    title: str = ""
    messages: Sequence[str] = ()

    @property
    def conclusion(self) -> str:
        """Reason and fix."""
        return f"{self.reason}; {self.fix}" if self.fix else self.reason


def rejected_pods(target: Target, state: State) -> tuple[str, ...]:
    """Messages of the API server that rejected pods of an object, newest first; none if it got its pods since."""
    if len(target.pods) >= sum(template.count for template in target.demand.templates):
        return ()
    uids = {target.uid, *(owner for pod in target.pods for owner in owners(pod))}
    name = name_of(target.manifest)

    def concerns(event: Manifest) -> bool:
        """Whether it is about the object, or something that it created, such as a Deployment's ReplicaSet."""
        about = text_at(event, "involvedObject", "name")
        return text_at(event, "involvedObject", "uid") in uids or about == name or about.startswith(f"{name}-")

    failed = (
        event
        for event in state.of("Event", namespace_of(target.manifest))
        if text_at(event, "reason") == "FailedCreate"
    )
    latest = sorted(filter(concerns, failed), key=happened, reverse=True)
    return tuple(dict.fromkeys(text_at(event, "message") for event in latest[:3]))


def happened(event: Manifest) -> str:
    """When an event happened last."""
    times = (("series", "lastObservedTime"), ("lastTimestamp",), ("eventTime",), ("metadata", "creationTimestamp"))
    return next(filter(None, (text_at(event, *path) for path in times)), "")


def blocked_pods(pods: Sequence[Manifest], state: State) -> Why | None:
    """What blocks the first pods that do not run; None where all run or are about to."""
    without_node = [pod for pod in pods if not text_at(pod, "spec", "nodeName")]
    if gated := [pod for pod in without_node if maps_at(pod, "spec", "schedulingGates")]:
        return _gated(gated)
    if unplaced := [pod for pod in without_node if text_at(condition(pod, "PodScheduled"), "status") == "False"]:
        return _unplaced(unplaced, state)
    if stuck := [message for pod in pods if (message := _stuck(pod))]:
        return Why(tuple(dict.fromkeys(stuck)), f"containers do not start: {stuck[0]}", "fix this error")
    if without_node:
        reason = f"{plural(len(without_node), 'pod')} not handled by any scheduler yet"
        return Why((), reason, "check that the pod's scheduler is running")
    return None


def gated(pods: Sequence[Manifest]) -> bool:
    """Whether a pod is held by a scheduling gate of Kueue; that of admission can be gone, and that of topology left."""
    return any(text_at(gate, "name") in _GATES for pod in pods for gate in maps_at(pod, "spec", "schedulingGates"))


def _gated(pods: Sequence[Manifest]) -> Why:
    gates = sorted({text_at(gate, "name") for pod in pods for gate in maps_at(pod, "spec", "schedulingGates")})
    fix = "check its Workload: `kubectl get workloads`" if _GATES & {*gates} else "wait until its controller removes it"
    return Why((), f"{plural(len(pods), 'pod')} blocked by scheduling gate {', '.join(gates)}", fix)


def _unplaced(pods: Sequence[Manifest], state: State) -> Why:
    first = pods[0]
    message = text_at(condition(first, "PodScheduled"), "message")
    lines = [f"{plural(len(pods), 'pod')} unschedulable, such as {name_of(first)}"]
    if claims := _claims(first, state):
        return Why((*lines, *claims), f"volumes not ready: {claims[0]}", "check the claim: `kubectl describe pvc`")
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
    answer, _ = judge_nodes(nodes, PodSet("pod", len(pods), requests(spec), spec))
    why = message if answer.verdict == "now" else answer.lines[0]
    fixes = {"never": "request what the nodes have, or tolerate their taint", "later": "wait, or add nodes"}
    fix = fixes.get(answer.verdict, "capacity is available; check scheduler events")
    return Why((*lines, *answer.lines), f"pods unschedulable: {why}", fix)


def _claims(pod: Manifest, state: State) -> tuple[str, ...]:
    """The pod's claims that are missing or not bound."""
    if not state.knows("PersistentVolumeClaim"):
        return ()
    claims = state.of("PersistentVolumeClaim", namespace_of(pod))
    phases = {name_of(claim): text_at(claim, "status", "phase") for claim in claims}
    wanted = [text_at(volume, "persistentVolumeClaim", "claimName") for volume in maps_at(pod, "spec", "volumes")]
    return tuple(
        waits_for_cache(state, namespace_of(pod), name) or f"claim {name} is {phases.get(name, '') or 'not found'}"
        for name in wanted
        if name and phases.get(name) != "Bound"
    )


def _stuck(pod: Manifest) -> str:
    """Why a container of a scheduled pod does not start; empty where it does or is about to."""
    for status in (*maps_at(pod, "status", "initContainerStatuses"), *maps_at(pod, "status", "containerStatuses")):
        reason, message = (text_at(status, "state", "waiting", key) for key in ("reason", "message"))
        if reason and reason not in {"ContainerCreating", "PodInitializing"}:
            return f"{text_at(status, 'name')}: {reason}{': ' + message if message else ''}"
    return ""


def running(target: Target, state: State, lines: Sequence[str]) -> Why:
    """Whether the pods of an object that waits in no queue run, and what blocks those that do not."""
    if rejected := rejected_pods(target, state):
        return replace(explain_rejection(target, rejected[0]), lines=lines)
    alive = sum(1 for pod in target.pods if text_at(pod, "status", "phase") == "Running")
    if blocked := blocked_pods(target.pods, state):
        others = [plural(alive, "other pod running", "other pods running")] if alive else []
        return replace(blocked, lines=(*lines, *others, *blocked.lines))
    if alive:
        return Why(lines, f"not pending: {plural(alive, 'pod running', 'pods running')}", waits=False)
    return _without_pods(target, state, lines)


def explain_rejection(target: Target, message: str) -> Why:
    """Why the API server rejects pods: the namespace's quota, or anything else in its own words."""
    if not (exceeded := exceeded_quota(message)):
        return Why((), f"the API server rejects its pods: {message.removeprefix('Error creating: ')}", "fix this error")
    alive, wanted = len(target.pods), sum(template.count for template in target.demand.templates)
    fix = f"the others are created when quota is free; see `tenancy usage {namespace_of(target.manifest)}`"
    return Why((), f"{alive} of {plural(wanted, 'pod')} created: {exceeded}", fix)


def _without_pods(target: Target, state: State, lines: Sequence[str]) -> Why:
    if not any(template.count for template in target.demand.templates):
        return Why(lines, "not pending: no pods requested", waits=False)
    if "Pod" in state.missing:
        return Why(lines, "its pods are not readable by you", f"ask {state.missing['Pod'].who}")
    if at(target.manifest, "spec", "suspend") is True:
        return Why(lines, "suspended (spec.suspend is true)", "set spec.suspend to false, or let Kueue do it")
    return Why(lines, "no pods created yet", "check the events of its controller: `kubectl describe`")
