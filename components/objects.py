"""Builders of Kubernetes objects that several components use, and their form on the wire."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, TypeAlias, cast

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.rbac import v1 as rbac
from pydantic.alias_generators import to_camel

from gpu_tenancy.model.catalogue.roles import Rule
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.plan.people import Subject
from gpu_tenancy.model.plan.servers import RoutePlan

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
"""API version of Kueue's objects; v1beta1 is deprecated."""
DO_NOT_AWAIT: Final = {"pulumi.com/skipAwait": "true"}
"""Annotation of workloads that can stay pending in a queue: a deployment does not wait until they run."""
RBAC: Final = "rbac.authorization.k8s.io"
LABELS: Final[Mapping[str, str]] = dict([TEAM_LABEL])
"""Labels of roles, bindings and accounts of teams."""

Options: TypeAlias = ResourceOptions | None
"""Options of a component: its parent, providers and dependencies; None for those of a child of the stack."""


class Component(pulumi.ComponentResource):
    """A component whose resources are its children.

    Args:
        kind: type of the component, such as `gpu-tenancy:tenancy:Queues`.
        name: of the component.
        opts: parent, providers and dependencies.

    Attributes:
        own: options of its resources.
    """

    def __init__(self, kind: str, name: str, opts: Options) -> None:
        super().__init__(kind, name, {}, opts)
        self.own = ResourceOptions(parent=self)

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
    """The AdmissionCheck of a controller, with the config of its own kind and the same name."""
    parameters = {"apiGroup": KUEUE.partition("/")[0], "kind": config_kind, "name": check}
    spec = {"controllerName": controller, "parameters": parameters}
    return kueue_object(name, "AdmissionCheck", {"name": check}, spec, opts)


def fair_sharing(weight: float | None) -> dict[str, Any]:
    """The weight of a Cohort, ClusterQueue or LocalQueue, as part of its spec; empty for None."""
    return {} if weight is None else {"fairSharing": {"weight": f"{weight:g}"}}


class PlainObject(pulumi.CustomResource):
    """An object of a kind that an operator defines, such as Kueue's WorkloadPriorityClass."""

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
"""Fields whose value is a map with keys of the user's choice."""


def wire(piece: Any) -> Any:
    """Converts the snake_case keys of an SDK's `…ArgsDict` to the API's camelCase.

    Keys of the user's choice, such as label keys, are unchanged.
    """
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
    """A role as a binding names it."""
    return {"api_group": RBAC, "kind": kind, "name": role}


def _subject(subject: Subject) -> rbac.SubjectArgsDict:
    if subject.kind == "ServiceAccount":
        return {"kind": subject.kind, "name": subject.name, "namespace": subject.namespace}
    return {"api_group": RBAC, "kind": subject.kind, "name": subject.name}


def http_route(
    name: str, place: tuple[str, str], labels: Mapping[str, str], route: RoutePlan, opts: ResourceOptions
) -> CustomResource:
    """An HTTPRoute, in which weights are set only if there are several Services.

    https://gateway-api.sigs.k8s.io/reference/api-types/httproute/

    Args:
        name: of the resource.
        place: namespace and name.
        labels: of the route.
        route: where it leads.
        opts: of the resource.
    """
    namespace, gateway = route.gateway
    shares = {} if len(route.backends) == 1 else dict(route.backends)
    refs = [
        {"name": backend, "port": 80, **({"weight": shares[backend]} if shares else {})}
        for backend, _ in route.backends
    ]
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": path}} for path in route.paths],
        "timeouts": {"request": f"{route.timeout}s"},
        "backendRefs": refs,
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
