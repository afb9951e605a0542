"""A model server: Deployment or LeaderWorkerSet, Service, route, autoscaler, disruption budget.

The autoscaler is a HorizontalPodAutoscaler, or KEDA's ScaledObject with the ServiceMonitor that it needs.
"""

import math
from typing import Any, Final

from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import Deployment, DeploymentSpecArgsDict
from pulumi_kubernetes.autoscaling import v2 as autoscaling
from pulumi_kubernetes.core.v1 import Service, ServicePortArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

from gpu_tenancy.model.manifests import pods
from gpu_tenancy.model.manifests.jobs import group_template
from gpu_tenancy.model.plan.signals import METRICS_PATH, SCRAPE_INTERVAL, Monitor, Signal
from gpu_tenancy.model.plan.workloads import PodPlan, Scaling, ServerPlan
from gpu_tenancy.model.spec.roles import LEADER, LEADER_WORKER_SET, WORKER
from gpu_tenancy.model.spec.workloads import Pace

from .objects import DO_NOT_AWAIT, Component, Options, http_route, wire
from .secrets import checksums

OF_LEADERS: Final = {pods.COMPONENT: LEADER}  # label of leaders
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
"""Fields that Kueue's webhook does not let change, because its Workload has counted them:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/leaderworkerset/leaderworkerset_webhook.go,
`SpecShape` in https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/pod/pod.go"""

_METRICS_PORT: Final = "metrics"  # name of the /metrics port if it differs from the request port
_FAILURES: Final = 3  # number of consecutive failed queries after which KEDA uses the fallback


class ModelServer(Component):
    """A model server on GPUs that scales with its load.

    A replica is one pod of a Deployment, or a group of pods on several nodes, whose leader gets the requests. The
    autoscaler owns the number of replicas, which `workload` does not set, because each deployment would reset it. It is
    a HorizontalPodAutoscaler, or a ScaledObject if KEDA reads the server's latency, never both. The image and the
    source of a custom metric (an adapter, or KEDA and Prometheus) are not managed here.

    Attributes:
        service: None for a burst, whose pods answer for the Service of their server.
        autoscaler: None if the number of replicas is fixed.
        route: of clients outside of the cluster; None without one.
        monitor: the ServiceMonitor; None if Prometheus does not scrape the pods.
    """

    def __init__(self, name: str, server: ServerPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:ModelServer", name, opts)
        self._labels = {pods.NAME: server.name}
        self._shared = {pods.PART_OF: server.spec.service} if server.spec.burst else {}
        self._named: ObjectMetaArgsDict = {"name": server.name, "namespace": server.team, "labels": self._labels}
        self.workload = (
            self._groups(f"{name}-leader-worker-set", server, server.worker)
            if server.worker
            else self._deployment(f"{name}-deployment", server)
        )
        self.service = self._service(f"{name}-service", server) if server.spec.has_service else None
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
        self.monitor = _service_monitor(f"{name}-monitor", server, scraped, after) if scraped else None
        self.autoscaler = (
            _autoscaler(f"{name}-autoscaler", server, server.scaling, self.after(self.workload))
            if server.scaling
            else None
        )

    def _deployment(self, name: str, server: ServerPlan) -> Deployment:
        labels = self._labels | self._shared | pods.queued(server.team, server.pod.priority)
        template: Any = {
            "metadata": pods.template_metadata(server.pod, labels, checksums(server.pod.references)),
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
        """A server whose replicas are groups of nodes; an autoscaler owns the number of groups."""
        # Only leaders have a port and probes; they are ready when their workers are. Each group has its own headless
        # Service, named as its leader: a common one would have the name of the server's own Service.
        leader = self._template(LEADER, server.pod, _container(server))
        workers = self._template(WORKER, worker, pods.container(worker, "server"))
        rollout = {"maxSurge": server.rollout.surge, "maxUnavailable": server.rollout.unavailable}
        return CustomResource(
            name,
            *LEADER_WORKER_SET,
            metadata={**self._named, "labels": {**self._labels, **pods.queued(server.team, server.pod.priority)}},
            spec={
                **({} if server.replicas is None else {"replicas": server.replicas}),
                "leaderWorkerTemplate": group_template(server.spec.nodes, leader, workers),
                "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
                "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rollout},
            },
            opts=ResourceOptions(parent=self, replace_on_changes=list(REPLACED), delete_before_replace=True),
        )

    def _template(self, role: str, pod: PodPlan, own: dict[str, Any]) -> dict[str, Any]:
        metadata = pods.template_metadata(pod, {**self._labels, pods.COMPONENT: role}, checksums(pod.references))
        return {"metadata": metadata, "spec": self._pod(pod, own)}

    def _pod(self, pod: PodPlan, own: dict[str, Any]) -> dict[str, Any]:
        term = {"labelSelector": {"matchLabels": self._labels}, "topologyKey": "kubernetes.io/hostname"}
        apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
        close = pods.near(pod.caches) if pod.caches else {}
        return {**pods.pod_spec(pod, own), "affinity": {**close, "podAntiAffinity": apart}}

    def _service(self, name: str, server: ServerPlan) -> Service:
        ports: list[ServicePortArgsDict] = [{"name": "http", "port": 80, "target_port": "http", "protocol": "TCP"}]
        if _metrics_port(server):
            # Not the pods' port number, which could be 80 too.
            ports.append({"name": _METRICS_PORT, "port": 9090, "target_port": _METRICS_PORT, "protocol": "TCP"})
        answering = (self._shared or self._labels) | (OF_LEADERS if server.worker else {})
        return Service(
            name,
            metadata={**self._named, "annotations": DO_NOT_AWAIT},
            spec={"type": "ClusterIP", "selector": answering, "ports": ports},
            opts=self.own,
        )


def _container(server: ServerPlan) -> dict[str, Any]:
    ports: list[dict[str, Any]] = [{"name": "http", "containerPort": server.spec.port}]
    if metrics := _metrics_port(server):
        ports.append({"name": _METRICS_PORT, "containerPort": metrics})
    times = server.spec.probes
    probe = {
        "httpGet": {"path": server.spec.health, "port": "http"},
        "periodSeconds": times.period,
        "timeoutSeconds": times.timeout,
        "failureThreshold": times.failures,
    }
    return {
        **pods.container(server.pod, "server"),
        "ports": ports,
        "startupProbe": {**probe, "failureThreshold": math.ceil(server.spec.starts_within / times.period)},
        "readinessProbe": {**probe, "initialDelaySeconds": times.ready_after},
        "livenessProbe": {**probe, "initialDelaySeconds": times.alive_after},
    }


def _metrics_port(server: ServerPlan) -> int | None:
    """The /metrics port of a scraped server, if it differs from the request port."""
    return server.monitor.port if server.monitor and server.monitor.port != server.spec.port else None


def _service_monitor(name: str, server: ServerPlan, monitor: Monitor, opts: ResourceOptions) -> CustomResource:
    """A ServiceMonitor: Prometheus scrapes each pod of a server through the server's Service."""
    # The series have the labels `namespace`, `service` and `pod` of the scaling query. The release label is for a
    # Prometheus that selects only its own release's ServiceMonitors, the default of kube-prometheus-stack
    # (`serviceMonitorSelectorNilUsesHelmValues`).
    endpoint = {
        "port": _METRICS_PORT if _metrics_port(server) else "http",
        "path": METRICS_PATH,
        "interval": f"{SCRAPE_INTERVAL}s",
    }
    labels = {pods.NAME: server.name, "release": monitor.release}
    return CustomResource(
        name,
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        metadata={"name": server.name, "namespace": server.team, "labels": labels},
        spec={"selector": {"matchLabels": {pods.NAME: server.name}}, "endpoints": [endpoint]},
        opts=opts,
    )


def _autoscaler(
    name: str, server: ServerPlan, scaling: Scaling, opts: ResourceOptions
) -> autoscaling.HorizontalPodAutoscaler | CustomResource:
    """The autoscaler of a server: KEDA's if it reads a metric by a query, else Kubernetes'."""
    metadata: ObjectMetaArgsDict = {"name": server.name, "namespace": server.team, "labels": {pods.NAME: server.name}}
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
            "behavior": _behavior(scaling),
        },
        opts=opts,
    )


def _behavior(scaling: Scaling) -> autoscaling.HorizontalPodAutoscalerBehaviorArgsDict:
    """Fast up and slowly down: a GPU that is released too early costs the model's loading time."""
    return {"scale_up": _pace(scaling.up, (30, 100, 15)), "scale_down": _pace(scaling.down, (300, 10, 60))}


def _pace(pace: Pace, usual: tuple[int, int, int]) -> autoscaling.HPAScalingRulesArgsDict:
    window, percent, period = usual
    policies: list[autoscaling.HPAScalingPolicyArgsDict] = [
        {"type": kind, "value": value, "period_seconds": pace.period or period}
        for kind, value in (("Percent", pace.percent or percent), ("Pods", pace.pods))
        if value is not None
    ]
    stable = window if pace.stabilization_window is None else pace.stabilization_window
    return {"stabilization_window_seconds": stable, "policies": policies}


def _metrics(scaling: Scaling) -> list[autoscaling.MetricSpecArgsDict]:
    metrics: list[autoscaling.MetricSpecArgsDict] = []
    if scaling.cpu is not None:
        target: autoscaling.MetricTargetArgsDict = {"type": "Utilization", "average_utilization": scaling.cpu}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    of_pods = [(signal.name, signal.target) for signal in scaling.signals]
    for metric, average in [scaling.latency, *of_pods] if scaling.latency else of_pods:
        # The metric is in seconds, so 100m is 100 ms. A thousandth is the smallest unit of quantities.
        target = {"type": "AverageValue", "average_value": f"{round(average * 1000)}m"}
        metrics.append({"type": "Pods", "pods": {"metric": {"name": metric}, "target": target}})
    return metrics


def _scaled_object(
    name: str, server: ServerPlan, scaling: Scaling, metadata: ObjectMetaArgsDict, opts: ResourceOptions
) -> CustomResource:
    """A ScaledObject of a server. KEDA creates a HorizontalPodAutoscaler from it, so there must be no other."""
    # That autoscaler has the server's name, so KEDA takes over an existing one instead of rejecting the ScaledObject
    # (`transfer-hpa-ownership`, apis/keda/v1alpha1/scaledobject_webhook.go of KEDA 2.20). To switch back, set a fixed
    # number of replicas first. If Prometheus does not respond or does not scrape the pods, the server keeps its
    # replicas, and the cpu trigger can still add some. Fallback for a metric of type Value requires KEDA 2.18.
    api_version, kind = server.api
    return CustomResource(
        name,
        "keda.sh/v1alpha1",
        "ScaledObject",
        metadata={**metadata, "annotations": {"scaledobject.keda.sh/transfer-hpa-ownership": "true"}},
        spec={
            "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": server.name},
            "minReplicaCount": scaling.minimum,
            "maxReplicaCount": scaling.maximum,
            "fallback": {
                "failureThreshold": _FAILURES,
                "replicas": max(scaling.minimum, 1),
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"name": server.name, "behavior": wire(_behavior(scaling))}},
            "triggers": _triggers(scaling),
        },
        opts=opts,
    )


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
            "threshold": f"{round(signal.target * 1000) / 1000:.3f}".rstrip("0").rstrip("."),
            # A missing value is an error and starts the fallback. An idle server has the value 0.
            "ignoreNullValues": "true" if may_lack else "false",
        }
        # With Value, the number of replicas is pods x value / threshold, as for the average of a pod metric.
        # AverageValue would divide the value by the number of pods again, as if it were a sum over them.
        metric_type = "AverageValue" if signal.total else "Value"
        triggers.append({"type": "prometheus", "name": signal.name, "metricType": metric_type, "metadata": metadata})
    return triggers
