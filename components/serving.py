"""A model server: Deployment or LeaderWorkerSet, Service, route, autoscaler, disruption budget."""

import math
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import Deployment, DeploymentSpecArgsDict
from pulumi_kubernetes.autoscaling.v2 import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerBehaviorArgsDict,
    MetricSpecArgsDict,
    MetricTargetArgsDict,
)
from pulumi_kubernetes.core.v1 import Service, ServicePortArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

from gpu_tenancy.model.manifests.labels import COMPONENT, NAME, PART_OF, queued
from gpu_tenancy.model.manifests.pods import container, near, pod_spec, template_metadata
from gpu_tenancy.model.plan.workloads import ALIVE_AFTER, READY_AFTER, PodPlan, Scaling, ServerPlan
from gpu_tenancy.model.spec.roles import LEADER, WORKER

from .conventions import DO_NOT_AWAIT
from .latency import METRICS_PORT, metrics_port, scaled_object, service_monitor, thousandths
from .leader_worker_sets import OF_LEADERS, server_groups
from .routes import http_route
from .secrets import checksums

_PERIOD = 10

_BEHAVIOR: HorizontalPodAutoscalerBehaviorArgsDict = {
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


class ModelServer(pulumi.ComponentResource):
    """A model server on GPUs that scales with its load.

    A replica is one pod of a Deployment, or a group of pods on several nodes, of which the leader gets the requests.
    The autoscaler owns the number of replicas: the workload does not set it, because each deployment would reset it.
    The autoscaler is a HorizontalPodAutoscaler, or a ScaledObject if KEDA reads the server's latency, never both. The
    image and the source of a custom metric (an adapter, or KEDA and Prometheus) are not managed here.

    Attributes:
        workload: the Deployment or LeaderWorkerSet.
        service: None for a burst, whose pods answer for the Service of their server.
        autoscaler: owner of the number of replicas; None if it is fixed.
        route: of clients outside of the cluster; None without one.
        monitor: the ServiceMonitor; None if Prometheus does not scrape the pods.

    Example:
        >>> ModelServer("ml-serving-model-server", plan(stack).teams[0].servers[0])
    """

    def __init__(self, name: str, server: ServerPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:ModelServer", name, {}, opts)
        self._own = pulumi.ResourceOptions(parent=self)
        self._labels = {NAME: server.name}
        self._shared = {PART_OF: server.service} if server.service else {}
        self._answering = (self._shared or self._labels) | (OF_LEADERS if server.worker else {})
        self.workload = (
            self._groups(f"{name}-leader-worker-set", server, server.worker)
            if server.worker
            else self._deployment(f"{name}-deployment", server)
        )
        self.service = self._service(f"{name}-service", server) if server.has_service else None
        after = self._after(self.service or self.workload)
        place = (server.team, server.name)
        self.route = http_route(f"{name}-route", place, self._labels, server.route, after) if server.route else None
        self.disruption_budget = self._disruption_budget(f"{name}-disruption-budget", server)
        self.monitor = (
            service_monitor(f"{name}-monitor", server, server.monitor, after)
            if server.monitor and self.service
            else None
        )
        self.autoscaler = self._scaler(f"{name}-autoscaler", server, server.scaling) if server.scaling else None

    def _after(self, resource: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=[resource])

    def _metadata(self, server: ServerPlan) -> ObjectMetaArgsDict:
        return {
            "name": server.name,
            "namespace": server.team,
            "labels": self._labels,
            "annotations": DO_NOT_AWAIT,
        }

    def _deployment(self, name: str, server: ServerPlan) -> Deployment:
        labels = self._labels | self._shared | queued(server.queue, server.pod.priority)
        template: Any = {
            "metadata": template_metadata(server.pod, labels, checksums(server.pod.references)),
            "spec": self._pod(server.pod, self._container(server)),
        }
        spec: DeploymentSpecArgsDict = {
            "selector": {"match_labels": self._labels},
            "strategy": {
                "type": "RollingUpdate",
                "rolling_update": {"max_surge": server.rollout.surge, "max_unavailable": server.rollout.unavailable},
            },
            "progress_deadline_seconds": server.progress,
            "template": template,
        }
        if server.replicas is not None:
            spec["replicas"] = server.replicas
        return Deployment(
            name,
            metadata={**self._metadata(server), "labels": labels},
            spec=spec,
            opts=self._own,
        )

    def _groups(self, name: str, server: ServerPlan, worker: PodPlan) -> CustomResource:
        """Only leaders answer requests, so only they have a port and probes; they are ready when their workers are."""
        templates = {
            LEADER: self._template(LEADER, server.pod, self._container(server)),
            WORKER: self._template(WORKER, worker, container(worker, "server")),
        }
        return server_groups(name, server, templates, self)

    def _template(self, role: str, pod: PodPlan, own: dict[str, Any]) -> dict[str, Any]:
        metadata = template_metadata(pod, {**self._labels, COMPONENT: role}, checksums(pod.references))
        return {"metadata": metadata, "spec": self._pod(pod, own)}

    def _container(self, server: ServerPlan) -> dict[str, Any]:
        return {
            **container(server.pod, "server"),
            "ports": _container_ports(server),
            "startupProbe": _probe(server, threshold=math.ceil(server.startup / _PERIOD)),
            "readinessProbe": {**_probe(server, threshold=3), "initialDelaySeconds": READY_AFTER},
            "livenessProbe": {**_probe(server, threshold=3), "initialDelaySeconds": ALIVE_AFTER},
        }

    def _pod(self, pod: PodPlan, own: dict[str, Any]) -> dict[str, Any]:
        apart = {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": self._labels},
                            "topologyKey": "kubernetes.io/hostname",
                        },
                    }
                ]
            }
        }
        close = near(pod.caches) if pod.caches else {}
        return {**pod_spec(pod, own), "affinity": {**close, **apart}}

    def _service(self, name: str, server: ServerPlan) -> Service:
        return Service(
            name,
            metadata=self._metadata(server),
            spec={
                "type": "ClusterIP",
                "selector": self._answering,
                "ports": _service_ports(server),
            },
            opts=self._own,
        )

    def _disruption_budget(self, name: str, server: ServerPlan) -> PodDisruptionBudget:
        """10 % of the pods, rounded up, can be evicted at a time, so that nodes can be drained.

        Of groups it is one pod, because its whole group restarts with it.
        """
        return PodDisruptionBudget(
            name,
            metadata={"name": server.name, "namespace": server.team, "labels": self._labels},
            spec={"max_unavailable": 1 if server.worker else "10%", "selector": {"match_labels": self._labels}},
            opts=self._own,
        )

    def _scaler(self, name: str, server: ServerPlan, scaling: Scaling) -> HorizontalPodAutoscaler | CustomResource:
        if scaling.by_keda:
            return scaled_object(name, server, scaling, _BEHAVIOR, self._after(self.workload))
        return self._autoscaler(name, server, scaling)

    def _autoscaler(self, name: str, server: ServerPlan, scaling: Scaling) -> HorizontalPodAutoscaler:
        api_version, kind = server.api
        return HorizontalPodAutoscaler(
            name,
            metadata=self._metadata(server),
            spec={
                "scale_target_ref": {"api_version": api_version, "kind": kind, "name": server.name},
                "min_replicas": scaling.minimum,
                "max_replicas": scaling.maximum,
                "metrics": _metrics(scaling),
                "behavior": _BEHAVIOR,
            },
            opts=self._after(self.workload),
        )


def _container_ports(server: ServerPlan) -> list[dict[str, Any]]:
    ports: list[dict[str, Any]] = [{"name": "http", "containerPort": server.port}]
    if metrics := metrics_port(server):
        ports.append({"name": METRICS_PORT, "containerPort": metrics})
    return ports


def _service_ports(server: ServerPlan) -> list[ServicePortArgsDict]:
    ports: list[ServicePortArgsDict] = [{"name": "http", "port": 80, "target_port": "http", "protocol": "TCP"}]
    if metrics_port(server):
        # Not the pods' port number, which could be 80 too.
        ports.append({"name": METRICS_PORT, "port": 9090, "target_port": METRICS_PORT, "protocol": "TCP"})
    return ports


def _probe(server: ServerPlan, *, threshold: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": server.health, "port": "http"},
        "periodSeconds": _PERIOD,
        "timeoutSeconds": 5,
        "failureThreshold": threshold,
    }


def _metrics(scaling: Scaling) -> list[MetricSpecArgsDict]:
    metrics: list[MetricSpecArgsDict] = []
    if scaling.cpu is not None:
        target: MetricTargetArgsDict = {"type": "Utilization", "average_utilization": scaling.cpu}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    if scaling.latency:
        metric, seconds = scaling.latency
        # The metric is in seconds, so 100m is 100 ms.
        average: MetricTargetArgsDict = {"type": "AverageValue", "average_value": f"{thousandths(seconds)}m"}
        metrics.append({"type": "Pods", "pods": {"metric": {"name": metric}, "target": average}})
    for signal in scaling.signals:
        average = {"type": "AverageValue", "average_value": f"{thousandths(signal.target)}m"}
        metrics.append({"type": "Pods", "pods": {"metric": {"name": signal.name}, "target": average}})
    return metrics
