"""Every rule about tenants with its cases in namespaces of no tenant."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from policy_builders import Sample, findings
from samples import cases_of

import workload_rules
from rule_engine.rules import AnyRule
from workload_rules.pods import Tenants

EVERYWHERE: Final = {
    "no-binding-to-everybody",
    "no-cluster-admin",
    "no-wildcard-roles",
    "priority-exists",
    "queue-covers-gpus",
    "queue-exists",
}
"""Rules about objects in all namespaces: a tenant is something else for them, such as who has a right."""
IN_NAMESPACE: Final = re.compile(r"Namespace |\w+ [\w-]+/")
"""Begins messages about a namespace, or about an object in one."""


def of_tenants() -> list[object]:
    rules = workload_rules.PACK.rules
    return [pytest.param(one, id=one.name) for one in rules if one.settings and issubclass(one.settings, Tenants)]


def namespaces(given: Mapping[str, Sample]) -> Iterator[str]:
    for sample in given.values():
        if sample.type.startswith("kubernetes:"):
            metadata = sample.props.get("metadata", {})
            yield metadata.get("name", sample.name) if sample.type.endswith(":Namespace") else "default"
            yield metadata.get("namespace", "default")


@pytest.mark.parametrize("setting", ["system", "platform"])
@pytest.mark.parametrize("rule", of_tenants())
def test_a_rule_for_tenants_reports_nothing_in_other_namespaces(rule: AnyRule, setting: str) -> None:
    reported = [
        finding.message
        for case in cases_of(rule.name, "denied")
        for finding in findings(rule, case.program, {**case.settings, setting: sorted({*namespaces(case.program)})})
        if IN_NAMESPACE.match(finding.message)
    ]
    assert bool(reported) == (rule.name in EVERYWHERE), reported
