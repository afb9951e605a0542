"""Roles of people, and whom they are bound to."""

from collections.abc import Sequence
from typing import Final

import pulumi
from pulumi_kubernetes.rbac.v1 import (
    ClusterRole,
    ClusterRoleBinding,
    PolicyRuleArgsDict,
    RoleBinding,
    RoleRefArgsDict,
    SubjectArgsDict,
)

from gpu_tenancy.model.catalogue.roles import Rule
from gpu_tenancy.model.plan.people import PREFIX, AccessPlan, RolePlan, Subject, TeamBinding

_GROUP: Final = "rbac.authorization.k8s.io"
LABELS: Final = {"app.kubernetes.io/managed-by": "gpu-tenancy"}
"""Labels of roles, bindings and accounts."""


class Access(pulumi.ComponentResource):
    """ClusterRoles, and the bindings of administrators, auditors and members in the whole cluster.

    Roles have no wildcards, and nobody is bound who is not in the stack. The RoleBindings of teams are in their
    namespaces.

    Example:
        >>> Access("access", plan(stack).access)
    """

    def __init__(self, name: str, access: AccessPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Access", name, {}, opts)
        self._within = pulumi.ResourceOptions(parent=self)
        self.roles = {role.name: self._role(f"{name}-{role.name}", role) for role in access.roles}
        bound = (
            # Not `gpu-tenancy-admins`: that binds the administrators that GKE's section has.
            ("people-admins", "cluster-admin", access.admins),
            ("auditors", f"{PREFIX}auditor", access.auditors),
            ("members", f"{PREFIX}member", access.members),
        )
        self.bindings = [self._bind(f"{name}-{who}", who, role, found) for who, role, found in bound if found]
        self.register_outputs({"roles": list(self.roles)})

    def _role(self, name: str, role: RolePlan) -> ClusterRole:
        return ClusterRole(
            name,
            metadata={"name": f"{PREFIX}{role.name}", "labels": LABELS},
            rules=[rule_of(rule) for rule in role.rules],
            opts=self._within,
        )

    def _bind(self, name: str, who: str, role: str, found: Sequence[Subject]) -> ClusterRoleBinding:
        return ClusterRoleBinding(
            name,
            metadata={"name": f"{PREFIX}{who}", "labels": LABELS},
            role_ref=role_ref(role),
            subjects=[subject_of(one) for one in found],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*self.roles.values()]),
        )


def team_binding(name: str, namespace: str, binding: TeamBinding, opts: pulumi.ResourceOptions) -> RoleBinding:
    """The RoleBinding of one role in a team's namespace."""
    return RoleBinding(
        name,
        metadata={"name": f"{PREFIX}{binding.role}s", "namespace": namespace, "labels": LABELS},
        role_ref=role_ref(f"{PREFIX}{binding.role}"),
        subjects=[subject_of(one) for one in binding.subjects],
        opts=opts,
    )


def rule_of(rule: Rule) -> PolicyRuleArgsDict:
    """A rule of a ClusterRole."""
    return {"api_groups": list(rule.groups), "resources": list(rule.resources), "verbs": list(rule.verbs)}


def role_ref(role: str) -> RoleRefArgsDict:
    """The reference of a binding to a ClusterRole."""
    return {"api_group": _GROUP, "kind": "ClusterRole", "name": role}


def subject_of(subject: Subject) -> SubjectArgsDict:
    """A subject of a binding."""
    if subject.kind == "ServiceAccount":
        return {"kind": subject.kind, "name": subject.name, "namespace": subject.namespace}
    return {"api_group": _GROUP, "kind": subject.kind, "name": subject.name}
