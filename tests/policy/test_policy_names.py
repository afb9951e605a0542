"""Names of kinds, groups and fields that rules use, one at a time."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pulumi_kubernetes
import pytest
from builders import planned, stack
from policy_builders import Sample, findings, with_field

from components.guards import DEFAULTS, actions, mutation, spec
from components.objects import wire
from gpu_tenancy.model.plan.guards import GuardsPlan
from rule_engine import Resource
from workload_rules import guards, pods

_NOT_OF_OBJECTS: Final = {
    *("helm.sh", "kustomize", "yaml", "meta"),
    *("extensions", "auditregistration.k8s.io", "settings.k8s.io", "lifecycle.k8s.io"),
}
"""Components of the SDK, and groups that Kubernetes has removed, so that they can be anybody's."""


def test_own_kinds_of_kubernetes_are_not_searched_for_pods() -> None:
    """As in the SDK, so that a group of a new version fails here."""
    text = Path(pulumi_kubernetes.__file__).read_text(encoding="utf-8")
    groups = set(re.findall(r'"kubernetes:([a-z0-9.]+)/v\w+:', text)) - _NOT_OF_OBJECTS
    assert len(groups) >= 20
    assert [group for group in sorted(groups) if pods.is_searched(Resource(f"kubernetes:{group}/v1:Any"))] == []
    assert pods.is_searched(Resource("kubernetes:sparkoperator.k8s.io/v1:Any"))


# Guards.

_PLAN: Final = planned(stack(guards={"exempt": ["bot@example.com", "it's\\"]})).guards
_DEPLOY: Final = "deploy the stack that creates the guards, with the pack of the same release"


def guard(which: str, plan: GuardsPlan = _PLAN) -> Sample:
    """A policy of a stack as Pulumi registers it; of `default-*`, one that completes objects."""
    kind, given = (
        ("Mutating", mutation(which.removeprefix("default-"), plan))
        if which.startswith("default-")
        else ("Validating", spec(which, plan))
    )
    props = {"metadata": {"name": f"gpu-tenancy-{which}"}, "spec": wire(given)}
    return Sample(f"kubernetes:admissionregistration.k8s.io/v1:{kind}AdmissionPolicy", props)


def weaknesses(sample: Sample) -> list[str]:
    found = findings(guards.guards_not_weakened, {"it": sample})
    return [finding.message.partition(": ")[2].removesuffix(f"; {_DEPLOY}") for finding in found]


@pytest.mark.parametrize("which", [*actions(_PLAN), *(f"default-{name}" for name in DEFAULTS)])
def test_guards_of_a_stack_are_not_weakened(which: str) -> None:
    assert weaknesses(guard(which)) == []


_USERS: Final = "matchConditions.0.expression"
_SELF: Final = "[request.userInfo.username]"
_BOT: Final = "bot@example.com"
_GPU_NAME: Final = "'nvidia.com/gpu', "


@pytest.mark.parametrize(
    ("path", "value", "weakness"),
    [
        ("failurePolicy", "Ignore", "failurePolicy differs"),
        ("failurePolicy", None, "failurePolicy is missing"),
        ("validations", [], "validations differs"),
        ("validations.0.expression", "true", "validations differs"),
        ("validations.0.message", "no", "validations differs"),
        ("matchConditions.0.name", "other", "matchConditions differs"),
        (_USERS, "false", "matchConditions differs"),
        (_USERS, ("['system:masters',", f"{_SELF} + ["), "matchConditions differs"),
        (_USERS, ("'bot@example.com'", "request.userInfo.username"), "matchConditions differs"),
        (_USERS, ("!(", "false && !("), "matchConditions differs"),
        (_USERS, (_BOT, r"\x73ystem:authenticated"), "matchConditions differs"),
        (_USERS, (_BOT, "system:authenticated"), "matchConditions exempts system:auth"),
        (_USERS, (_BOT, "system:serviceaccount:ml:x"), "matchConditions exempts system:service"),
        ("variables.0.expression", "''", "variables differs"),
        ("variables", ("max-gpus-per", "min"), "variables differs"),
        ("variables", (_GPU_NAME, ""), "variables lacks nvidia.com/gpu"),
        ("matchConstraints.objectSelector", {"matchLabels": {"a": "b"}}, "matchConstraints differs"),
        ("matchConstraints.excludeResourceRules", [{"scope": "*"}], "matchConstraints differs"),
        ("matchConstraints.resourceRules.0.operations", ["CREATE"], "matchConstraints differs"),
        ("matchConstraints.resourceRules.0.resources", ["pods"], "matchConstraints lacks replicationcontrollers"),
        ("matchConstraints.resourceRules.0.resourceNames", ["a"], "matchConstraints differs"),
        ("matchConstraints.resourceRules.0.scope", "Cluster", "matchConstraints differs"),
        ("auditAnnotations", [{"key": "a"}], "auditAnnotations is not a field of the guard"),
    ],
)
def test_changes_of_a_guard_are_reported(path: str, value: Any, weakness: str) -> None:
    """A pair of texts replaces the first in the value by the second."""
    whole = guard("amount")
    if isinstance(value, tuple):
        changed: Any = whole.props["spec"]
        for key in path.split("."):
            changed = changed[int(key) if key.isdigit() else key]
        old, new = (json.dumps(text)[1:-1] for text in cast("tuple[str, str]", value))
        value = json.loads(json.dumps(changed).replace(old, new))
    weakened = with_field(whole, f"spec.{path}", value)
    assert weakened != whole
    (found,) = weaknesses(weakened)
    assert weakness in found


def test_any_literals_of_a_stack_are_the_guard() -> None:
    few = replace(_PLAN, exempt=(), makers=(), trainer=None, max_per_node={}, taints={}, priorities={})
    many = replace(_PLAN, exempt=tuple(f"user-{n}@example.com" for n in range(40)), max_per_node={"nvidia.com/gpu": 8})
    assert [weaknesses(guard(which, plan)) for plan in (few, many) for which in ("amount", "queue")] == [[]] * 4
