"""A model server: Deployment or LeaderWorkerSet, Service, route, autoscaler, disruption budget."""

import math
from typing import Any, Final

from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import Deployment, DeploymentSpecArgsDict
from pulumi_kubernetes.core.v1 import Service, ServicePortArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

from gpu_tenancy.model.manifests.jobs import group_template
from gpu_tenancy.model.manifests.labels import COMPONENT, NAME, PART_OF, queued
from gpu_tenancy.model.manifests.pods import container, near, pod_spec, template_metadata
from gpu_tenancy.model.plan.workloads import ALIVE_AFTER, READY_AFTER, PodPlan, ServerPlan
from gpu_tenancy.model.spec.roles import LEADER, LEADER_WORKER_SET, WORKER

from .objects import DO_NOT_AWAIT, Component, Options, http_route
from .scaling import METRICS_PORT, autoscaler, metrics_port, service_monitor
from .secrets import checksums

OF_LEADERS: Final = {COMPONENT: LEADER}
"""Label of leaders."""
_PERIOD: Final = 10
_COUNTED: Final = ("nodeSelector", "affinity", "tolerations", "initContainers")
_OF_CONTAINER: Final = ("containers[0].resources", "containers[0].ports")
REPLACED: Final = (
    "spec.leaderWorkerTemplate.size",
    *(
        f"spec.leaderWorkerTemplate.{template}.spec.{field}"
        for fields in (_COUNTED, _OF_CONTAINER)
        for template in ("leaderTemplate", "workerTemplate")
        for field in fields
    ),
)
"""What Kueue's webhook does not let change, because its Workload has counted it. All else is rolled out.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/leaderworkerset/leaderworkerset_webhook.go,
`SpecShape` in https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/pod/pod.go"""


class ModelServer(Component):
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
    """

    def __init__(self, name: str, server: ServerPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:ModelServer", name, opts)
        self._labels = {NAME: server.name}
        self._shared = {PART_OF: server.service} if server.service else {}
        self._named: ObjectMetaArgsDict = {"name": server.name, "namespace": server.team, "labels": self._labels}
        self.workload = (
            self._groups(f"{name}-leader-worker-set", server, server.worker)
            if server.worker
            else self._deployment(f"{name}-deployment", server)
        )
        self.service = self._service(f"{name}-service", server) if server.has_service else None
        after = self.after(self.service or self.workload)
        place = (server.team, server.name)
        self.route = http_route(f"{name}-route", place, self._labels, server.route, after) if server.route else None
        # 10 % of the pods, rounded up, can be evicted at a time, so that nodes can be drained. Of groups it is one pod,
        # because its whole group restarts with it.
        self.disruption_budget = PodDisruptionBudget(
            f"{name}-disruption-budget",
            metadata=self._named,
            spec={"max_unavailable": 1 if server.worker else "10%", "selector": {"match_labels": self._labels}},
            opts=self.own,
        )
        scraped = server.monitor if self.service else None
        self.monitor = service_monitor(f"{name}-monitor", server, scraped, after) if scraped else None
        self.autoscaler = (
            autoscaler(f"{name}-autoscaler", server, server.scaling, self.after(self.workload))
            if server.scaling
            else None
        )

    def _deployment(self, name: str, server: ServerPlan) -> Deployment:
        labels = self._labels | self._shared | queued(server.queue, server.pod.priority)
        template: Any = {
            "metadata": template_metadata(server.pod, labels, checksums(server.pod.references)),
            "spec": self._pod(server.pod, _container(server)),
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
        metadata: ObjectMetaArgsDict = {**self._named, "labels": labels, "annotations": DO_NOT_AWAIT}
        return Deployment(name, metadata=metadata, spec=spec, opts=self.own)

    def _groups(self, name: str, server: ServerPlan, worker: PodPlan) -> CustomResource:
        """A server whose replicas are groups of nodes.

        Only leaders answer requests, so only they have a port and probes; they are ready when their workers are. Each
        group has a headless Service of its own, named as its leader: with one for all groups, LeaderWorkerSet would
        name it as the server, whose own Service has that name. An autoscaler owns the number of groups, as it does for
        Deployments.
        """
        leader = self._template(LEADER, server.pod, _container(server))
        workers = self._template(WORKER, worker, container(worker, "server"))
        rollout = {"maxSurge": server.rollout.surge, "maxUnavailable": server.rollout.unavailable}
        return CustomResource(
            name,
            *LEADER_WORKER_SET,
            metadata={**self._named, "labels": {**self._labels, **queued(server.queue, server.pod.priority)}},
            spec={
                **({} if server.replicas is None else {"replicas": server.replicas}),
                "leaderWorkerTemplate": group_template(server.nodes, leader, workers),
                "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
                "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rollout},
            },
            opts=ResourceOptions(parent=self, replace_on_changes=list(REPLACED), delete_before_replace=True),
        )

    def _template(self, role: str, pod: PodPlan, own: dict[str, Any]) -> dict[str, Any]:
        metadata = template_metadata(pod, {**self._labels, COMPONENT: role}, checksums(pod.references))
        return {"metadata": metadata, "spec": self._pod(pod, own)}

    def _pod(self, pod: PodPlan, own: dict[str, Any]) -> dict[str, Any]:
        term = {"labelSelector": {"matchLabels": self._labels}, "topologyKey": "kubernetes.io/hostname"}
        apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
        close = near(pod.caches) if pod.caches else {}
        return {**pod_spec(pod, own), "affinity": {**close, "podAntiAffinity": apart}}

    def _service(self, name: str, server: ServerPlan) -> Service:
        ports: list[ServicePortArgsDict] = [{"name": "http", "port": 80, "target_port": "http", "protocol": "TCP"}]
        if metrics_port(server):
            # Not the pods' port number, which could be 80 too.
            ports.append({"name": METRICS_PORT, "port": 9090, "target_port": METRICS_PORT, "protocol": "TCP"})
        answering = (self._shared or self._labels) | (OF_LEADERS if server.worker else {})
        return Service(
            name,
            metadata={**self._named, "annotations": DO_NOT_AWAIT},
            spec={"type": "ClusterIP", "selector": answering, "ports": ports},
            opts=self.own,
        )


def _container(server: ServerPlan) -> dict[str, Any]:
    ports: list[dict[str, Any]] = [{"name": "http", "containerPort": server.port}]
    if metrics := metrics_port(server):
        ports.append({"name": METRICS_PORT, "containerPort": metrics})
    return {
        **container(server.pod, "server"),
        "ports": ports,
        "startupProbe": _probe(server, threshold=math.ceil(server.startup / _PERIOD)),
        "readinessProbe": {**_probe(server, threshold=3), "initialDelaySeconds": READY_AFTER},
        "livenessProbe": {**_probe(server, threshold=3), "initialDelaySeconds": ALIVE_AFTER},
    }


def _probe(server: ServerPlan, *, threshold: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": server.health, "port": "http"},
        "periodSeconds": _PERIOD,
        "timeoutSeconds": 5,
        "failureThreshold": threshold,
    }
