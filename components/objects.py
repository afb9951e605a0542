"""Builders of Kubernetes objects that several components use, such as pods of the platform itself."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias, cast

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import DaemonSet, DaemonSetSpecArgsDict
from pulumi_kubernetes.batch.v1 import CronJob
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.networking.v1 import NetworkPolicy
from pulumi_kubernetes.rbac import v1 as rbac
from pydantic.alias_generators import to_camel

from gpu_tenancy.model.catalogue.access import Rule
from gpu_tenancy.model.names import KUEUE
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.plan.people import PREFIX, Subject
from gpu_tenancy.model.plan.pools import POOL_LABEL
from gpu_tenancy.model.plan.servers import RoutePlan

FORMER: Final[Mapping[str, Sequence[str]]] = {KUEUE: ("kueue.x-k8s.io/v1beta1",)}
"""Former API versions of a version: without an alias, the engine re-creates the objects and deletes the live ones."""
DO_NOT_AWAIT: Final = {"pulumi.com/skipAwait": "true"}  # for workloads that can stay pending: deployments do not wait
RBAC: Final = "rbac.authorization.k8s.io"
LABELS: Final[Mapping[str, str]] = dict([TEAM_LABEL])  # labels of roles, bindings and accounts of teams

Options: TypeAlias = ResourceOptions | None
"""Options of a component: its parent, providers and dependencies; None for the options of a child of the stack."""


class Component(pulumi.ComponentResource):
    """A component of a type such as `gpu-tenancy:tenancy:Queues`; `own` are the options of its resources."""

    def __init__(self, kind: str, name: str, opts: Options) -> None:
        super().__init__(kind, name, {}, opts)
        self.own = ResourceOptions(parent=self)
        if kind.startswith("gpu-tenancy:clouds:"):
            # Else the engine would show it as unfinished until the end of a deployment. It costs a write of the state.
            self.register_outputs({})

    def kept(self, *, protect: bool) -> ResourceOptions:
        """Options of a resource that stays when the stack is destroyed, because its data is not the stack's."""
        # In production (`protect`), Pulumi also refuses to delete it.
        return ResourceOptions(parent=self, retain_on_delete=True, protect=protect)

    def after(self, *resources: pulumi.Resource) -> ResourceOptions:
        """Options of a resource that is created after others, and deleted before them."""
        return ResourceOptions(parent=self, depends_on=[*resources])


def custom_resource(name: str, manifest: Mapping[str, Any], opts: ResourceOptions) -> CustomResource:
    """An object of the model as a resource."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    return CustomResource(name, manifest["apiVersion"], manifest["kind"], metadata=metadata, spec=spec, opts=opts)


def kueue_object(
    name: str, kind: str, metadata: ObjectMetaArgsDict, spec: Mapping[str, Any], opts: ResourceOptions
) -> CustomResource:
    """An object of Kueue."""
    return CustomResource(name, KUEUE, kind, metadata=metadata, spec=spec, opts=opts)


def admission_check(name: str, check: str, controller: str, config_kind: str, opts: ResourceOptions) -> CustomResource:
    """The AdmissionCheck of a controller, with its config of the same name."""
    parameters = {"apiGroup": KUEUE.partition("/")[0], "kind": config_kind, "name": check}
    spec = {"controllerName": controller, "parameters": parameters}
    return kueue_object(name, "AdmissionCheck", {"name": check}, spec, opts)


def fair_sharing(weight: float | None) -> dict[str, Any]:
    """The weight of a Cohort, ClusterQueue or LocalQueue, as part of its spec; empty for None."""
    return {} if weight is None else {"fairSharing": {"weight": f"{weight:g}"}}


class PlainObject(pulumi.CustomResource):
    """An object of a kind that an operator defines, such as Kueue's WorkloadPriorityClass.

    Example:
        >>> PlainObject("low", "kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", {"metadata": {...}, "value": 1}, opts)
    """

    def __init__(
        self, name: str, api_version: str, kind: str, fields: Mapping[str, Any], opts: ResourceOptions
    ) -> None:
        super().__init__(
            f"kubernetes:{api_version}:{kind}",
            name,
            {"apiVersion": api_version, "kind": kind, **fields},
            ResourceOptions.merge(opts, ResourceOptions(version=version("pulumi-kubernetes"))),
        )


_OWN_KEYS: Final = frozenset({"annotations", "labels", "limits", "match_labels", "node_selector", "requests"})
"""Maps with keys of the user's choice."""


def wire(piece: Any) -> Any:
    """Converts the snake_case keys of an SDK's `…ArgsDict` to the API's camelCase, except keys of users (labels)."""
    if isinstance(piece, Mapping):
        fields = cast("Mapping[str, Any]", piece).items()
        return {
            to_camel(key.removesuffix("_")): dict(value) if key in _OWN_KEYS else wire(value) for key, value in fields
        }
    if isinstance(piece, list):
        return [wire(item) for item in cast("list[Any]", piece)]
    return piece


def cluster_role(name: str, role: str, rules: Sequence[Rule], opts: ResourceOptions) -> rbac.ClusterRole:
    """A ClusterRole with the name `role`."""
    given: list[rbac.PolicyRuleArgsDict] = [
        {"api_groups": list(rule.groups), "resources": list(rule.resources), "verbs": list(rule.verbs)}
        for rule in rules
    ]
    return rbac.ClusterRole(name, metadata={"name": role, "labels": LABELS}, rules=given, opts=opts)


def cluster_role_binding(
    name: str, metadata: ObjectMetaArgsDict, role: str, subjects: Iterable[Subject], opts: ResourceOptions
) -> rbac.ClusterRoleBinding:
    """The ClusterRoleBinding of a ClusterRole."""
    to = [_subject(subject) for subject in subjects]
    return rbac.ClusterRoleBinding(name, metadata=metadata, role_ref=role_ref(role), subjects=to, opts=opts)


def role_binding(
    name: str, place: tuple[str, str], role: str, subjects: Iterable[Subject], opts: ResourceOptions
) -> rbac.RoleBinding:
    """The RoleBinding of a ClusterRole; `place` is its namespace and name."""
    metadata: ObjectMetaArgsDict = {"name": place[1], "namespace": place[0], "labels": LABELS}
    to = [_subject(subject) for subject in subjects]
    return rbac.RoleBinding(name, metadata=metadata, role_ref=role_ref(role), subjects=to, opts=opts)


def role_ref(role: str, kind: str = "ClusterRole") -> rbac.RoleRefArgsDict:
    """A role reference of a binding."""
    return {"api_group": RBAC, "kind": kind, "name": role}


def _subject(subject: Subject) -> rbac.SubjectArgsDict:
    if subject.kind == "ServiceAccount":
        return {"kind": subject.kind, "name": subject.name, "namespace": subject.namespace}
    return {"api_group": RBAC, "kind": subject.kind, "name": subject.name}


def http_route(
    name: str, place: tuple[str, str], labels: Mapping[str, str], route: RoutePlan, opts: ResourceOptions
) -> CustomResource:
    """An HTTPRoute, with weights only for several Services; `place` is its namespace and name."""
    # https://gateway-api.sigs.k8s.io/reference/api-types/httproute/
    namespace, gateway = route.gateway
    shares = {} if len(route.backends) == 1 else dict(route.backends)
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": path}} for path in route.paths],
        "timeouts": {"request": f"{route.timeout}s"},
        "backendRefs": [
            {"name": backend, "port": 80, **({"weight": shares[backend]} if shares else {})}
            for backend, _ in route.backends
        ],
    }
    return CustomResource(
        name,
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        metadata={"name": place[1], "namespace": place[0], "labels": dict(labels)},
        spec={
            "parentRefs": [{"namespace": namespace, "name": gateway, "sectionName": route.listener}],
            "hostnames": [route.host],
            "rules": [rule],
        },
        opts=opts,
    )


_NOBODY: Final = 65532
_SCRATCH: Final = "scratch"
KUBECTL_AND_SHELL: Final = (
    "docker.io/alpine/k8s:1.34.1@sha256:ec714df3813b5405292860f8a1c55c5727bf8c33c88992f1e981efad8065547f"
)
"""Image with kubectl, a shell and awk; Kubernetes' own image has only kubectl. Several public repositories agree on the
digest (read on 2026-11-23)."""
_MINUTES: Final = 60


def on_pools(pools: Iterable[str]) -> core.NodeAffinityArgsDict:
    """The affinity of pods that run only on the nodes of some pools."""
    return on_nodes({"key": POOL_LABEL, "operator": "In", "values": list(pools)})


def on_nodes(*labels: core.NodeSelectorRequirementArgsDict) -> core.NodeAffinityArgsDict:
    """The affinity of pods that run only on nodes with all of these labels."""
    terms: core.NodeSelectorArgsDict = {"node_selector_terms": [{"match_expressions": list(labels)}]}
    return {"required_during_scheduling_ignored_during_execution": terms}


def kubectl_pod(
    account: str, restart: str, own: core.ContainerArgsDict, memory: str, config_map: tuple[str, str] | None = None
) -> core.PodSpecArgsDict:
    """A pod that runs kubectl as nobody, writes only to `/tmp`, and mounts `config_map`: `("kueue-gate", "/gate")`."""
    # kubectl keeps what it discovers in HOME.
    mounted: list[core.VolumeMountArgsDict] = [{"name": _SCRATCH, "mount_path": "/tmp"}]  # noqa: S108 - of the pod
    used: list[core.VolumeArgsDict] = [{"name": _SCRATCH, "empty_dir": {}}]
    if config_map:
        mounted.insert(0, {"name": "object", "mount_path": config_map[1]})
        used.insert(0, {"name": "object", "config_map": {"name": config_map[0]}})
    container: core.ContainerArgsDict = {
        **own,
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": memory}},
        "security_context": {
            "allow_privilege_escalation": False,
            "capabilities": {"drop": ["ALL"]},
            "read_only_root_filesystem": True,
        },
        "volume_mounts": mounted,
    }
    return {
        "service_account_name": account,
        "restart_policy": restart,
        "security_context": {
            "seccomp_profile": {"type": "RuntimeDefault"},
            "run_as_non_root": True,
            "run_as_user": _NOBODY,
        },
        "containers": [container],
        "volumes": used,
    }


def read_scripts(*names: str) -> str:
    """Scripts of this folder, one after another."""
    return "".join(Path(__file__).with_name(f"{name}.sh").read_text(encoding="utf-8") for name in names)


def script_container(name: str, script: str, variables: Mapping[str, str]) -> core.ContainerArgsDict:
    """The container of a CronJob that runs a shell script with these variables."""
    home = {"HOME": "/tmp"}  # noqa: S108 - of the pod
    return {
        "name": name,
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": key, "value": value} for key, value in {**variables, **home}.items()],
    }


def namespace_of_jobs(
    name: str, namespace: str, environment: str, parent: pulumi.Resource
) -> tuple[core.Namespace, ResourceOptions]:
    """A namespace of no team, for CronJobs, to which nothing can connect; and options for its objects."""
    # In a team's namespace, a pod could use a CronJob's ServiceAccount, and quota and NetworkPolicies could block the
    # pods.
    labels = {
        "app.kubernetes.io/part-of": "gpu-tenancy",
        "environment": environment,
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    metadata: ObjectMetaArgsDict = {"name": namespace, "labels": labels}
    made = core.Namespace(f"{name}-namespace", metadata=metadata, opts=ResourceOptions(parent=parent))
    inside = ResourceOptions(parent=parent, depends_on=[made])
    NetworkPolicy(
        f"{name}-default-deny",
        metadata={"name": "default-deny", "namespace": namespace},
        spec={"pod_selector": {}, "policy_types": ["Ingress"]},
        opts=inside,
    )
    return made, inside


class PlatformJob(Component):
    """A script that runs each five minutes in the namespace of its account.

    Its ClusterRole has the rules, which `bind_job` gives to the account in the namespaces of teams.
    """

    account: ClassVar[Subject]
    rules: ClassVar[Sequence[Rule]]
    script: ClassVar[str]

    def __init__(self, name: str, environment: str, variables: Mapping[str, str], opts: Options = None) -> None:
        super().__init__(f"gpu-tenancy:tenancy:{type(self).__name__}", name, opts)
        account, namespace = self.account.name, self.account.namespace
        space, inside = namespace_of_jobs(name, namespace, environment, self)
        metadata: ObjectMetaArgsDict = {"name": account, "namespace": namespace}
        made = core.ServiceAccount(f"{name}-account", metadata=metadata, opts=inside)
        role = cluster_role(f"{name}-role", f"{PREFIX}{namespace}", self.rules, self.own)
        pod = account, script_container(account, self.script, variables)
        cron_job(f"{name}-job", metadata, "*/5 * * * *", pod, self.after(space, made, role))


def bind_job(name: str, team: str, account: Subject, opts: ResourceOptions) -> None:
    """Gives the account of a CronJob the rights of its ClusterRole in a team's namespace."""
    role = f"{PREFIX}{account.namespace}"
    role_binding(name, (team, role), role, [account], opts)


def cron_job(
    name: str,
    metadata: ObjectMetaArgsDict,
    schedule: str,
    pod: tuple[str, core.ContainerArgsDict],
    opts: ResourceOptions,
) -> CronJob:
    """A CronJob that runs kubectl in a shell, by a schedule in UTC; `pod` is the ServiceAccount and the container."""
    account, container = pod
    template: core.PodTemplateSpecArgsDict = {
        "spec": kubectl_pod(account, "Never", {**container, "image": KUBECTL_AND_SHELL}, "256Mi")
    }
    if "labels" in metadata:
        template["metadata"] = {"labels": metadata["labels"]}
    return CronJob(
        name,
        metadata=metadata,
        spec={
            "schedule": schedule,
            "time_zone": "Etc/UTC",
            "concurrency_policy": "Forbid",
            "starting_deadline_seconds": 10 * _MINUTES,
            "successful_jobs_history_limit": 1,
            "failed_jobs_history_limit": 3,
            "job_template": {
                "spec": {"backoff_limit": 2, "active_deadline_seconds": 10 * _MINUTES, "template": template}
            },
        },
        opts=opts,
    )


def node_daemon_set(
    name: str, label: tuple[str, str], pod: core.PodSpecArgsDict, opts: ResourceOptions, *, rolling: bool = False
) -> DaemonSet:
    """A DaemonSet in `kube-system` whose pods set up nodes: each sees the processes of its node and has no token.

    It has the name of its label's value. A deployment does not wait for it. `rolling` states the default strategy.
    """
    labels = dict([label])
    setup: core.PodSpecArgsDict = {
        "priority_class_name": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "host_pid": True,
        "automount_service_account_token": False,
        **pod,
    }
    spec: DaemonSetSpecArgsDict = {
        "selector": {"match_labels": labels},
        "template": {"metadata": {"labels": labels}, "spec": setup},
    }
    if rolling:
        spec["update_strategy"] = {"type": "RollingUpdate"}
    metadata: ObjectMetaArgsDict = {
        "name": label[1],
        "namespace": "kube-system",
        "labels": labels,
        "annotations": DO_NOT_AWAIT,
    }
    return DaemonSet(name, metadata=metadata, spec=spec, opts=opts)
