"""Rollouts of Deployments that do not complete: old pods serve, and new ones are rejected, wait or do not get ready."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gpu_tenancy.base.json import at, int_at, maps_at, text_at
from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.base.texts import plural
from gpu_tenancy.inspect.budgets import exceeded_quota
from gpu_tenancy.inspect.pods import Manifest, name_of, namespace_of
from gpu_tenancy.inspect.running import Why
from gpu_tenancy.inspect.target import Target
from gpu_tenancy.kube.waiting import condition, is_true

_LATE: Final = "ProgressDeadlineExceeded"
"""https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#failed-deployment"""
_REMOVES_FIRST: Final = "or set maxUnavailable: 1, so that an old pod is removed first"


def with_rollout(found: Why, target: Target) -> Why:
    """The answer about a Deployment, with what blocks its rollout; as it was if no rollout is in progress."""
    manifest = target.manifest
    wanted = int_at(manifest, "spec", "replicas")
    replicas, new, available = (
        int_at(manifest, "status", key) for key in ("replicas", "updatedReplicas", "availableReplicas")
    )
    rejected = is_true(manifest, "ReplicaFailure")
    if text_at(manifest, "kind") != "Deployment" or not replicas or (replicas <= new and not rejected):
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
    cause = _rejected(manifest) if rejected else next(_not_ready(target, late=late), None)
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
