"""Admission policies for objects that tenants create after the deployment."""

from typing import Any, Final

import pulumi
from pulumi_kubernetes.admissionregistration import v1 as admissionregistration

from gpu_tenancy.model.plan.guards import GuardsPlan

from ..objects import Component, Options
from .sources import has_parameters, mutation, scope, spec

DEFAULTS: Final = ("queue", "tolerations", "priority", "resources", "ray", "running", "deadline", "pull-secrets")
"""What MutatingAdmissionPolicies complete."""
_ACTIONS: Final = {"deny": ["Deny"], "warn": ["Warn", "Audit"], "audit": ["Audit"]}
"""Validation actions of the API. `warn` also writes to the audit log, to count what `deny` would reject."""


class Guards(Component):
    """Admission policies in the teams' namespaces. They apply to tenants with all permissions in their namespace, too.

    Before the guards, which reject, defaults complete what members of teams submit; they are no guards.

    There is one policy per rule, whatever the number of teams: facts about a team are annotations of its Namespace,
    which tenants cannot change. Objects that controllers of Kubernetes and the operators create for an owner that was
    evaluated are exempt. The policies check the user of the request, because a tenant can forge an owner reference.
    Members of teams are bound by more rules, about what RBAC cannot say. Roles are not managed here.

    Attributes:
        bindings: each depends on its policy.
    """

    def __init__(self, name: str, guards: GuardsPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Guards", name, opts)
        guarding = [self._policy(f"{name}-{rule}", rule, action, guards) for rule, action in actions(guards).items()]
        # Without taints there is nothing to tolerate, and CEL has no type for the keys of an empty map.
        completed = [what for what in DEFAULTS if guards.defaults and (guards.taints or what != "tolerations")]
        defaults = [self._default(f"{name}-default-{what}", what, guards) for what in completed]
        self.bindings: list[pulumi.Resource] = [*guarding, *defaults]

    def _policy(
        self, name: str, rule: str, action: str, guards: GuardsPlan
    ) -> admissionregistration.ValidatingAdmissionPolicyBinding:
        policy_name = f"gpu-tenancy-{rule}"
        policy_spec: Any = spec(rule, guards)
        policy = admissionregistration.ValidatingAdmissionPolicy(
            name, metadata={"name": policy_name}, spec=policy_spec, opts=self.own
        )
        binding: Any = {"policy_name": policy_name, "validation_actions": _ACTIONS[action]}
        if scope(rule) == "Namespaced":
            binding["match_resources"] = {"namespace_selector": _selector(guards)}
        if has_parameters(rule):
            binding["param_ref"] = {"selector": {}, "parameter_not_found_action": "Allow"}
        return admissionregistration.ValidatingAdmissionPolicyBinding(
            f"{name}-binding", metadata={"name": policy_name}, spec=binding, opts=self.after(policy)
        )

    def _default(
        self, name: str, what: str, guards: GuardsPlan
    ) -> admissionregistration.MutatingAdmissionPolicyBinding:
        metadata: Any = {"name": f"gpu-tenancy-default-{what}"}
        policy_spec: Any = mutation(what, guards)
        policy = admissionregistration.MutatingAdmissionPolicy(name, metadata=metadata, spec=policy_spec, opts=self.own)
        binding: Any = {
            "policy_name": metadata["name"],
            "match_resources": {"namespace_selector": _selector(guards)},
        }
        return admissionregistration.MutatingAdmissionPolicyBinding(
            f"{name}-binding", metadata=metadata, spec=binding, opts=self.after(policy)
        )


def actions(guards: GuardsPlan) -> dict[str, str]:
    """The policies that apply to a stack, each with its action: some deny whatever the action of the guards."""
    teams = guards.teams.values()
    chosen = {
        "gpu-requests": any(bounds.default_gpus for bounds in teams),
        "device-claims": guards.claims and bool(teams),
        # About members of teams, as RBAC denies.
        **dict.fromkeys(("queue-objects", "secrets", "accounts", "tokens", "priority"), guards.members),
    }
    denying = {name: "deny" for name, applies in chosen.items() if applies}
    if guards.action == "off" or not teams:
        return denying
    others = {
        **dict.fromkeys(("queue", "kueue-metadata", "release", "rollout", "scale", "status", "devices", "grace"), True),
        "toleration": bool(guards.taints),
        "scheduling": True,
        "amount": True,
        "ratio": any(bounds.ratios or bounds.defaults or bounds.least for bounds in teams),
        "images": bool(guards.registries),
        **dict.fromkeys(("queue-objects", "network", "expose", "disruption", "namespace"), True),
    }
    return {**denying, **{name: guards.action for name, applies in others.items() if applies and name not in denying}}


def _selector(guards: GuardsPlan) -> Any:
    """The teams' namespaces; system namespaces are excluded by name, whatever their labels."""
    key, value = guards.label
    spared = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(guards.spared)}
    return {"match_labels": {key: value}, "match_expressions": [spared]}
