"""Rollouts that do not complete: old pods serve, and new ones are rejected, wait, end or do not get ready."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gpu_tenancy.base.json import at, int_at, maps_at, text_at
from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.base.texts import plural
from gpu_tenancy.inspect.budgets import exceeded_quota
from gpu_tenancy.inspect.pods import Manifest, name_of, namespace_of
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.inspect.running import Why, happened
from gpu_tenancy.inspect.target import Target
from gpu_tenancy.kube.waiting import condition, is_true

_LATE: Final = "ProgressDeadlineExceeded"
"""https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#failed-deployment"""
_REMOVES_FIRST: Final = "or set maxUnavailable: 1, so that an old pod is removed first"
_ANSWERING: Final = {"Deployment": "availableReplicas", "LeaderWorkerSet": "readyReplicas"}
"""Kinds that are rolled out, each with the field of its status that counts the replicas that serve."""
_RECREATED: Final = "RecreateGroup"
"""Reason of the event of a LeaderWorkerSet by which it replaces all pods of a group because one of them ended:
https://github.com/kubernetes-sigs/lws/blob/v0.9.0/pkg/controllers/pod_controller.go"""


def with_rollout(found: Why, target: Target, state: State) -> Why:
    """The answer about a server, with what blocks its rollout; as it was if no rollout is in progress.

    Of a LeaderWorkerSet, replicas are groups, and there is no deadline that says whether it is late.
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
        return f"new pods are rejected: {exceeded}", fix
    return f"new pods are rejected: {message}", "fix this error"


def _recreated(target: Target, state: State) -> Iterator[tuple[str, str]]:
    """Groups that a LeaderWorkerSet recreated since the rollout began: their pods are too new to tell why."""
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
    """New pods whose containers ended, or, if the rollout is late, do not get ready."""
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
