"""Roles of people and whom they are bound to, and the flow of their requests to the API server."""

from typing import Any

from pulumi import ResourceOptions
from pulumi_kubernetes.flowcontrol import v1 as flowcontrol
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.rbac.v1 import RoleBinding

from gpu_tenancy.model.plan import flow_control as planned
from gpu_tenancy.model.plan.people import ADMIN, AUDITOR, MEMBER, PREFIX, AccessPlan, Subject, TeamBinding

from .objects import LABELS, Component, Options, cluster_role, cluster_role_binding, role_binding


class Access(Component):
    """ClusterRoles, and the bindings of administrators, auditors and members in the whole cluster.

    Roles have no wildcards, and nobody is bound who is not in the stack. The RoleBindings of teams are in their
    namespaces.
    """

    def __init__(self, name: str, access: AccessPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Access", name, opts)
        self.roles = {
            role.name: cluster_role(f"{name}-{role.name}", f"{PREFIX}{role.name}", role.rules, self.own)
            for role in access.roles
        }
        bound = (
            # Not `gpu-tenancy-admins`: that binds the administrators that GKE's section has.
            ("people-admins", ADMIN, access.admins),
            ("auditors", AUDITOR, access.auditors),
            ("members", MEMBER, access.members),
        )
        with_roles = self.after(*self.roles.values())
        for who, role, subjects in bound:
            if subjects:
                metadata: ObjectMetaArgsDict = {"name": f"{PREFIX}{who}", "labels": LABELS}
                cluster_role_binding(f"{name}-{who}", metadata, role, subjects, with_roles)


def team_binding(name: str, namespace: str, binding: TeamBinding, opts: ResourceOptions) -> RoleBinding:
    """The RoleBinding of one role in a team's namespace."""
    role = f"{PREFIX}{binding.role}"
    return role_binding(name, (namespace, f"{role}s"), role, binding.subjects, opts)


class FlowControl(Component):
    """One priority level for the requests of all teams, with a flow for each user (API Priority and Fairness).

    So requests of one team do not delay those of others. Levels and flows of operators and of the control plane are
    those that Kubernetes has.
    """

    def __init__(self, name: str, flows: planned.FlowsPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:FlowControl", name, opts)
        limited: flowcontrol.LimitedPriorityLevelConfigurationArgsDict = {
            "nominal_concurrency_shares": planned.SHARES,
            "lendable_percent": planned.LENDABLE,
            "borrowing_limit_percent": planned.BORROWED,
            "limit_response": {
                "type": "Queue",
                "queuing": {"queues": planned.QUEUES, "hand_size": planned.HAND, "queue_length_limit": planned.LENGTH},
            },
        }
        level = flowcontrol.PriorityLevelConfiguration(
            f"{name}-level",
            metadata={"name": planned.NAME},
            spec={"type": "Limited", "limited": limited},
            opts=self.own,
        )
        resources = {key: ["*"] for key in ("verbs", "api_groups", "resources", "namespaces")}
        spec: Any = {
            "priority_level_configuration": {"name": planned.NAME},
            "matching_precedence": planned.PRECEDENCE,
            "distinguisher_method": {"type": "ByUser"},
            "rules": [
                {
                    "subjects": [_of_flow(subject) for subject in flows.subjects],
                    "resource_rules": [{**resources, "cluster_scope": True}],
                    "non_resource_rules": [{"verbs": ["*"], "non_resource_urls": ["*"]}],
                }
            ],
        }
        flowcontrol.FlowSchema(f"{name}-schema", metadata={"name": planned.NAME}, spec=spec, opts=self.after(level))


def _of_flow(subject: Subject) -> dict[str, Any]:
    match subject.kind:
        case "Group":
            return {"kind": subject.kind, "group": {"name": subject.name}}
        case "User":
            return {"kind": subject.kind, "user": {"name": subject.name}}
        case "ServiceAccount":
            account = {"namespace": subject.namespace, "name": subject.name}
            return {"kind": subject.kind, "service_account": account}
