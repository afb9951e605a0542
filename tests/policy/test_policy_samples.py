"""Every rule of every pack, with programs that it allows, denies or cannot evaluate."""

from pathlib import Path

import pytest
import yaml
from policy_builders import findings
from samples import ENDING, RULES, Case, all_cases, cases_in

_EXAMPLE = (Path(__file__).parent / "samples" / "README.md").read_text(encoding="utf-8").split("```")[1]
CASES = (*all_cases(), *cases_in("gpu-jobs-end", yaml.safe_load(_EXAMPLE.removeprefix("yaml"))))
_FOUND = {"denied": "broken", "unknown": "unknown"}


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.rule.name}: {case.name}"[:140]) for case in CASES])
def test_rule_reports_the_messages_of_the_case(case: Case) -> None:
    found = findings(case.rule, case.program, case.settings)
    ending = ENDING if case.outcome == "unknown" else ""
    assert [finding.message for finding in found] == [f"{message}{ending}" for message in case.messages]
    assert {finding.outcome for finding in found} == ({_FOUND[case.outcome]} if case.outcome in _FOUND else set())


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_has_cases_of_each_outcome(rule: str) -> None:
    assert {case.outcome for case in CASES if case.rule.name == rule} == {"allowed", "denied", "unknown"}


def test_cases_of_a_rule_have_different_names() -> None:
    names = [(case.rule.name, case.outcome, case.name) for case in CASES if case.outcome != "unknown"]
    assert len({*names}) == len(names)
