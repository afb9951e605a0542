"""Latency scaling: a ServiceMonitor that scrapes the server's histogram, and a KEDA ScaledObject that scales on it."""

from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.autoscaling.v2 import HorizontalPodAutoscalerBehaviorArgsDict

from gpu_tenancy.model.manifests.labels import NAME
from gpu_tenancy.model.plan.signals import METRICS_PATH, SCRAPE_INTERVAL, Monitor, Query, Signal
from gpu_tenancy.model.plan.workloads import Scaling, ServerPlan

from .conventions import wire

METRICS_PORT = "metrics"
"""Name of the /metrics port if it differs from the request port."""

_FAILURES = 3
"""Number of consecutive failed queries after which KEDA uses the fallback."""


def metrics_port(server: ServerPlan) -> int | None:
    """The /metrics port of a scraped server, if it differs from the request port."""
    return server.monitor.port if server.monitor and server.monitor.port != server.port else None


def service_monitor(name: str, server: ServerPlan, monitor: Monitor, options: pulumi.ResourceOptions) -> CustomResource:
    """A ServiceMonitor: Prometheus scrapes each pod of a server through the server's Service.

    The scraped series have the labels `namespace`, `service` and `pod`, which the scaling query uses. The release label
    is for a Prometheus that selects only the ServiceMonitors of its own release, which is the default of
    kube-prometheus-stack (`serviceMonitorSelectorNilUsesHelmValues`).
    """
    return CustomResource(
        name,
        api_version="monitoring.coreos.com/v1",
        kind="ServiceMonitor",
        metadata={
            "name": server.name,
            "namespace": server.team,
            "labels": {NAME: server.name, "release": monitor.release},
        },
        spec={
            "selector": {"matchLabels": {NAME: server.name}},
            "endpoints": [
                {
                    "port": METRICS_PORT if metrics_port(server) else "http",
                    "path": METRICS_PATH,
                    "interval": f"{SCRAPE_INTERVAL}s",
                }
            ],
        },
        opts=options,
    )


def scaled_object(
    name: str,
    server: ServerPlan,
    scaling: Scaling,
    behavior: HorizontalPodAutoscalerBehaviorArgsDict,
    options: pulumi.ResourceOptions,
) -> CustomResource:
    """A ScaledObject of a server. KEDA creates a HorizontalPodAutoscaler from it, so there must be no other.

    That autoscaler has the server's name, as one without KEDA has. So KEDA takes over an existing one instead of
    rejecting the ScaledObject (`transfer-hpa-ownership`, apis/keda/v1alpha1/scaledobject_webhook.go of KEDA 2.20). To
    switch back, set a fixed number of replicas first. If Prometheus does not respond or does not scrape the pods, the
    server keeps its replicas, and the cpu trigger can still add some. Fallback for a metric of type Value requires
    KEDA 2.18.
    """
    api_version, kind = server.api
    return CustomResource(
        name,
        api_version="keda.sh/v1alpha1",
        kind="ScaledObject",
        metadata={
            "name": server.name,
            "namespace": server.team,
            "labels": {NAME: server.name},
            "annotations": {"scaledobject.keda.sh/transfer-hpa-ownership": "true"},
        },
        spec={
            "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": server.name},
            "minReplicaCount": scaling.minimum,
            "maxReplicaCount": scaling.maximum,
            "fallback": {
                "failureThreshold": _FAILURES,
                "replicas": max(scaling.minimum, 1),
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"name": server.name, "behavior": wire(behavior)}},
            "triggers": _triggers(scaling),
        },
        opts=options,
    )


def thousandths(seconds: float) -> int:
    """A target in thousandths, the smallest unit of an autoscaler's quantities."""
    return round(seconds * 1000)


def _triggers(scaling: Scaling) -> list[dict[str, Any]]:
    triggers: list[dict[str, Any]] = []
    if scaling.cpu is not None:
        triggers.append({"type": "cpu", "metricType": "Utilization", "metadata": {"value": str(scaling.cpu)}})
    signals = scaling.signals
    if scaling.latency and scaling.query:
        signals = (Signal(*scaling.latency, scaling.query), *signals)
    # Without pods, nothing measures them: an error would then start one again.
    may_lack = scaling.minimum == 0
    triggers += [
        _prometheus(signal, signal.query, may_lack=may_lack and not signal.total) for signal in signals if signal.query
    ]
    return triggers


def _prometheus(signal: Signal, query: Query, *, may_lack: bool) -> dict[str, Any]:
    return {
        "type": "prometheus",
        "name": signal.name,
        # The number of replicas is then pods x value / threshold, as for the average of a pod metric. AverageValue
        # would divide the value by the number of pods again, as if it were a sum over them.
        "metricType": "AverageValue" if signal.total else "Value",
        "metadata": {
            "serverAddress": query.address,
            "query": query.expression,
            "threshold": f"{thousandths(signal.target) / 1000:.3f}".rstrip("0").rstrip("."),
            # A missing value is an error and starts the fallback. An idle server has the value 0.
            "ignoreNullValues": "true" if may_lack else "false",
        },
    }
