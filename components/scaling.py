"""Autoscalers of servers: a HorizontalPodAutoscaler, or KEDA's ScaledObject with the ServiceMonitor that it needs."""

from typing import Any, Final

from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.autoscaling import v2 as autoscaling
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

from gpu_tenancy.model.manifests.pods import NAME
from gpu_tenancy.model.plan.signals import METRICS_PATH, SCRAPE_INTERVAL, Monitor, Signal
from gpu_tenancy.model.plan.workloads import Scaling, ServerPlan

from .objects import DO_NOT_AWAIT, wire

METRICS_PORT: Final = "metrics"
"""Name of the /metrics port if it differs from the request port."""
_FAILURES: Final = 3
"""Number of consecutive failed queries after which KEDA uses the fallback."""
_BEHAVIOR: Final[autoscaling.HorizontalPodAutoscalerBehaviorArgsDict] = {
    "scale_up": {
        "stabilization_window_seconds": 30,
        "policies": [{"type": "Percent", "value": 100, "period_seconds": 15}],
    },
    "scale_down": {
        "stabilization_window_seconds": 300,
        "policies": [{"type": "Percent", "value": 10, "period_seconds": 60}],
    },
}
"""Scale up fast and down slowly: a GPU that is released too early costs the model's loading time."""


def metrics_port(server: ServerPlan) -> int | None:
    """The /metrics port of a scraped server, if it differs from the request port."""
    return server.monitor.port if server.monitor and server.monitor.port != server.port else None


def service_monitor(name: str, server: ServerPlan, monitor: Monitor, opts: ResourceOptions) -> CustomResource:
    """A ServiceMonitor: Prometheus scrapes each pod of a server through the server's Service.

    The scraped series have the labels `namespace`, `service` and `pod`, which the scaling query uses. The release label
    is for a Prometheus that selects only the ServiceMonitors of its own release, which is the default of
    kube-prometheus-stack (`serviceMonitorSelectorNilUsesHelmValues`).
    """
    endpoint = {
        "port": METRICS_PORT if metrics_port(server) else "http",
        "path": METRICS_PATH,
        "interval": f"{SCRAPE_INTERVAL}s",
    }
    labels = {NAME: server.name, "release": monitor.release}
    return CustomResource(
        name,
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        metadata={"name": server.name, "namespace": server.team, "labels": labels},
        spec={"selector": {"matchLabels": {NAME: server.name}}, "endpoints": [endpoint]},
        opts=opts,
    )


def autoscaler(
    name: str, server: ServerPlan, scaling: Scaling, opts: ResourceOptions
) -> autoscaling.HorizontalPodAutoscaler | CustomResource:
    """The autoscaler of a server: KEDA's if it reads a metric by a query, else that of Kubernetes."""
    metadata: ObjectMetaArgsDict = {"name": server.name, "namespace": server.team, "labels": {NAME: server.name}}
    if scaling.by_keda:
        return _scaled_object(name, server, scaling, metadata, opts)
    api_version, kind = server.api
    return autoscaling.HorizontalPodAutoscaler(
        name,
        metadata={**metadata, "annotations": DO_NOT_AWAIT},
        spec={
            "scale_target_ref": {"api_version": api_version, "kind": kind, "name": server.name},
            "min_replicas": scaling.minimum,
            "max_replicas": scaling.maximum,
            "metrics": _metrics(scaling),
            "behavior": _BEHAVIOR,
        },
        opts=opts,
    )


def _metrics(scaling: Scaling) -> list[autoscaling.MetricSpecArgsDict]:
    metrics: list[autoscaling.MetricSpecArgsDict] = []
    if scaling.cpu is not None:
        target: autoscaling.MetricTargetArgsDict = {"type": "Utilization", "average_utilization": scaling.cpu}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    of_pods = [(signal.name, signal.target) for signal in scaling.signals]
    for metric, average in [scaling.latency, *of_pods] if scaling.latency else of_pods:
        # The metric is in seconds, so 100m is 100 ms.
        target = {"type": "AverageValue", "average_value": f"{_thousandths(average)}m"}
        metrics.append({"type": "Pods", "pods": {"metric": {"name": metric}, "target": target}})
    return metrics


def _scaled_object(
    name: str, server: ServerPlan, scaling: Scaling, metadata: ObjectMetaArgsDict, opts: ResourceOptions
) -> CustomResource:
    """A ScaledObject of a server. KEDA creates a HorizontalPodAutoscaler from it, so there must be no other.

    That autoscaler has the server's name, as one without KEDA has. So KEDA takes over an existing one instead of
    rejecting the ScaledObject (`transfer-hpa-ownership`, apis/keda/v1alpha1/scaledobject_webhook.go of KEDA 2.20). To
    switch back, set a fixed number of replicas first. If Prometheus does not respond or does not scrape the pods, the
    server keeps its replicas, and the cpu trigger can still add some. Fallback for a metric of type Value requires
    KEDA 2.18.
    """
    api_version, kind = server.api
    fallback = {
        "failureThreshold": _FAILURES,
        "replicas": max(scaling.minimum, 1),
        "behavior": "currentReplicasIfHigher",
    }
    return CustomResource(
        name,
        "keda.sh/v1alpha1",
        "ScaledObject",
        metadata={**metadata, "annotations": {"scaledobject.keda.sh/transfer-hpa-ownership": "true"}},
        spec={
            "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": server.name},
            "minReplicaCount": scaling.minimum,
            "maxReplicaCount": scaling.maximum,
            "fallback": fallback,
            "advanced": {"horizontalPodAutoscalerConfig": {"name": server.name, "behavior": wire(_BEHAVIOR)}},
            "triggers": _triggers(scaling),
        },
        opts=opts,
    )


def _thousandths(amount: float) -> int:
    """A target in thousandths, the smallest unit of an autoscaler's quantities."""
    return round(amount * 1000)


def _triggers(scaling: Scaling) -> list[dict[str, Any]]:
    triggers: list[dict[str, Any]] = []
    if scaling.cpu is not None:
        triggers.append({"type": "cpu", "metricType": "Utilization", "metadata": {"value": str(scaling.cpu)}})
    signals = scaling.signals
    if scaling.latency and scaling.query:
        signals = (Signal(*scaling.latency, scaling.query), *signals)
    for signal in signals:
        if signal.query is None:
            continue
        # Without pods, nothing measures them: an error would then start one again.
        may_lack = scaling.minimum == 0 and not signal.total
        metadata = {
            "serverAddress": signal.query.address,
            "query": signal.query.expression,
            "threshold": f"{_thousandths(signal.target) / 1000:.3f}".rstrip("0").rstrip("."),
            # A missing value is an error and starts the fallback. An idle server has the value 0.
            "ignoreNullValues": "true" if may_lack else "false",
        }
        # With Value, the number of replicas is pods x value / threshold, as for the average of a pod metric.
        # AverageValue would divide the value by the number of pods again, as if it were a sum over them.
        metric_type = "AverageValue" if signal.total else "Value"
        triggers.append({"type": "prometheus", "name": signal.name, "metricType": metric_type, "metadata": metadata})
    return triggers
