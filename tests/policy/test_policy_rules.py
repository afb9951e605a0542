"""Every rule of every pack, with valid, invalid and unknown values."""

import pytest
from cases import all_cases
from policy_builders import UNKNOWN, Break, Case, as_tuple, changed, doubts, findings, messages

import cloud_rules
import workload_rules
from rule_engine.rules import AnyRule

CASES = all_cases()
RULES: list[AnyRule] = [*workload_rules.PACK.rules, *cloud_rules.PACK.rules]


def of_cases() -> list[object]:
    return [pytest.param(case, id=f"{case.rule.name}: {case.name}") for case in CASES]


def of_breaks() -> list[object]:
    return [
        pytest.param(case, broken, id=f"{case.rule.name}: {case.name}: {broken.at} {broken.to}"[:120])
        for case in CASES
        for broken in case.breaks
    ]


def of_unknowns() -> list[object]:
    return [pytest.param(case, at, id=f"{case.rule.name}: {case.name}: {at}") for case in CASES for at in case.unknown]


@pytest.mark.parametrize("case", of_cases())
def test_valid_resources_have_no_findings_by_case(case: Case) -> None:
    assert findings(case.rule, case.given, case.settings) == []
    for at, to in case.also:
        assert findings(case.rule, changed(case.given, at, to), case.settings) == [], (at, to)


@pytest.mark.parametrize(("case", "broken"), of_breaks())
def test_each_changed_part_is_reported_with_place_value_and_fix(case: Case, broken: Break) -> None:
    diagnostics = findings(case.rule, changed(case.given, broken.at, broken.to), case.settings)
    assert messages(diagnostics, "broken") == as_tuple(broken.says)
    assert {finding.outcome for finding in diagnostics} == {"broken"}


@pytest.mark.parametrize(("case", "at"), of_unknowns())
def test_each_unknown_value_is_reported(case: Case, at: str) -> None:
    diagnostics = findings(case.rule, changed(case.given, at, UNKNOWN), case.settings)
    assert messages(diagnostics, "unknown") == doubts(case, at)
    assert {finding.outcome for finding in diagnostics} == {"unknown"}


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in RULES])
def test_each_rule_has_cases_with_valid_invalid_and_unknown_values(rule: AnyRule) -> None:
    cases = [case for case in CASES if case.rule is rule]
    assert any(case.breaks for case in cases)
    assert any(case.unknown for case in cases)
