"""Namespaces without a tenant: an exact list, which an organisation can extend, and rules that skip them."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from policy_builders import Sample, findings, manifest
from samples import cases_of

from gpu_tenancy.model.catalogue.operators import charts
from rule_engine.rules import AnyRule, ConfigError
from workload_rules import PACK, security
from workload_rules.pods import SYSTEM, Tenants

BY_PLATFORM = "monitoring"
"""The namespace of Prometheus: tenants too have one of this name, so the configurations in policy/config list it."""


def pod(namespace: str) -> Sample:
    return manifest(
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: miner, namespace: {namespace}}}, spec: {{hostPID: true,"
        " containers: [{name: main, securityContext: {privileged: true}}]}}"
    )


@pytest.mark.parametrize("namespace", SYSTEM)
def test_pods_of_system_namespaces_are_not_checked(namespace: str) -> None:
    assert findings(security.no_privileged, {"it": pod(namespace)}) == []


@pytest.mark.parametrize(
    "namespace",
    ["recommender-system", "gke-team", "kube-ml", "gmp-team", "monitoring", "kube-system2", "default", "karpenter"],
)
def test_checks_namespaces_with_names_like_system_ones(namespace: str) -> None:
    for rule in (security.no_privileged, security.no_host_namespaces):
        assert [finding.level for finding in findings(rule, {"it": pod(namespace)})] == [rule.level]


def test_platform_adds_namespaces_to_the_system_namespaces() -> None:
    settings = {"platform": ["recommender-system"]}
    assert findings(security.no_privileged, {"it": pod("recommender-system")}, settings) == []
    assert findings(security.no_privileged, {"it": pod("kube-system")}, settings) == []
    assert findings(security.no_privileged, {"it": pod("news-system")}, settings) != []


@pytest.mark.parametrize("setting", ["system", "platform"])
@pytest.mark.parametrize("value", ["*-system", "kube-*", "gke-?", "ml-[ab]", "Kube-System", "", "a" * 64])
def test_a_pattern_is_refused_with_place_value_and_fix(setting: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        security.no_privileged.parse_settings({setting: ["kube-system", value]})
    assert str(refused.value) == (
        f"no-privileged.{setting}: {value!r} is not the name of a namespace; list exact names, without patterns"
    )


def test_namespaces_of_operators_are_system_namespaces() -> None:
    namespaces = {chart.namespace for chart in charts().values()}
    assert namespaces - {*SYSTEM} == {BY_PLATFORM}


def test_all_rules_have_the_same_system_namespaces() -> None:
    defaults = [rule.parse_settings({}) for rule in PACK.rules]
    assert {tuple(settings.system) for settings in defaults if isinstance(settings, Tenants)} == {tuple(SYSTEM)}


# Rules about tenants with their samples in namespaces of no tenant.

EVERYWHERE: Final = {
    "kueue-manages-all",
    "no-binding-to-everybody",
    "no-cluster-admin",
    "no-wildcard-roles",
    "priority-exists",
    "queue-exists",
    "reference-grants-reviewed",
}
"""Rules about objects in all namespaces: for them, a tenant is defined otherwise, such as by a right."""
# Starts of messages about a namespace, or about an object in one.
IN_NAMESPACE: Final = re.compile(r"Namespace |\w+ [\w-]+/")


def of_tenants() -> list[object]:
    rules = PACK.rules
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
