"""Operators as Helm releases, each with a gate that waits until its webhook answers; InfiniBand by one of them."""

from hashlib import sha256
from typing import Any, Final

import pulumi
import yaml
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import Job
from pulumi_kubernetes.core.v1 import (
    ConfigMap,
    ContainerArgsDict,
    Namespace,
    PodSpecArgsDict,
    ResourceQuota,
    ScopedResourceSelectorRequirementArgsDict,
    ServiceAccount,
)
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, PolicyRuleArgsDict, SubjectArgsDict

from gpu_tenancy.model.catalogue.fabrics import Image
from gpu_tenancy.model.catalogue.operators import CRITICAL, Probe
from gpu_tenancy.model.manifests.pods import tolerations
from gpu_tenancy.model.names import KUBECTL
from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.plan.operators.values import InfinibandPlan

from .conventions import wire
from .pods import kubectl_pod, on_pools

_SECONDS: Final = 900
_RBAC: Final = "rbac.authorization.k8s.io"
_ENFORCED: Final = "pod-security.kubernetes.io/enforce"


class Operator(pulumi.ComponentResource):
    """One operator: its Helm release and, if a webhook validates its objects, a gate.

    The gate is a Job that retries a server-side dry run of one object until the webhook accepts it. A release is
    complete when its pods are ready, but the API server can receive the webhook's certificate later and would reject
    every object until then. Resources that contain the operator's objects must depend on this component.

    If a chart has its custom resource definitions as templates, Helm deletes them with the release, and with them all
    objects of these kinds. So Pulumi never deletes such a release or its namespace. If it is removed from a stack, it
    stays installed: set `installed` in the stack, or run `helm uninstall`. Creating it again fails while it exists,
    because the names are in use. The namespace is not created here.

    Example:
        >>> Operator("kueue", plan(stack).operators[0])
    """

    def __init__(self, name: str, plan: ReleasePlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:operators:Operator", name, {}, opts)
        self.rights = self._rights(f"{name}-reads", plan) if plan.reads else []
        self.release = self._release(f"{name}-release", plan)
        self.gate = self._gate(f"{name}-gate", plan, plan.probe) if plan.probe else None
        self.register_outputs({"version": plan.version})

    def _rights(self, name: str, plan: ReleasePlan) -> list[pulumi.Resource]:
        """Read access beyond the chart's own roles, for all service accounts of the release's namespace."""
        rules: list[PolicyRuleArgsDict] = [
            {"api_groups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
            for group, resource in plan.reads
        ]
        subject: SubjectArgsDict = {
            "api_group": _RBAC,
            "kind": "Group",
            "name": f"system:serviceaccounts:{plan.namespace}",
        }
        own = pulumi.ResourceOptions(parent=self, retain_on_delete=plan.definitions_go)
        return _granted(name, f"gpu-tenancy-{plan.name}-reads", rules, subject, own)

    def _release(self, name: str, plan: ReleasePlan) -> Release:
        repository: RepositoryOptsArgsDict | None = {"repo": plan.repository} if plan.repository else None
        return Release(
            name,
            name=plan.name,
            chart=plan.chart,
            version=plan.version,
            repository_opts=repository,
            namespace=plan.namespace,
            values=plan.values,
            atomic=True,
            timeout=_SECONDS,
            opts=pulumi.ResourceOptions(parent=self, depends_on=self.rights, retain_on_delete=plan.definitions_go),
        )

    def _gate(self, name: str, plan: ReleasePlan, probe: Probe) -> Job:
        own = pulumi.ResourceOptions(parent=self, depends_on=[self.release])
        gate_name = f"{plan.name}-gate"
        metadata: ObjectMetaArgsDict = {"name": gate_name, "namespace": plan.namespace}
        account = ServiceAccount(f"{name}-account", metadata=metadata, opts=own)
        rules: list[PolicyRuleArgsDict] = [
            {"api_groups": [probe.group], "resources": [probe.resource], "verbs": ["create"]}
        ]
        subject: SubjectArgsDict = {"kind": "ServiceAccount", "name": gate_name, "namespace": plan.namespace}
        granted = _granted(name, f"gpu-tenancy-{plan.name}-gate", rules, subject, own)
        text = yaml.safe_dump(probe.manifest, sort_keys=True)
        manifest = ConfigMap(f"{name}-object", metadata=metadata, data={"object.yaml": text}, opts=own)
        # A Job is immutable, so the name contains a digest of the version, the image and the object.
        digest = sha256(f"{plan.version}\n{KUBECTL}\n{text}".encode()).hexdigest()[:8]
        # Otherwise a failed gate would stay failed after the cause is fixed: the next `up` replaces it.
        annotations = {"pulumi.com/replaceUnready": "true"}
        return Job(
            name,
            metadata={"name": f"{gate_name}-{digest}", "namespace": plan.namespace, "annotations": annotations},
            spec={
                "backoff_limit": 30,
                "active_deadline_seconds": _SECONDS,
                "template": {"spec": _gate_pod(plan)},
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.release, account, *granted, manifest]),
        )


def _granted(
    name: str, right: str, rules: list[PolicyRuleArgsDict], subject: SubjectArgsDict, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """A ClusterRole with the name `right`, and the binding that gives it to one subject."""
    role = ClusterRole(f"{name}-role", metadata={"name": right}, rules=rules, opts=opts)
    binding = ClusterRoleBinding(
        f"{name}-binding",
        metadata={"name": right},
        role_ref={"api_group": _RBAC, "kind": "ClusterRole", "name": right},
        subjects=[subject],
        opts=opts,
    )
    return [role, binding]


def _gate_pod(plan: ReleasePlan) -> PodSpecArgsDict:
    """A pod that runs the dry run once. If it is rejected, the kubelet restarts the container with back-off."""
    own: ContainerArgsDict = {
        "name": "ask",
        "image": KUBECTL,  # Without a shell, so container restarts are the retries.
        "args": ["create", "--dry-run=server", "--filename=/gate/object.yaml"],
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - of the pod, where kubectl keeps what it discovers
    }
    return kubectl_pod(f"{plan.name}-gate", "OnFailure", own, "128Mi", (f"{plan.name}-gate", "/gate"))


class Operators(pulumi.ComponentResource):
    """All operators that a stack installs, in order.

    Each one waits for the gate of the one before it: later charts contain objects of earlier operators, and once Kueue
    is installed, its webhooks receive the Jobs of other charts' hooks. `pulumi destroy` uses the reverse order.
    Operators installed outside this stack are neither managed nor waited for.

    Attributes:
        by_group: the operator whose webhook validates objects of an API group.

    Example:
        >>> Operators("operators", plan(stack).operators)
    """

    def __init__(self, name: str, plans: tuple[ReleasePlan, ...], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:operators:Operators", name, {}, opts)
        self.namespaces = self._namespaces(name, plans)
        self.operators: dict[str, Operator] = {}
        self.by_group: dict[str, Operator] = {}
        before: list[pulumi.Resource] = []
        for plan in plans:
            needed = [*self.namespaces[plan.namespace], *before]
            operator = Operator(f"{name}-{plan.name}", plan, pulumi.ResourceOptions(parent=self, depends_on=needed))
            self.operators[plan.name] = operator
            self.by_group |= dict.fromkeys(plan.serves, operator)
            before = [operator]
        self.register_outputs({"operators": list(self.operators)})

    def _namespaces(self, name: str, plans: tuple[ReleasePlan, ...]) -> dict[str, list[pulumi.Resource]]:
        """The namespaces, each with a quota for critical pods if needed; retained if one of their releases is."""
        resources: dict[str, list[pulumi.Resource]] = {}
        for namespace in dict.fromkeys(plan.namespace for plan in plans):
            releases = [plan for plan in plans if plan.namespace == namespace]
            privileged = any(plan.privileged for plan in releases)
            opts = pulumi.ResourceOptions(parent=self, retain_on_delete=any(plan.definitions_go for plan in releases))
            labels = {"app.kubernetes.io/part-of": "gpu-tenancy"} | ({_ENFORCED: "privileged"} if privileged else {})
            created = Namespace(f"{name}-{namespace}", metadata={"name": namespace, "labels": labels}, opts=opts)
            resources[namespace] = [created]
            if any(plan.critical for plan in releases):
                resources[namespace].append(critical_pods(f"{name}-{namespace}-critical", namespace, created, opts))
        return resources


def critical_pods(
    name: str, namespace: str, namespace_object: Namespace, opts: pulumi.ResourceOptions
) -> ResourceQuota:
    """A quota for system priority classes. GKE requires it for such pods; on other clouds it has no effect.

    Releases depend on it, because their hooks are pods too:
    https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/google-gke.html
    """
    expression: ScopedResourceSelectorRequirementArgsDict = {
        "scope_name": "PriorityClass",
        "operator": "In",
        "values": list(CRITICAL),
    }
    return ResourceQuota(
        name,
        metadata={"name": "critical-pods", "namespace": namespace},
        spec={"hard": {"pods": "10000"}, "scope_selector": {"match_expressions": [expression]}},
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[namespace_object])),
    )


class Infiniband(pulumi.ComponentResource):
    """The NicClusterPolicy of NVIDIA's Network Operator: driver and device plugin on the nodes with InfiniBand.

    A cluster has one such object. Driver pods are never replaced automatically, because that would drain the nodes: to
    update them, delete the pods while the nodes are empty. The operator itself is not installed here.

    https://azure.github.io/aks-rdma-infiniband/configurations/network-operator

    Example:
        >>> Infiniband("infiniband", plan(stack).infiniband)
    """

    def __init__(self, name: str, plan: InfinibandPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:operators:Infiniband", name, {}, opts)
        spec: dict[str, Any] = {
            "nodeAffinity": wire(on_pools(plan.pools)),
            "tolerations": tolerations(plan.taints),
            "ofedDriver": {**_image(plan.driver), "upgradePolicy": {"autoUpgrade": False}},
            "sriovDevicePlugin": {**_image(plan.plugin), "config": plan.config},
        }
        self.policy = CustomResource(
            f"{name}-policy",
            api_version="mellanox.com/v1alpha1",
            kind="NicClusterPolicy",
            metadata={"name": "nic-cluster-policy"},
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _image(image: Image) -> dict[str, str]:
    return {"repository": image.repository, "image": image.image, "version": image.version}
