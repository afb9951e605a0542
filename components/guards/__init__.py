"""ValidatingAdmissionPolicies for objects that tenants create after the deployment."""

from collections.abc import Iterator
from typing import Any, Final

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding

from gpu_tenancy.model.plan.guards import GuardsPlan

from .claims import device_claims
from .objects import object_rules
from .people import people_rules
from .policies import Rule
from .rules import gpu_requests, pod_rules

_ACTIONS: Final = {"deny": ["Deny"], "warn": ["Warn", "Audit"], "audit": ["Audit"]}
"""Validation actions of the API. `warn` also writes to the audit log, to count what `deny` would reject."""


class Guards(pulumi.ComponentResource):
    """Admission policies in the teams' namespaces. They apply to tenants with all permissions in their namespace, too.

    There is one policy per rule, whatever the number of teams: facts about a team are annotations of its Namespace,
    which tenants cannot change. Objects that controllers of Kubernetes and the operators create for an owner that was
    evaluated are exempt. The policies check the user of the request, because a tenant can forge an owner reference.
    Members of teams are bound by more rules, about what RBAC cannot say. Roles are not managed here.

    Attributes:
        bindings: each depends on its policy.

    Example:
        >>> Guards("guards", plan(stack).guards)
    """

    def __init__(self, name: str, guards: GuardsPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Guards", name, {}, opts)
        self.bindings = [self._policy(f"{name}-{rule.name}", rule, guards) for rule in rules(guards)]
        self.register_outputs({"action": guards.action})

    def _policy(self, name: str, rule: Rule, guards: GuardsPlan) -> ValidatingAdmissionPolicyBinding:
        policy_name = f"gpu-tenancy-{rule.name}"
        own = pulumi.ResourceOptions(parent=self)
        spec: Any = rule.spec
        policy = ValidatingAdmissionPolicy(name, metadata={"name": policy_name}, spec=spec, opts=own)
        binding: Any = {
            "policy_name": policy_name,
            "validation_actions": _ACTIONS["deny" if rule.always_denies else guards.action],
        }
        if rule.in_namespaces:
            binding["match_resources"] = {"namespace_selector": _selector(guards)}
        after = pulumi.ResourceOptions(parent=self, depends_on=[policy])
        return ValidatingAdmissionPolicyBinding(
            f"{name}-binding", metadata={"name": policy_name}, spec=binding, opts=after
        )


def rules(guards: GuardsPlan) -> Iterator[Rule]:
    """The rules that apply to a stack."""
    if any(bounds.default_gpus for bounds in guards.teams.values()):
        yield gpu_requests(guards)
    if guards.channels and guards.teams:
        yield device_claims(guards)
    if guards.members:
        yield from people_rules(guards)
    if guards.action != "off" and guards.teams:
        yield from pod_rules(guards)
        yield from object_rules(guards)


def _selector(guards: GuardsPlan) -> Any:
    """The teams' namespaces; system namespaces are excluded by name, whatever their labels."""
    key, value = guards.label
    spared = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(guards.spared)}
    return {"match_labels": {key: value}, "match_expressions": [spared]}
