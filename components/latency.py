"""What a server that scales on a histogram of its own needs: its scraping, and KEDA's autoscaler."""

from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.autoscaling.v2 import HorizontalPodAutoscalerBehaviorArgsDict

from gpu_tenancy.model.plan.latency import METRICS_PATH, SCRAPE_INTERVAL, Monitor, Query
from gpu_tenancy.model.plan.workloads import Scaling, ServerPlan

from .conventions import NAME
from .wire import wire

METRICS_PORT = "metrics"
"""Name of the port of /metrics where it is not that of the requests."""

_FAILURES = 3
"""How often in a row Prometheus may have no answer before the fallback counts."""


def metrics_port(server: ServerPlan) -> int | None:
    """The port of /metrics, where it is scraped and is not the one of the requests."""
    return server.monitor.port if server.monitor and server.monitor.port != server.port else None


def service_monitor(name: str, server: ServerPlan, monitor: Monitor, options: pulumi.ResourceOptions) -> CustomResource:
    """Tells Prometheus to scrape each pod of a server, through the server's Service.

    What comes in carries the labels `namespace`, `service` and `pod`, on which the query rests. The release label is
    for a Prometheus that takes only its own release's monitors, as kube-prometheus-stack's does unless told otherwise
    (`serviceMonitorSelectorNilUsesHelmValues`).
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
    """KEDA's autoscaler of a server. KEDA makes a HorizontalPodAutoscaler from it, so there must be no other.

    That autoscaler has the server's name, as one made without KEDA has: a server that had one hands it over instead of
    being refused by KEDA's webhook (`transfer-hpa-ownership`, apis/keda/v1alpha1/scaledobject_webhook.go of KEDA
    2.20). The way back leads through a fixed number of replicas. Where Prometheus does not answer, or the pods are not
    scraped, the server keeps the pods that it has and cpu can still raise them; fallback for a metric of type Value
    came with KEDA 2.18.
    """
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
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": server.name},
            "minReplicaCount": scaling.least,
            "maxReplicaCount": scaling.most,
            "fallback": {
                "failureThreshold": _FAILURES,
                "replicas": scaling.least,
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"name": server.name, "behavior": wire(behavior)}},
            "triggers": _triggers(scaling),
        },
        opts=options,
    )


def thousandths(seconds: float) -> int:
    """A target in the finest steps that an autoscaler knows."""
    return round(seconds * 1000)


def _triggers(scaling: Scaling) -> list[dict[str, Any]]:
    triggers: list[dict[str, Any]] = []
    if scaling.cpu is not None:
        triggers.append({"type": "cpu", "metricType": "Utilization", "metadata": {"value": str(scaling.cpu)}})
    if scaling.latency and scaling.query:
        metric, seconds = scaling.latency
        triggers.append(_prometheus(metric, seconds, scaling.query))
    return triggers


def _prometheus(metric: str, seconds: float, query: Query) -> dict[str, Any]:
    return {
        "type": "prometheus",
        "name": metric,
        # Pods x value / threshold, as an autoscaler reckons with the average of a pod metric. AverageValue would divide
        # the value by the pods once more, as if it were a sum over them.
        "metricType": "Value",
        "metadata": {
            "serverAddress": query.address,
            "query": query.expression,
            "threshold": f"{thousandths(seconds) / 1000:.3f}".rstrip("0").rstrip("."),
            # No value is an error and leads to the fallback; an idle server has one, which is 0.
            "ignoreNullValues": "false",
        },
    }
