"""Roles of people, and whom they are bound to."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

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
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.plan.people import ADMIN, AUDITOR, MEMBER, PREFIX, AccessPlan, Subject, TeamBinding

_GROUP: Final = "rbac.authorization.k8s.io"
LABELS: Final[Mapping[str, str]] = dict([TEAM_LABEL])
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
        within = pulumi.ResourceOptions(parent=self)
        self.roles = {
            role.name: cluster_role(f"{name}-{role.name}", f"{PREFIX}{role.name}", role.rules, within)
            for role in access.roles
        }
        with_roles = pulumi.ResourceOptions(parent=self, depends_on=[*self.roles.values()])
        bound = (
            # Not `gpu-tenancy-admins`: that binds the administrators that GKE's section has.
            ("people-admins", ADMIN, access.admins),
            ("auditors", AUDITOR, access.auditors),
            ("members", MEMBER, access.members),
        )
        self.bindings = [
            cluster_role_binding(f"{name}-{who}", f"{PREFIX}{who}", (role, found), with_roles)
            for who, role, found in bound
            if found
        ]
        self.register_outputs({"roles": list(self.roles)})


def team_binding(name: str, namespace: str, binding: TeamBinding, opts: pulumi.ResourceOptions) -> RoleBinding:
    """The RoleBinding of one role in a team's namespace."""
    place = (namespace, f"{PREFIX}{binding.role}s")
    return role_binding(name, place, (f"{PREFIX}{binding.role}", binding.subjects), opts)


Given: TypeAlias = tuple[str, Sequence[Subject]]
"""A ClusterRole, and whom a binding gives it to."""


def cluster_role(name: str, role: str, rules: Sequence[Rule], opts: pulumi.ResourceOptions) -> ClusterRole:
    """A ClusterRole with the name `role`."""
    return ClusterRole(
        name, metadata={"name": role, "labels": LABELS}, rules=[_rule(rule) for rule in rules], opts=opts
    )


def cluster_role_binding(name: str, binding: str, given: Given, opts: pulumi.ResourceOptions) -> ClusterRoleBinding:
    """A ClusterRoleBinding with the name `binding`."""
    role, subjects = given
    return ClusterRoleBinding(
        name,
        metadata={"name": binding, "labels": LABELS},
        role_ref=_role_ref(role),
        subjects=[_subject(one) for one in subjects],
        opts=opts,
    )


def role_binding(name: str, place: tuple[str, str], given: Given, opts: pulumi.ResourceOptions) -> RoleBinding:
    """A RoleBinding of a ClusterRole; `place` is its namespace and name."""
    (namespace, binding), (role, subjects) = place, given
    return RoleBinding(
        name,
        metadata={"name": binding, "namespace": namespace, "labels": LABELS},
        role_ref=_role_ref(role),
        subjects=[_subject(one) for one in subjects],
        opts=opts,
    )


def _rule(rule: Rule) -> PolicyRuleArgsDict:
    return {"api_groups": list(rule.groups), "resources": list(rule.resources), "verbs": list(rule.verbs)}


def _role_ref(role: str) -> RoleRefArgsDict:
    return {"api_group": _GROUP, "kind": "ClusterRole", "name": role}


def _subject(subject: Subject) -> SubjectArgsDict:
    if subject.kind == "ServiceAccount":
        return {"kind": subject.kind, "name": subject.name, "namespace": subject.namespace}
    return {"api_group": _GROUP, "kind": subject.kind, "name": subject.name}
