"""Operators as Helm releases with gates that wait for their webhooks; objects of InfiniBand, dashboards and alerts."""

from hashlib import sha256
from typing import Any, Final

import pulumi
import yaml
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import Job
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.rbac.v1 import ClusterRole, PolicyRuleArgsDict

from gpu_tenancy.model.catalogue.operators import CRITICAL, Probe
from gpu_tenancy.model.manifests.pods import tolerations
from gpu_tenancy.model.names import KUBECTL
from gpu_tenancy.model.observability import ObservabilityPlan
from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.plan.operators.values import InfinibandPlan
from gpu_tenancy.model.plan.people import Subject

from .objects import Component, Options, cluster_role_binding, kubectl_pod, on_pools, wire

_SECONDS: Final = 900


class Operator(Component):
    """One operator: its Helm release and, if a webhook validates its objects, a gate; its namespace is not made here.

    The gate is a Job that retries a server-side dry run of one object until the webhook accepts it: the API server can
    receive the webhook's certificate after the pods are ready, and rejects every object until then. Resources that
    contain the operator's objects must depend on this component.

    If a chart's templates have its custom resource definitions, Helm deletes them, and all objects of these kinds, with
    the release. So Pulumi never deletes such a release or its namespace: it stays installed when it is removed from a
    stack. Set `installed` in the stack, or run `helm uninstall`; it cannot be created again while it exists.
    """

    def __init__(self, name: str, plan: ReleasePlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:operators:Operator", name, opts)
        rights: list[pulumi.Resource] = []
        if plan.reads:
            # Beyond the chart's own roles, for all service accounts of the release's namespace.
            rules: list[PolicyRuleArgsDict] = [
                {"api_groups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
                for group, resource in plan.reads
            ]
            accounts = Subject("Group", f"system:serviceaccounts:{plan.namespace}")
            kept = ResourceOptions(parent=self, retain_on_delete=plan.definitions_go)
            rights = _granted(f"{name}-reads", f"gpu-tenancy-{plan.name}-reads", rules, accounts, kept)
        repository: RepositoryOptsArgsDict | None = {"repo": plan.repository} if plan.repository else None
        self.release = Release(
            f"{name}-release",
            name=plan.name,
            chart=plan.chart,
            version=plan.version,
            repository_opts=repository,
            namespace=plan.namespace,
            values=plan.values,
            atomic=True,
            timeout=_SECONDS,
            opts=ResourceOptions(parent=self, depends_on=rights, retain_on_delete=plan.definitions_go),
        )
        self.gate = self._gate(f"{name}-gate", plan, plan.probe) if plan.probe else None

    def _gate(self, name: str, plan: ReleasePlan, probe: Probe) -> Job:
        after_release, gate = self.after(self.release), f"{plan.name}-gate"
        metadata: ObjectMetaArgsDict = {"name": gate, "namespace": plan.namespace}
        account = core.ServiceAccount(f"{name}-account", metadata=metadata, opts=after_release)
        creates: PolicyRuleArgsDict = {"api_groups": [probe.group], "resources": [probe.resource], "verbs": ["create"]}
        subject = Subject("ServiceAccount", gate, plan.namespace)
        granted = _granted(name, f"gpu-tenancy-{gate}", [creates], subject, after_release)
        text = yaml.safe_dump(probe.manifest, sort_keys=True)
        manifest = core.ConfigMap(f"{name}-object", metadata=metadata, data={"object.yaml": text}, opts=after_release)
        # If the dry run is rejected, the kubelet restarts the container with back-off.
        container: core.ContainerArgsDict = {
            "name": "ask",
            "image": KUBECTL,  # Without a shell, so container restarts are the retries.
            "args": ["create", "--dry-run=server", "--filename=/gate/object.yaml"],
            "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - of the pod, where kubectl keeps what it discovers
        }
        pod = kubectl_pod(gate, "OnFailure", container, "128Mi", (gate, "/gate"))
        # A Job is immutable, so the name contains a digest of the version, the image and the object.
        digest = sha256(f"{plan.version}\n{KUBECTL}\n{text}".encode()).hexdigest()[:8]
        # Otherwise a failed gate would stay failed after the cause is fixed: the next `up` replaces it.
        annotations = {"pulumi.com/replaceUnready": "true"}
        return Job(
            name,
            metadata={"name": f"{gate}-{digest}", "namespace": plan.namespace, "annotations": annotations},
            spec={"backoff_limit": 30, "active_deadline_seconds": _SECONDS, "template": {"spec": pod}},
            opts=self.after(self.release, account, *granted, manifest),
        )


def _granted(
    name: str, right: str, rules: list[PolicyRuleArgsDict], subject: Subject, opts: ResourceOptions
) -> list[pulumi.Resource]:
    role = ClusterRole(f"{name}-role", metadata={"name": right}, rules=rules, opts=opts)
    return [role, cluster_role_binding(f"{name}-binding", {"name": right}, right, [subject], opts)]


class Operators(Component):
    """All operators that a stack installs, in order; operators of others are neither managed nor waited for.

    Each waits for the gate of the one before it: later charts contain objects of earlier operators, and Kueue's
    webhooks receive the Jobs of other charts' hooks. `pulumi destroy` uses the reverse order.
    """

    def __init__(self, name: str, plans: tuple[ReleasePlan, ...], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:operators:Operators", name, opts)
        namespaces = self._namespaces(name, plans)
        self.operators: dict[str, Operator] = {}
        for plan in plans:
            after = self.after(*namespaces[plan.namespace], *list(self.operators.values())[-1:])
            self.operators[plan.name] = Operator(f"{name}-{plan.name}", plan, after)

    def _namespaces(self, name: str, plans: tuple[ReleasePlan, ...]) -> dict[str, list[pulumi.Resource]]:
        """The namespaces, each with a quota for critical pods if needed; retained if one of their releases is."""
        resources: dict[str, list[pulumi.Resource]] = {}
        for namespace in dict.fromkeys(plan.namespace for plan in plans):
            releases = [plan for plan in plans if plan.namespace == namespace]
            opts = ResourceOptions(parent=self, retain_on_delete=any(plan.definitions_go for plan in releases))
            labels = {"app.kubernetes.io/part-of": "gpu-tenancy"}
            if any(plan.privileged for plan in releases):
                labels["pod-security.kubernetes.io/enforce"] = "privileged"
            created = core.Namespace(f"{name}-{namespace}", metadata={"name": namespace, "labels": labels}, opts=opts)
            resources[namespace] = [created]
            if any(plan.critical for plan in releases):
                resources[namespace].append(critical_pods(f"{name}-{namespace}-critical", namespace, created, opts))
        return resources


def critical_pods(
    name: str, namespace: str, namespace_object: core.Namespace, opts: ResourceOptions
) -> core.ResourceQuota:
    """A quota for system priority classes. GKE requires it for such pods; on other clouds it has no effect."""
    # Releases depend on it, because their hooks are pods too:
    # https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/google-gke.html
    classes: core.ScopedResourceSelectorRequirementArgsDict = {
        "scope_name": "PriorityClass",
        "operator": "In",
        "values": list(CRITICAL),
    }
    return core.ResourceQuota(
        name,
        metadata={"name": "critical-pods", "namespace": namespace},
        spec={"hard": {"pods": "10000"}, "scope_selector": {"match_expressions": [classes]}},
        opts=ResourceOptions.merge(opts, ResourceOptions(depends_on=[namespace_object])),
    )


class Infiniband(Component):
    """The NicClusterPolicy of NVIDIA's Network Operator: driver and device plugin on the nodes with InfiniBand.

    A cluster has one such object; the operator is not installed here. To update driver pods, which are never replaced
    automatically, because that drains the nodes, delete the pods while the nodes are empty:
    https://azure.github.io/aks-rdma-infiniband/configurations/network-operator
    """

    def __init__(self, name: str, plan: InfinibandPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:operators:Infiniband", name, opts)
        images = (plan.driver, plan.plugin)
        driver, plugin = ({"repository": one.repository, "image": one.image, "version": one.version} for one in images)
        spec: dict[str, Any] = {
            "nodeAffinity": wire(on_pools(plan.pools)),
            "tolerations": tolerations(plan.taints),
            "ofedDriver": {**driver, "upgradePolicy": {"autoUpgrade": False}},
            "sriovDevicePlugin": {**plugin, "config": plan.config},
        }
        kind = ("mellanox.com/v1alpha1", "NicClusterPolicy")
        metadata: ObjectMetaArgsDict = {"name": "nic-cluster-policy"}
        self.policy = CustomResource(f"{name}-policy", *kind, metadata=metadata, spec=spec, opts=self.own)


class Observability(Component):
    """A ConfigMap for each dashboard, one PrometheusRule with all alerts, and a ConfigMap with prices.

    They are for Grafana's sidecar, Prometheus' operator and OpenCost, which are not installed here: make this depend on
    their release, which has the definition of PrometheusRule. With `of_others`, the namespace exists too.
    """

    def __init__(
        self, name: str, plan: ObservabilityPlan, namespace: str, opts: Options = None, *, of_others: bool = False
    ) -> None:
        super().__init__("gpu-tenancy:tenancy:Observability", name, opts)
        if of_others:  # Read it, so that a preview fails if it does not exist.
            core.Namespace.get(f"{name}-namespace", namespace, opts=self.own)
        self.dashboards: dict[str, core.ConfigMap] = {}
        for file, text in plan.dashboards:
            dashboard = file.removesuffix(".json")
            metadata: ObjectMetaArgsDict = {
                "name": f"dashboard-{dashboard}",
                "namespace": namespace,
                "labels": {"grafana_dashboard": "1"},
                "annotations": {"grafana_folder": plan.folders[file]},
            }
            self.dashboards[file] = core.ConfigMap(
                f"{name}-{dashboard}", metadata=metadata, data={file: text}, opts=self.own
            )
        if plan.rules:
            kind, spec = ("monitoring.coreos.com/v1", "PrometheusRule"), {"groups": list(plan.rules)}
            metadata = {"name": "gpu-tenancy", "namespace": namespace}
            CustomResource(f"{name}-rule", *kind, metadata=metadata, spec=spec, opts=self.own)
        if plan.opencost:
            of_opencost, prices = plan.opencost
            metadata = {"name": "gpu-tenancy-prices", "namespace": of_opencost}
            core.ConfigMap(f"{name}-prices", metadata=metadata, data={"prices.csv": prices}, opts=self.own)
