"""Budgets: lines of each room, files of a commit to the schema, and characters of a test's name."""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Final

import pytest
from repository import ROOT
from starts import GUARD

TABLE: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["gpu-tenancy"]
BUDGETS: Final[Mapping[str, int]] = TABLE["lines"]
"""Lines of Python of each room; the longest name that fits decides, and links are not followed."""


@cache
def measured() -> Mapping[str, int]:
    lines = dict.fromkeys(BUDGETS, 0)
    for file in ROOT.rglob("*.py"):
        path = file.relative_to(ROOT)
        if path.parts[0].startswith(".") or path.parts[0] == "out" or file.resolve() != file:
            continue
        room = max((name for name in BUDGETS if path.is_relative_to(name)), key=len, default="")
        assert room, f"{path}: no room; add one under [tool.gpu-tenancy.lines] in pyproject.toml"
        lines[room] += len(file.read_text(encoding="utf-8").splitlines())
    return lines


@pytest.mark.parametrize("room", BUDGETS)
def test_room_keeps_its_budget_of_lines(room: str) -> None:
    lines = measured()[room]
    assert lines <= BUDGETS[room], (
        f"{room}: {lines} lines, budget {BUDGETS[room]}; remove some, or raise it in pyproject.toml and say why"
    )
    assert lines >= BUDGETS[room] * 0.85, f"{room}: {lines} lines, budget {BUDGETS[room]}; lower it in pyproject.toml"


SCHEMA: Final = "gpu_tenancy/model/spec"
FILES: Final = 8
"""Files of source that a new key may touch; a commit with more has the reason in a line that begins with this."""
REASON: Final = "Files:"


@pytest.mark.process
def test_commits_to_the_schema_touch_few_files() -> None:
    """The commits after the one that pyproject.toml names; a shallow clone has none of them."""
    since = TABLE["schema-commits-since"]

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=GUARD)
        return done.stdout

    broad: list[str] = []
    for commit in git("rev-list", f"{since}..HEAD", "--", SCHEMA).split():
        files = git("show", "--name-only", "--format=", commit).splitlines()
        source = [file for file in files if file.endswith((".py", ".yaml", ".j2")) and not file.startswith("tests")]
        if len(source) > FILES and REASON not in git("show", "--no-patch", "--format=%B", commit):
            broad.append(
                f"{git('show', '--no-patch', '--format=%h %s', commit).strip()}: {len(source)} files of source"
            )
    assert broad == [], f"say why in the commit's message, in a line that begins with {REASON!r}"


LONGEST: Final = 60  # characters of a test's name: a phrase that names the behaviour
NAME: Final = re.compile(r"^ *def (test_\w+)", re.MULTILINE)


def test_names_of_tests_are_short_phrases() -> None:
    named = (
        (file, name)
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in NAME.findall(file.read_text(encoding="utf-8"))
    )
    long = [f"{file.relative_to(ROOT)}: {name}" for file, name in named if len(name) > LONGEST]
    assert long == [], f"name the behaviour in at most {LONGEST} characters"
