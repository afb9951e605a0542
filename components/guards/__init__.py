"""ValidatingAdmissionPolicies for objects that tenants create after the deployment."""

from typing import Any, Final

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding

from gpu_tenancy.model.plan.guards import GuardsPlan

from .expressions import literal
from .requests import gpu_requests
from .rules import Rule, rules

_ACTIONS: Final = {"deny": ["Deny"], "warn": ["Warn", "Audit"], "audit": ["Audit"]}
"""Validation actions of the API. `warn` also writes to the audit log, to count what `deny` would reject."""

_RESOURCES: Final = (
    ("", "v1", ("pods", "replicationcontrollers")),
    ("apps", "v1", ("daemonsets", "deployments", "replicasets", "statefulsets")),
    ("batch", "v1", ("cronjobs", "jobs")),
    ("batch.volcano.sh", "*", ("jobs",)),
    ("jobset.x-k8s.io", "*", ("jobsets",)),
    ("scheduling.volcano.sh", "*", ("podgroups",)),
    ("trainer.kubeflow.org", "*", ("trainjobs",)),
)
"""Kinds that contain pods: API group, version, resources. Subresources (status, scale, binding) are not included, so
nodes, schedulers and autoscalers are not affected."""


class Guards(pulumi.ComponentResource):
    """Admission policies in the teams' namespaces. They apply to tenants with all permissions in their namespace, too.

    There is one policy per rule, and none depends on an object that a tenant could change. Objects that controllers of
    Kubernetes and the operators create are exempt, because their owner was validated. The policies check the user of
    the request, not the owner reference, which a tenant can forge. Roles are not managed here.

    Example:
        >>> Guards("guards", plan(stack).guards)
    """

    def __init__(self, name: str, guards: GuardsPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Guards", name, {}, opts)
        own = pulumi.ResourceOptions(parent=self)
        if guards.gpu_defaults:
            gpu_requests(f"{name}-gpu-requests", guards.gpu_defaults, own)
        enabled_rules = () if guards.action == "off" or not guards.teams else rules(guards)
        self.policies = {rule.name: self._policy(f"{name}-{rule.name}", rule, guards) for rule in enabled_rules}
        self.register_outputs({"action": guards.action})

    def _policy(self, name: str, rule: Rule, guards: GuardsPlan) -> ValidatingAdmissionPolicy:
        policy_name = f"gpu-tenancy-{rule.name}"
        policy = ValidatingAdmissionPolicy(
            name, metadata={"name": policy_name}, spec=_spec(rule, guards), opts=pulumi.ResourceOptions(parent=self)
        )
        key, value = guards.label
        ValidatingAdmissionPolicyBinding(
            f"{name}-binding",
            metadata={"name": policy_name},
            spec={
                "policy_name": policy_name,
                "validation_actions": _ACTIONS[guards.action],
                "match_resources": {
                    "namespace_selector": {
                        "match_labels": {key: value},
                        "match_expressions": [
                            {
                                "key": "kubernetes.io/metadata.name",
                                "operator": "NotIn",
                                "values": list(guards.spared),
                            }
                        ],
                    }
                },
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        return policy


def _spec(rule: Rule, guards: GuardsPlan) -> Any:
    return {
        "failure_policy": "Fail",
        "match_constraints": {
            "resource_rules": [
                {
                    "api_groups": [group],
                    "api_versions": [version],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": list(resources),
                    "scope": "Namespaced",
                }
                for group, version, resources in _RESOURCES
            ]
        },
        "match_conditions": [
            {"name": "not-exempt", "expression": _not_requested_by(guards.exempt)},
            {"name": "not-made-for-an-owner-that-was-judged", "expression": _not_created_by_controller(rule, guards)},
        ],
        "variables": [{"name": name, "expression": text} for name, text in rule.all_variables.items()],
        "validations": [
            {
                "expression": f"!variables.touched || size(variables.{fault}) == 0",
                "message_expression": f"variables.{fault}[0]",
                "message": f"breaks the rule gpu-tenancy-{rule.name}",
                "reason": "Forbidden",
            }
            for fault in rule.faults
        ],
    }


def _not_requested_by(accounts: tuple[str, ...]) -> str:
    names = literal(accounts)
    return f"!(request.userInfo.username in {names} || request.userInfo.?groups.orValue([]).exists(g, g in {names}))"


def _not_created_by_controller(rule: Rule, guards: GuardsPlan) -> str:
    """Exempts objects of controllers, except JobSets of Trainer, which also contain the pods of the runtime."""
    if guards.trainer is None:
        return _not_requested_by(guards.makers)
    if not rule.of_trainer:
        return _not_requested_by((*guards.makers, guards.trainer))
    return f"{_not_requested_by(guards.makers)} && (object.kind == 'JobSet' || {_not_requested_by((guards.trainer,))})"
