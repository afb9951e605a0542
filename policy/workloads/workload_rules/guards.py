"""Rules for the admission policies that guard the namespaces of teams."""

from collections.abc import Iterator, Mapping
from typing import Final

from rule_engine import MUST, Resource, Settings, Severity, View, rule
from workload_rules.objects import name, objects

_MARK: Final = "gpu-tenancy-"
"""Begins the names of the guards that a stack of GPU tenancy creates."""
_DEFAULT: Final = f"{_MARK}default-"
"""Begins the names of policies that complete objects, and reject none: they may be ignored if they fail."""
_GROUP: Final = "admissionregistration.k8s.io"
GUARDS: Final = objects(
    "guards of GPU tenancy and their bindings",
    f"{_GROUP}:MutatingAdmissionPolicy",
    f"{_GROUP}:MutatingAdmissionPolicyBinding",
    f"{_GROUP}:ValidatingAdmissionPolicy",
    f"{_GROUP}:ValidatingAdmissionPolicyBinding",
)
_NARROWING: Final = ("excludeResourceRules", "objectSelector", "resourceRules")
"""Fields of `matchResources` that a binding of a guard does not have."""
_DECIDING: Final = ("matchConditions", "matchConstraints", "mutations", "paramKind", "validations", "variables")
"""Fields of the spec of a policy by which it decides."""


@rule(
    "guards-not-weakened",
    rationale="Whoever weakens a guard is no longer bound by it, nor is any team: the guards apply to all namespaces.",
    fix="Change the section `guards` of the stack that creates the guards, and deploy that stack.",
    link="https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/",
    severity=Severity.CRITICAL,
    level=MUST,
    on=GUARDS,
)
def guards_not_weakened(guard: Resource, _: Settings) -> Iterator[str]:
    """Only the stack that creates the guards of GPU tenancy may change what they match and reject."""
    if guard.of_stack or not name(guard).startswith(_MARK):
        return
    spec = guard.props.entries("spec")
    yield from _of_binding(guard, spec) if guard.kind.endswith("Binding") else _of_policy(guard, spec)


def _of_binding(binding: Resource, spec: Mapping[str, View]) -> Iterator[str]:
    for field, value in spec.items():
        if field == "validationActions" and "Deny" not in value.texts():
            yield f"validationActions is {', '.join(value.texts())}, so that the guard rejects nothing; set Deny"
        elif field == "policyName" and value.text() != name(binding):
            yield f"policyName is {value.text()}, which is another policy; set {name(binding)}"
        elif field == "matchResources":
            for narrowing in value.entries():
                if narrowing in _NARROWING or (narrowing == "namespaceSelector" and binding.patch):
                    yield f"matchResources.{narrowing} narrows the guard; remove it"


def _of_policy(policy: Resource, spec: Mapping[str, View]) -> Iterator[str]:
    for field, value in spec.items():
        if field == "failurePolicy" and value.text() == "Ignore" and not name(policy).startswith(_DEFAULT):
            yield "failurePolicy is Ignore, so that an object passes if the guard fails; set Fail"
        elif field in _DECIDING and policy.patch:
            yield f"{field} replaces what the guard decides; remove it"
        elif field == "validations" and not value.items():
            yield "validations is empty, so that the guard rejects nothing; deploy the guard of the stack"
