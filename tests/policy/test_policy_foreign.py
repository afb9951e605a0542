"""What packs say of programs that are not ours: manifests in the shape of well-known charts and examples."""

from pathlib import Path

import pytest
import yaml
from policy_builders import Sample, manifest

from document import PACKS
from rule_engine.evaluator import Evaluator, Finding
from rule_engine.resources import read
from rule_engine.secrets import Secrets
from rule_engine.stacks import Stack

FOLDER = Path(__file__).parent / "foreign"
VERDICTS = FOLDER / "verdicts.yaml"
"""What each pack says of each of them by its defaults; reviewed by a person, each line."""
PINNED: dict[str, list[str]] = yaml.safe_load(VERDICTS.read_text(encoding="utf-8"))
NAMES = sorted(file.stem for file in FOLDER.glob("*.yaml") if file != VERDICTS)


def given(name: str) -> list[Sample]:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return [manifest(document) for document in text.split("\n---\n")]


def findings(name: str) -> list[Finding]:
    secrets = Secrets()
    resources = [read(resource.request(), secrets) for resource in given(name)]
    found: list[Finding] = []
    for pack in PACKS.values():
        evaluator = Evaluator(pack)
        found += [finding for resource in resources for finding in evaluator.evaluate(resource)]
        found += evaluator.evaluate_stack(Stack(resources))
    return found


def verdict(name: str) -> list[str]:
    return sorted(f"{finding.level.value} {finding.rule.name}: {finding.message}" for finding in findings(name))


@pytest.mark.parametrize("name", NAMES)
def test_findings_about_a_foreign_program_are_the_reviewed_ones(name: str) -> None:
    assert verdict(name) == PINNED[name]


def test_every_program_with_reviewed_findings_exists() -> None:
    assert list(PINNED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_no_value_of_a_foreign_program_is_unreadable(name: str) -> None:
    assert [finding.message for finding in findings(name) if finding.outcome in {"unknown", "error"}] == []
