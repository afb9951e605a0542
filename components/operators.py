"""The operators that the tenancy relies on, as Helm releases, and the proof that each answers before it is needed."""

from hashlib import sha256
from typing import Final

import pulumi
import yaml
from pulumi_kubernetes.batch.v1 import Job
from pulumi_kubernetes.core.v1 import (
    ConfigMap,
    Namespace,
    PodSpecArgsDict,
    ResourceQuota,
    ScopedResourceSelectorRequirementArgsDict,
    ServiceAccount,
)
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding

from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.plan.operators.probes import Probe

KUBECTL: Final = "registry.k8s.io/kubectl:v1.34.1"
"""Asks the webhooks; it has no shell, so its restarts are the retries: https://github.com/kubernetes/release."""
_SECONDS: Final = 900
_RBAC: Final = "rbac.authorization.k8s.io"
_ENFORCED: Final = "pod-security.kubernetes.io/enforce"
_CRITICAL: Final = ("system-node-critical", "system-cluster-critical")
_NOBODY: Final = 65532


class Operator(pulumi.ComponentResource):
    """One operator: its Helm release and, where a webhook judges its objects, a gate.

    The gate is a Job that creates one such object as a dry run, again and again until the webhook has let it pass:
    a release is complete when its pods are ready, but the certificate of a webhook may reach the API server later, and
    every object until then would be refused. Whoever makes objects of the operator depends on this component.

    Where a chart brings its definitions as templates, Helm would delete them with the release, and every object of
    theirs. So Pulumi never deletes such a release, nor its namespace: taken out of a stack it stays as it is, for
    somebody else to keep (the stack then says `installed`) or to `helm uninstall`. Where it is still there, making it
    anew fails, since its namespace and its name are taken. Its namespace is given.

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
        """What it may read beyond what its chart grants: to all service accounts of its namespace, which is its own."""
        own = pulumi.ResourceOptions(parent=self, retain_on_delete=plan.definitions_go)
        right = f"gpu-tenancy-{plan.name}-reads"
        role = ClusterRole(
            f"{name}-role",
            metadata={"name": right},
            rules=[
                {"api_groups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
                for group, resource in plan.reads
            ],
            opts=own,
        )
        binding = ClusterRoleBinding(
            f"{name}-binding",
            metadata={"name": right},
            role_ref={"api_group": _RBAC, "kind": "ClusterRole", "name": right},
            subjects=[{"api_group": _RBAC, "kind": "Group", "name": f"system:serviceaccounts:{plan.namespace}"}],
            opts=own,
        )
        return [role, binding]

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
        called = f"{plan.name}-gate"
        place: ObjectMetaArgsDict = {"name": called, "namespace": plan.namespace}
        right = f"gpu-tenancy-{plan.name}-gate"
        account = ServiceAccount(f"{name}-account", metadata=place, opts=own)
        role = ClusterRole(
            f"{name}-role",
            metadata={"name": right},
            rules=[{"api_groups": [probe.group], "resources": [probe.resource], "verbs": ["create"]}],
            opts=own,
        )
        binding = ClusterRoleBinding(
            f"{name}-binding",
            metadata={"name": right},
            role_ref={"api_group": _RBAC, "kind": "ClusterRole", "name": right},
            subjects=[{"kind": "ServiceAccount", "name": called, "namespace": plan.namespace}],
            opts=own,
        )
        text = yaml.safe_dump(probe.manifest, sort_keys=True)
        words = ConfigMap(f"{name}-object", metadata=place, data={"object.yaml": text}, opts=own)
        # A Job is never changed, so one that asks for something else, or of another version, has another name.
        mark = sha256(f"{plan.version}\n{text}".encode()).hexdigest()[:8]
        # One that gave up would stay failed, whatever was mended since: the next `up` makes it anew.
        again = {"pulumi.com/replaceUnready": "true"}
        return Job(
            name,
            metadata={"name": f"{called}-{mark}", "namespace": plan.namespace, "annotations": again},
            spec={
                "backoff_limit": 30,
                "active_deadline_seconds": _SECONDS,
                "template": {"spec": _asking(plan)},
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.release, account, role, binding, words]),
        )


def _asking(plan: ReleasePlan) -> PodSpecArgsDict:
    """A pod that asks once; where it is refused, the kubelet starts it again, each time a little later."""
    return {
        "service_account_name": f"{plan.name}-gate",
        "restart_policy": "OnFailure",
        "security_context": {
            "run_as_non_root": True,
            "run_as_user": _NOBODY,
            "seccomp_profile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "ask",
                "image": KUBECTL,
                "args": ["create", "--dry-run=server", "--filename=/gate/object.yaml"],
                "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - of the pod, where kubectl keeps what it discovers
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
                "security_context": {
                    "allow_privilege_escalation": False,
                    "read_only_root_filesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volume_mounts": [
                    {"name": "object", "mount_path": "/gate"},
                    {"name": "scratch", "mount_path": "/tmp"},  # noqa: S108 - as above
                ],
            }
        ],
        "volumes": [
            {"name": "object", "config_map": {"name": f"{plan.name}-gate"}},
            {"name": "scratch", "empty_dir": {}},
        ],
    }


class Operators(pulumi.ComponentResource):
    """All operators that a stack installs, each after the one before it.

    Later ones make objects of earlier ones, and from the moment that Kueue is there its webhooks see the Jobs by which
    other charts prepare themselves: each waits until the one before it answers. On the way down it is the other way
    round. Operators that somebody else installed are not managed here, nor waited for.

    Attributes:
        by_group: the operator that judges objects of an API group.

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
        """Each namespace once, with what its pods need; it stays as long as any release in it must."""
        found: dict[str, list[pulumi.Resource]] = {}
        for namespace in dict.fromkeys(plan.namespace for plan in plans):
            within = [plan for plan in plans if plan.namespace == namespace]
            privileged = any(plan.privileged for plan in within)
            opts = pulumi.ResourceOptions(parent=self, retain_on_delete=any(plan.definitions_go for plan in within))
            labels = {"app.kubernetes.io/part-of": "gpu-tenancy"} | ({_ENFORCED: "privileged"} if privileged else {})
            made = Namespace(f"{name}-{namespace}", metadata={"name": namespace, "labels": labels}, opts=opts)
            found[namespace] = [made]
            if privileged:
                found[namespace].append(_critical_pods(f"{name}-{namespace}-critical", namespace, made, opts))
        return found


def _critical_pods(name: str, namespace: str, made: Namespace, opts: pulumi.ResourceOptions) -> ResourceQuota:
    """GKE admits pods of the system's priority classes only where a quota names them; elsewhere it bounds nothing.

    https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/google-gke.html
    """
    expression: ScopedResourceSelectorRequirementArgsDict = {
        "scope_name": "PriorityClass",
        "operator": "In",
        "values": list(_CRITICAL),
    }
    return ResourceQuota(
        name,
        metadata={"name": "critical-pods", "namespace": namespace},
        spec={"hard": {"pods": "10000"}, "scope_selector": {"match_expressions": [expression]}},
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[made])),
    )
