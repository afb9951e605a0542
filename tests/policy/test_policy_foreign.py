"""Findings of packs in foreign programs, and of each rule in its samples."""

from pathlib import Path

import pytest
import yaml
from policy_builders import FOREIGN, TODAY, all_findings, findings, foreign_program
from samples import ENDING, RULES, Case, all_cases, cases_in

from document import PACKS
from rule_engine.evaluator import Evaluator, Finding

VERDICTS = FOREIGN / "verdicts.yaml"  # judged of each pack by its defaults; a person reviews each line
PINNED: dict[str, list[str]] = yaml.safe_load(VERDICTS.read_text(encoding="utf-8"))
NAMES = sorted(file.stem for file in FOREIGN.glob("*.yaml") if file != VERDICTS)
# In a preview of `eks`, the nodes' user data, which has their taints, is unknown.
READABLE = [name for name in NAMES if name != "eks"]


def judged(name: str) -> list[Finding]:
    program = foreign_program(name)
    return [finding for pack in PACKS.values() for finding in all_findings(Evaluator(pack, TODAY), program)]


def verdict(name: str) -> list[str]:
    return sorted(f"{finding.level.value} {finding.rule.name}: {finding.message}" for finding in judged(name))


@pytest.mark.parametrize("name", NAMES)
def test_findings_about_a_foreign_program_are_the_reviewed_ones(name: str) -> None:
    assert verdict(name) == PINNED[name]


def test_every_program_with_reviewed_findings_exists() -> None:
    assert list(PINNED) == NAMES


@pytest.mark.parametrize("name", READABLE)
def test_no_value_of_a_foreign_program_is_unreadable(name: str) -> None:
    assert [finding.message for finding in judged(name) if finding.outcome in {"unknown", "error"}] == []


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
