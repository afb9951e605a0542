"""Samples of objects, simulated GPUs and servers, with the names of kube-state-metrics and dcgm-exporter.

Names and labels of objects: https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics, read 2026-11-26.
Form: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from gpu_tenancy.base.json import Json, int_at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import CPU, MEMORY, parse_quantity
from gpu_tenancy.cluster.pods import ended, requests
from gpu_tenancy.model.catalogue import PRODUCT_LABELS, find_gpu
from gpu_tenancy.model.plan.workloads import ServerPlan

Manifest: TypeAlias = Mapping[str, Json]
Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""A metric, its labels and its value. All are gauges; an empty label is the same as none."""


def exposition(samples: Iterable[Sample], help_text: str) -> str:
    """The text of samples, with the same help for each metric."""
    by_metric: dict[str, list[str]] = {}
    for metric, labels, value in samples:
        escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
        pairs = ",".join(f'{name}="{text.translate(escapes)}"' for name, text in labels.items() if text)
        by_metric.setdefault(metric, []).append(f"{metric}{{{pairs}}} {value:.15g}")
    lines: list[str] = []
    for metric, found in by_metric.items():
        lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} gauge", *found]
    return "\n".join([*lines, ""])


_GPU: Final = "nvidia.com/gpu"
_PRODUCT: Final = PRODUCT_LABELS["nvidia.com"]
_NAME: Final = "app.kubernetes.io/name"
_USE: Final = "gpu-tenancy.dev/simulated-gpu-use"  # annotation of a pod whose GPUs are used by at most these percent
_MIB: Final = 2**20
_UNKNOWN_MEMORY: Final = 16 * 2**30  # bytes of a GPU whose model is not in the catalogue


class Devices:
    """The GPUs of simulated nodes. A pod keeps its GPUs until it ends, as with a real device plugin.

    Names and labels: https://github.com/NVIDIA/dcgm-exporter/blob/4.5.3-4.8.2/internal/pkg/rendermetrics, read
    2026-11-21. The values are not measured: a GPU of a running pod is busy and filled by a share that follows from its
    name and the minute, and any other is idle.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], str] = {}

    def samples(self, nodes: Iterable[Manifest], pods: Sequence[Manifest], now: float) -> Iterator[Sample]:
        """The samples of all whole GPUs of NVIDIA's at a moment, in seconds since 1970."""
        counts: dict[str, int] = {}
        products: dict[str, str] = {}
        for item in nodes:
            name, product = text_at(item, "metadata", "name"), text_at(item, "metadata", "labels", _PRODUCT)
            whole = int(texts_at(item, "status", "capacity").get(_GPU, "0"))
            if whole and "-SHARED" not in product:  # of shared GPUs, the node does not say how many there are
                counts[name], products[name] = whole, product or "unknown"
        by_uid = {text_at(pod, "metadata", "uid"): pod for pod in pods if not ended(pod)}
        self._hand_out(counts, by_uid)
        for node, count in counts.items():
            product = products[node]
            model = find_gpu(product)
            memory = (model.memory if model and model.memory else _UNKNOWN_MEMORY) // _MIB
            for number in range(count):
                pod = by_uid.get(self._held.get((node, number), ""), {})
                labels = {
                    "gpu": str(number),
                    "UUID": f"GPU-{node}-{number}",
                    "device": f"nvidia{number}",
                    "modelName": product.replace("-", " "),
                    "Hostname": node,
                    "namespace": text_at(pod, "metadata", "namespace"),
                    "pod": text_at(pod, "metadata", "name"),
                }
                busy = _busy(f"{node}-{number}", now) if text_at(pod, "status", "phase") == "Running" else 0
                busy = min(busy, int(text_at(pod, "metadata", "annotations", _USE) or 100))
                used = memory * min(95, busy + 5) // 100 if busy else 0
                values = {"GPU_UTIL": busy, "FB_USED": used, "FB_FREE": memory - used, "XID_ERRORS": 0}
                for field, value in {**values, "GPU_TEMP": 30 + busy // 2}.items():
                    yield f"DCGM_FI_DEV_{field}", labels, value
                yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, busy / 100

    def _hand_out(self, counts: dict[str, int], pods: dict[str, Manifest]) -> None:
        self._held = {
            (node, number): uid for (node, number), uid in self._held.items() if uid in pods and number < counts[node]
        }
        served = set(self._held.values())
        for uid, pod in pods.items():
            node = text_at(pod, "spec", "nodeName")
            if uid not in served and node in counts:
                free = [number for number in range(counts[node]) if (node, number) not in self._held]
                for number in free[: requests(map_at(pod, "spec")).get(_GPU, 0)]:
                    self._held[node, number] = uid


def latency_samples(servers: Iterable[ServerPlan], pods: Iterable[Manifest], now: float) -> Iterator[Sample]:
    """The latency of running pods of servers that scale by it: about as much as their target, in seconds."""
    targets = {
        (server.team, server.name): server.scaling.latency
        for server in servers
        if server.scaling and server.scaling.latency
    }
    for pod in pods:
        metadata = map_at(pod, "metadata")
        namespace, name = text_at(metadata, "namespace"), text_at(metadata, "name")
        latency = targets.get((namespace, texts_at(metadata, "labels").get(_NAME, "")))
        if latency and text_at(pod, "status", "phase") == "Running":
            metric, target = latency
            yield metric, {"namespace": namespace, "pod": name}, target * _busy(name, now) / 100


def _busy(name: str, now: float) -> int:
    """A share in percent, from 55 to 98, another one each minute."""
    return 55 + zlib.crc32(f"{name} {now // 60:.0f}".encode()) % 44


_ROLE: Final = "node-role.kubernetes.io/"
_PHASES: Final = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
_STATUSES: Final = ("true", "false", "unknown")


def state_samples(list_kind: Callable[[str, str], tuple[Manifest, ...]]) -> Iterator[Sample]:
    """The samples of all objects; `list_kind` returns objects of an API version and a kind."""
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
    yield "kube_pod_info", {**of, **node, **maker, "priority_class": text_at(pod, "spec", "priorityClassName")}, 1
    for phase in _PHASES:
        yield "kube_pod_status_phase", {**of, "phase": phase}, phase == text_at(pod, "status", "phase")
    yield from _time("kube_pod_start_time", of, text_at(pod, "status", "startTime"))
    yield from _time("kube_pod_deletion_timestamp", of, text_at(pod, "metadata", "deletionTimestamp"))
    ends = [text_at(one, "state", "terminated", "finishedAt") for one in maps_at(pod, "status", "containerStatuses")]
    yield from _time("kube_pod_completion_time", of, max(ends, default=""))
    for container in maps_at(pod, "spec", "containers"):
        labels = {**of, "container": text_at(container, "name"), **node}
        for resource, amount in texts_at(container, "resources", "requests").items():
            yield "kube_pod_container_resource_requests", {**labels, **_unit(resource)}, float(parse_quantity(amount))


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
    for kind in ("hard", "used"):
        for resource, amount in texts_at(quota, "status", kind).items():
            labels = {**_named(quota, "resourcequota"), "resource": resource, "type": kind}
            yield "kube_resourcequota", labels, float(parse_quantity(amount))


def _deployment(deployment: Manifest) -> Iterator[Sample]:
    for one in maps_at(deployment, "status", "conditions"):
        named = _named(deployment, "deployment")
        labels = {**named, "reason": text_at(one, "reason"), "condition": text_at(one, "type")}
        yield from _condition("kube_deployment_status_condition", labels, one, "status")


def _autoscaler(autoscaler: Manifest) -> Iterator[Sample]:
    of = _named(autoscaler, "horizontalpodautoscaler")
    for name, value in {
        "status_current": int_at(autoscaler, "status", "currentReplicas"),
        "status_desired": int_at(autoscaler, "status", "desiredReplicas"),
        "spec_min": int_at(autoscaler, "spec", "minReplicas", otherwise=1),
        "spec_max": int_at(autoscaler, "spec", "maxReplicas"),
    }.items():
        yield f"kube_horizontalpodautoscaler_{name}_replicas", of, value


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
    """A sample for each possible status of a condition; the present one is 1."""
    for status in _STATUSES:
        yield metric, {**labels, label: status}, status == text_at(condition, "status").lower()


def _time(metric: str, labels: dict[str, str], written: str) -> Iterator[Sample]:
    if written:
        yield metric, labels, datetime.fromisoformat(written).timestamp()
