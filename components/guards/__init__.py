"""What the API server itself judges of what tenants make, after the deployment."""

from typing import Any, Final

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding

from gpu_tenancy.model.plan.guards import GuardsPlan

from .expressions import literal
from .requests import gpu_requests
from .rules import Rule, rules

_ACTIONS: Final = {"deny": ["Deny"], "warn": ["Warn", "Audit"], "audit": ["Audit"]}
"""In the API's words. What only warns is also written to the audit log, so that whoever turns to `deny` can count
before what would be refused."""

_JUDGED: Final = (
    ("", "v1", ("pods", "replicationcontrollers")),
    ("apps", "v1", ("daemonsets", "deployments", "replicasets", "statefulsets")),
    ("batch", "v1", ("cronjobs", "jobs")),
    ("batch.volcano.sh", "*", ("jobs",)),
    ("jobset.x-k8s.io", "*", ("jobsets",)),
    ("scheduling.volcano.sh", "*", ("podgroups",)),
    ("trainer.kubeflow.org", "*", ("trainjobs",)),
)
"""Kinds that pods are made of: API group, version, resources. Their subresources (status, scale, binding) are not
among them, so what nodes, schedulers and autoscalers do there is never judged."""


class Guards(pulumi.ComponentResource):
    """Admission policies over the teams' namespaces: what a tenant with every right there may still not do.

    One policy a rule; none names an object that a tenant could change. Pods are judged by who makes them: those that
    Kubernetes' and the operators' controllers make were judged with their owner, and what an object says of its own
    owner counts for nothing. People's rights are not managed here.

    Example:
        >>> Guards("guards", plan(stack).guards)
    """

    def __init__(self, name: str, guards: GuardsPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Guards", name, {}, opts)
        own = pulumi.ResourceOptions(parent=self)
        if guards.gpu_defaults:
            gpu_requests(f"{name}-gpu-requests", guards.gpu_defaults, own)
        made = () if guards.action == "off" or not guards.teams else rules(guards)
        self.policies = {rule.name: self._policy(f"{name}-{rule.name}", rule, guards) for rule in made}
        self.register_outputs({"action": guards.action})

    def _policy(self, name: str, rule: Rule, guards: GuardsPlan) -> ValidatingAdmissionPolicy:
        called = f"gpu-tenancy-{rule.name}"
        policy = ValidatingAdmissionPolicy(
            name, metadata={"name": called}, spec=_spec(rule, guards), opts=pulumi.ResourceOptions(parent=self)
        )
        key, value = guards.label
        ValidatingAdmissionPolicyBinding(
            f"{name}-binding",
            metadata={"name": called},
            spec={
                "policy_name": called,
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
                for group, version, resources in _JUDGED
            ]
        },
        "match_conditions": [
            {"name": "not-exempt", "expression": _not_by(guards.exempt)},
            {"name": "not-made-for-an-owner-that-was-judged", "expression": _not_made(rule, guards)},
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


def _not_by(accounts: tuple[str, ...]) -> str:
    listed = literal(accounts)
    return f"!(request.userInfo.username in {listed} || request.userInfo.?groups.orValue([]).exists(g, g in {listed}))"


def _not_made(rule: Rule, guards: GuardsPlan) -> str:
    """Trainer joins a TrainJob with a runtime, so what its JobSets ask for is seen in them first."""
    if guards.trainer is None:
        return _not_by(guards.makers)
    if not rule.of_trainer:
        return _not_by((*guards.makers, guards.trainer))
    return f"{_not_by(guards.makers)} && (object.kind == 'JobSet' || {_not_by((guards.trainer,))})"
