"""Findings of packs in foreign programs: in the shape of well-known charts, modules and examples."""

import pytest
import yaml
from policy_builders import FOREIGN, TODAY, all_findings, foreign_program

from document import PACKS
from rule_engine.evaluator import Evaluator, Finding

VERDICTS = FOREIGN / "verdicts.yaml"  # findings of each pack by its defaults; a person reviews each line
PINNED: dict[str, list[str]] = yaml.safe_load(VERDICTS.read_text(encoding="utf-8"))
NAMES = sorted(file.stem for file in FOREIGN.glob("*.yaml") if file != VERDICTS)
# In a preview of `eks`, the nodes' user data, which has their taints, is unknown.
READABLE = [name for name in NAMES if name != "eks"]


def findings(name: str) -> list[Finding]:
    program = foreign_program(name)
    return [finding for pack in PACKS.values() for finding in all_findings(Evaluator(pack, TODAY), program)]


def verdict(name: str) -> list[str]:
    return sorted(f"{finding.level.value} {finding.rule.name}: {finding.message}" for finding in findings(name))


@pytest.mark.parametrize("name", NAMES)
def test_findings_about_a_foreign_program_are_the_reviewed_ones(name: str) -> None:
    assert verdict(name) == PINNED[name]


def test_every_program_with_reviewed_findings_exists() -> None:
    assert list(PINNED) == NAMES


@pytest.mark.parametrize("name", READABLE)
def test_no_value_of_a_foreign_program_is_unreadable(name: str) -> None:
    assert [finding.message for finding in findings(name) if finding.outcome in {"unknown", "error"}] == []
