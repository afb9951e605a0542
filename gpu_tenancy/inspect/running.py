"""Pods that do not run: rejected by the API server, without a node, or with containers that do not start."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.inspect import narrative
from gpu_tenancy.inspect.api_messages import is_exceeded_quota
from gpu_tenancy.inspect.caches import waits_for_cache
from gpu_tenancy.inspect.nodes import judge_nodes
from gpu_tenancy.inspect.placing import spots
from gpu_tenancy.inspect.pods import Manifest, called, home, requests
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.inspect.target import Target, owners
from gpu_tenancy.inspect.verdicts import Blocked, Why
from gpu_tenancy.inspect.workloads import PodSet
from gpu_tenancy.kube.waiting import condition

_GATE: Final = "kueue.x-k8s.io/admission"
_NO_DEVICE: Final = "cannot allocate all claims"
"""The scheduler's words about a node on which a claim of a pod finds no free device:
https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go"""


def rejected_pods(target: Target, state: State) -> tuple[str, ...]:
    """Messages of the API server that rejected pods of an object, newest first; none if it got its pods since."""
    uids = {target.uid, *(owner for pod in target.pods for owner in owners(pod))}
    names = {called(target.manifest)}
    events = [
        event
        for event in state.of("Event", home(target.manifest))
        if text_at(event, "reason") == "FailedCreate"
        and (text_at(event, "involvedObject", "uid") in uids or _of(event, names))
    ]
    latest = sorted(events, key=_when, reverse=True)
    if len(target.pods) >= sum(template.count for template in target.demand.templates):
        return ()
    return tuple(dict.fromkeys(text_at(event, "message") for event in latest[:3]))


def _of(event: Manifest, names: Iterable[str]) -> bool:
    """Whether an event is about something that an object created, such as a Deployment's ReplicaSet."""
    about = text_at(event, "involvedObject", "name")
    return any(about == name or about.startswith(f"{name}-") for name in names)


def _when(event: Manifest) -> str:
    return (
        text_at(event, "lastTimestamp")
        or text_at(event, "eventTime")
        or text_at(event, "metadata", "creationTimestamp")
    )


def blocked_pods(pods: Sequence[Manifest], state: State) -> Blocked | None:
    """What blocks the first pods that do not run; None where all run or are about to."""
    without_node = [pod for pod in pods if not text_at(pod, "spec", "nodeName")]
    if gated := [pod for pod in without_node if maps_at(pod, "spec", "schedulingGates")]:
        return _gated(gated)
    if unplaced := [pod for pod in without_node if text_at(condition(pod, "PodScheduled"), "status") == "False"]:
        return _unplaced(unplaced, state)
    if stuck := [message for pod in pods if (message := _stuck(pod))]:
        return Blocked(tuple(dict.fromkeys(stuck)), *narrative.not_started(stuck[0]))
    if without_node:
        return Blocked((), *narrative.not_scheduled_yet(len(without_node)))
    return None


def _gated(pods: Sequence[Manifest]) -> Blocked:
    gates = sorted({text_at(gate, "name") for pod in pods for gate in maps_at(pod, "spec", "schedulingGates")})
    return Blocked((), *narrative.gated(len(pods), gates, by_kueue=_GATE in gates))


def _unplaced(pods: Sequence[Manifest], state: State) -> Blocked:
    first = pods[0]
    message = text_at(condition(first, "PodScheduled"), "message")
    lines = [narrative.unschedulable(len(pods), called(first), message)]
    claims = _claims(first, state)
    spec = at(first, "spec")
    if claims:
        return Blocked((*lines, *claims), *narrative.volumes_not_ready(claims[0]))
    if _NO_DEVICE in message and maps_at(first, "spec", "resourceClaims"):
        return Blocked(tuple(lines), *narrative.CHANNELS_TAKEN)
    if not state.knows("Node") or not isinstance(spec, dict):
        lines += [narrative.missing_text(missing) for missing in state.refused("Node")]
        return Blocked(tuple(lines), *narrative.UNPLACED)
    nodes = spots(state.of("Node"), state.of("Pod"))
    answer, _ = judge_nodes(nodes, PodSet("pod", len(pods), requests(spec), spec))
    why = message if answer.verdict == "now" else answer.lines[0]
    return Blocked((*lines, *answer.lines), *narrative.unplaced(why, answer.verdict))


def _claims(pod: Manifest, state: State) -> tuple[str, ...]:
    """The pod's claims that are missing or not bound."""
    if not state.knows("PersistentVolumeClaim"):
        return ()
    claims = state.of("PersistentVolumeClaim", home(pod))
    phases = {called(claim): text_at(claim, "status", "phase") for claim in claims}
    wanted = [text_at(volume, "persistentVolumeClaim", "claimName") for volume in maps_at(pod, "spec", "volumes")]
    return tuple(
        waits_for_cache(state, home(pod), name) or narrative.not_bound(name, phases.get(name, ""))
        for name in wanted
        if name and phases.get(name) != "Bound"
    )


def _stuck(pod: Manifest) -> str:
    """Why a container of a scheduled pod does not start; empty where it does or is about to."""
    for status in (*maps_at(pod, "status", "initContainerStatuses"), *maps_at(pod, "status", "containerStatuses")):
        reason, message = (text_at(status, "state", "waiting", key) for key in ("reason", "message"))
        if reason and reason not in {"ContainerCreating", "PodInitializing"}:
            return narrative.container_error(text_at(status, "name"), reason, message)
    return ""


def running(target: Target, state: State, lines: tuple[str, ...]) -> Why:
    """Whether the pods of an object that waits in no queue run, and what blocks those that do not."""
    rejected = rejected_pods(target, state)
    if rejected:
        quota = any(is_exceeded_quota(message) for message in rejected[:1])
        fix = narrative.release_quota(home(target.manifest)) if quota else narrative.FIX_THIS_ERROR
        messages = (narrative.pod_rejected(message) for message in rejected)
        return Why(target.title, (*lines, *messages), narrative.PODS_REJECTED, fix)
    blocked = blocked_pods(target.pods, state)
    alive = sum(1 for pod in target.pods if text_at(pod, "status", "phase") == "Running")
    if blocked:
        others = [narrative.others_running(alive)] if alive else []
        return Why(target.title, (*lines, *others, *blocked.lines), blocked.reason, blocked.fix)
    wanted = sum(template.count for template in target.demand.templates)
    if alive or not wanted:
        reason = narrative.not_pending(alive) if alive else narrative.NO_PODS_REQUESTED
        return Why(target.title, lines, reason, "", waits=False)
    return Why(target.title, lines, *_no_pods(target, state))


def _no_pods(target: Target, state: State) -> tuple[str, str]:
    """Why there are no pods, and the fix."""
    if "Pod" in state.missing:
        return narrative.pods_unreadable(state.missing["Pod"].who)
    if at(target.manifest, "spec", "suspend") is True:
        return narrative.SUSPENDED
    return narrative.NO_PODS_YET
