"""Samples of objects as kube-state-metrics names them, those that dashboards, rules and `tenancy replay` use.

Names and labels: https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics, read 2026-11-26.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from gpu_tenancy.base.json import at, int_at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import CPU, MEMORY, parse_quantity
from gpu_tenancy.local.metrics.series import Manifest, Sample

_ROLE: Final = "node-role.kubernetes.io/"
_PHASES: Final = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
_STATUSES: Final = ("true", "false", "unknown")


def state_samples(list_kind: Callable[[str, str], tuple[Manifest, ...]]) -> Iterator[Sample]:
    """The samples of all objects; `list_kind` returns those of an API version and a kind."""
    for (version, kind), samples in _KINDS.items():
        for manifest in list_kind(version, kind):
            yield from samples(manifest)


def _node(node: Manifest) -> Iterator[Sample]:
    of = {"node": text_at(node, "metadata", "name")}
    addresses = {text_at(one, "type"): text_at(one, "address") for one in maps_at(node, "status", "addresses")}
    yield "kube_node_info", {**of, "internal_ip": addresses.get("InternalIP", "")}, 1
    for label in texts_at(node, "metadata", "labels"):
        if label.startswith(_ROLE):
            yield "kube_node_role", {**of, "role": label.removeprefix(_ROLE)}, 1
    for field in ("capacity", "allocatable"):
        for resource, amount in texts_at(node, "status", field).items():
            yield f"kube_node_status_{field}", {**of, **_unit(resource)}, float(parse_quantity(amount))
    for one in maps_at(node, "status", "conditions"):
        yield from _condition("kube_node_status_condition", {**of, "condition": text_at(one, "type")}, one, "status")


def _pod(pod: Manifest) -> Iterator[Sample]:
    of = _named(pod, "pod")
    node = {"node": text_at(pod, "spec", "nodeName")}
    owners = [one for one in maps_at(pod, "metadata", "ownerReferences") if one.get("controller")]
    maker = {f"created_by_{key}": text_at(owner, key) for owner in owners for key in ("kind", "name")}
    yield "kube_pod_info", {**of, **node, **maker}, 1
    for phase in _PHASES:
        yield "kube_pod_status_phase", {**of, "phase": phase}, phase == text_at(pod, "status", "phase")
    yield from _time("kube_pod_start_time", of, text_at(pod, "status", "startTime"))
    statuses = maps_at(pod, "status", "containerStatuses")
    ends = [text_at(one, "state", "terminated", "finishedAt") for one in statuses]
    yield from _time("kube_pod_completion_time", of, max(ends, default=""))
    for container in maps_at(pod, "spec", "containers"):
        labels = {**of, "container": text_at(container, "name"), **node}
        for resource, amount in texts_at(container, "resources", "requests").items():
            requested = float(parse_quantity(amount))
            yield "kube_pod_container_resource_requests", {**labels, **_unit(resource)}, requested


def _job(job: Manifest) -> Iterator[Sample]:
    of = _named(job, "job_name")
    for owner in maps_at(job, "metadata", "ownerReferences") or [{}]:
        named = {"owner_kind": text_at(owner, "kind"), "owner_name": text_at(owner, "name")}
        yield "kube_job_owner", {**of, **named}, 1
    yield from _time("kube_job_created", of, text_at(job, "metadata", "creationTimestamp"))
    yield from _time("kube_job_status_start_time", of, text_at(job, "status", "startTime"))
    yield from _time("kube_job_status_completion_time", of, text_at(job, "status", "completionTime"))
    yield "kube_job_spec_parallelism", of, int_at(job, "spec", "parallelism", otherwise=1)
    yield "kube_job_status_active", of, int_at(job, "status", "active")
    conditions = {text_at(one, "type"): one for one in maps_at(job, "status", "conditions")}
    reason = text_at(conditions.get("Failed", {}), "reason")
    yield "kube_job_status_failed", {**of, "reason": reason}, int_at(job, "status", "failed")
    for metric, kind in _JOB_CONDITIONS.items():
        if kind in conditions:
            yield from _condition(metric, of, conditions[kind], "condition")


_JOB_CONDITIONS: Final = {
    "kube_job_status_suspended": "Suspended",
    "kube_job_complete": "Complete",
    "kube_job_failed": "Failed",
}


def _resource_quota(quota: Manifest) -> Iterator[Sample]:
    of = _named(quota, "resourcequota")
    for kind in ("hard", "used"):
        for resource, amount in texts_at(quota, "status", kind).items():
            labels = {**of, "resource": resource, "type": kind}
            yield "kube_resourcequota", labels, float(parse_quantity(amount))


def _deployment(deployment: Manifest) -> Iterator[Sample]:
    of = _named(deployment, "deployment")
    for one in maps_at(deployment, "status", "conditions"):
        labels = {**of, "reason": text_at(one, "reason"), "condition": text_at(one, "type")}
        yield from _condition("kube_deployment_status_condition", labels, one, "status")


def _autoscaler(autoscaler: Manifest) -> Iterator[Sample]:
    of = _named(autoscaler, "horizontalpodautoscaler")
    replicas = {
        "status_current": at(autoscaler, "status", "currentReplicas") or 0,
        "status_desired": at(autoscaler, "status", "desiredReplicas") or 0,
        "spec_min": at(autoscaler, "spec", "minReplicas") or 1,
        "spec_max": at(autoscaler, "spec", "maxReplicas") or 0,
    }
    for name, value in replicas.items():
        yield f"kube_horizontalpodautoscaler_{name}_replicas", of, value if isinstance(value, int) else 0


_KINDS: Final[dict[tuple[str, str], Callable[[Manifest], Iterator[Sample]]]] = {
    ("v1", "Node"): _node,
    ("v1", "Pod"): _pod,
    ("v1", "ResourceQuota"): _resource_quota,
    ("batch/v1", "Job"): _job,
    ("apps/v1", "Deployment"): _deployment,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): _autoscaler,
}


def _named(manifest: Manifest, label: str) -> dict[str, str]:
    metadata = map_at(manifest, "metadata")
    return {"namespace": text_at(metadata, "namespace"), label: text_at(metadata, "name")}


def _unit(resource: str) -> dict[str, str]:
    """The labels of a resource, whose name has letters, digits and `_` only."""
    in_bytes = resource in {MEMORY, "ephemeral-storage"} or resource.startswith("hugepages-")
    unit = "core" if resource == CPU else "byte" if in_bytes else "integer"
    return {"resource": re.sub(r"\W", "_", resource, flags=re.ASCII), "unit": unit}


def _condition(metric: str, labels: dict[str, str], condition: Manifest, label: str) -> Iterator[Sample]:
    """A sample for each status that a condition can have; that of the one it has is 1."""
    for status in _STATUSES:
        yield metric, {**labels, label: status}, status == text_at(condition, "status").lower()


def _time(metric: str, labels: dict[str, str], written: str) -> Iterator[Sample]:
    if written:
        yield metric, labels, datetime.fromisoformat(written).timestamp()
