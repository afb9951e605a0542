"""Stacks that are refused with their errors, and those that are accepted: `refused.yaml`."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import PROVIDED, Data, errors, patched

TABLE = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))


def base(name: str) -> Data:
    sections = TABLE[name]["stack"]
    return {**sections, "cluster": {**PROVIDED, **sections["cluster"]}}


def cases(kind: str) -> list[Any]:
    return [pytest.param(name, case, id=f"{name}: {case}") for name in TABLE for case in TABLE[name].get(kind, ())]


@pytest.mark.parametrize("name", TABLE)
def test_the_stack_that_cases_change_is_valid(name: str) -> None:
    assert errors(base(name)) == []


@pytest.mark.parametrize(("name", "case"), cases("refused"))
def test_a_stack_is_refused_with_place_rule_and_fix(name: str, case: str) -> None:
    refused = TABLE[name]["refused"][case]
    problems = errors(patched(base(name), refused["patch"]))
    if "error" in refused:
        assert problems == [refused["error"]]
    elif "only" in refused:
        assert [problem[: len(refused["only"])] for problem in problems] == [refused["only"]]
    elif "errors" in refused:
        assert problems == refused["errors"]
    else:
        assert any(problem.startswith(refused["begins"]) for problem in problems), problems


@pytest.mark.parametrize(("name", "case"), cases("accepted"))
def test_a_stack_is_accepted(name: str, case: str) -> None:
    assert errors(patched(base(name), TABLE[name]["accepted"][case])) == []
