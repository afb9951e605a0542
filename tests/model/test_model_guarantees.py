"""GPUs moved between teams: which numbers change, and that nothing else of the file does."""

import difflib
import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from typer.testing import CliRunner

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, map_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.model.guarantees import moved, with_changes, with_numbers
from gpu_tenancy.model.project import read_stack, stack_names
from gpu_tenancy.model.source import Source

TEAMS: Any = {
    "a": {"gpus": {"h100": {"guaranteed": 16, "limit": 16}}},
    "b": {"gpus": {"h100": {"guaranteed": 8, "limit": 12}}},
    "c": {"quota": {"h100": {"limit": 8}}},
    "d": {"gpus": {"a100": {"guaranteed": 8}}},
}


def change(count: int, giver: str, taker: str) -> dict[str, tuple[int, int]]:
    found = moved(Source({"teams": TEAMS}), count, "h100", giver, taker)
    return {f"{path[1]}.{path[-1]}": (before, after) for path, (before, after) in found.items()}


def test_limits_follow_where_they_must() -> None:
    assert change(4, "a", "b") == {"a.guaranteed": (16, 12), "a.limit": (16, 12), "b.guaranteed": (8, 12)}
    assert change(8, "a", "b")["b.limit"] == (12, 16)
    assert change(8, "b", "c") == {"b.guaranteed": (8, 0), "c.guaranteed": (0, 8)}


@pytest.mark.parametrize(
    ("count", "giver", "taker", "message"),
    [
        (17, "a", "b", "teams.a.gpus.h100.guaranteed: 16 is less than the 17 h100 GPUs to move; move at most 16"),
        (1, "c", "a", "teams.c.quota.h100.guaranteed: 0 is less than the 1 h100 GPU to move; move from a team that"),
        (1, "a", "d", "teams.d.gpus: no h100; .*or add h100: {guaranteed: 0, limit: 0}"),
        (1, "a", "e", "unknown team 'e'"),
        (1, "a", "a", "the same team"),
    ],
)
def test_what_is_not_there_is_refused(count: int, giver: str, taker: str, message: str) -> None:
    with pytest.raises(ConsoleError, match=message):
        change(count, giver, taker)


PAIRS: list[tuple[str, str, str, str]] = [
    (stack, flavor, giver, taker)
    for stack in stack_names(ROOT)
    for teams in [map_at(read_stack(stack, ROOT).sections, "teams")]
    for giver, taker in permutations(teams, 2)
    for flavor in map_at(teams, giver, "gpus")
    if at(teams, giver, "gpus", flavor, "guaranteed") and at(teams, taker, "gpus", flavor, "guaranteed") is not None
]


def project(folder: Path, stack: str) -> Path:
    """A project with one stack, and the files beside it."""
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    for file in (ROOT / "stacks").glob("*.yaml"):
        if file.stem == f"Pulumi.{stack}" or not file.name.startswith("Pulumi."):
            (folder / "stacks" / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize(("stack", "flavor", "giver", "taker"), PAIRS)
def test_only_numbers_of_a_stack_file_change(stack: str, flavor: str, giver: str, taker: str, tmp_path: Path) -> None:
    folder = project(tmp_path, stack)
    before = {file: file.read_text() for file in (folder / "stacks").iterdir()}
    source = read_stack(stack, folder)
    words = ("stack", "move", "1", flavor, "--from", giver, "--to", taker, "--stack", stack, "--project", str(folder))
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    if done.exit_code:  # The stack would not be valid, so that the file is as it was.
        assert {file: file.read_text() for file in before} == before
        assert "nothing was changed" in done.output
        return
    wanted = with_changes(source, moved(source, 1, flavor, giver, taker))
    assert read_stack(stack, folder).sections == wanted.sections
    for file, text in before.items():
        after = file.read_text()
        assert re.sub(r"\d+", "N", after) == re.sub(r"\d+", "N", text)
        assert sum(line.startswith("+ ") for line in difflib.ndiff(text.splitlines(), after.splitlines())) <= 2


def test_some_moves_are_made() -> None:
    assert len(PAIRS) > 4


def test_a_teams_file_beside_the_stack_is_changed(tmp_path: Path) -> None:
    folder = project(tmp_path, "example-three-teams")
    stack = folder / "stacks" / "Pulumi.example-three-teams.yaml"
    head, _, teams = stack.read_text().partition("  gpu-tenancy:teams:\n")
    stack.write_text(f"{head}  gpu-tenancy:teams: teams.yaml\n")
    (folder / "stacks" / "teams.yaml").write_bytes(f"# ours\r\n{teams}".encode())
    words = ("stack", "move", "8", "h100", "--from", "team-c", "--to", "team-a", "--project", str(folder))
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, stack.read_text()) == (0, f"{head}  gpu-tenancy:teams: teams.yaml\n")
    text = (folder / "stacks" / "teams.yaml").read_bytes().decode()
    assert text == f"# ours\r\n{teams}".replace("{guaranteed: 32", "{guaranteed: 24").replace(
        "team-a: {owner: a, costCenter: a-001, gpus: {h100: {guaranteed: 16",
        "team-a: {owner: a, costCenter: a-001, gpus: {h100: {guaranteed: 24",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x {b: {c: 1}}\nd: *x\n", "a.b.c is shared by an anchor and its aliases"),
        ("x: &x {b: {c: 1}}\na: {<<: *x}\n", "a.b.c is not written there"),
        ("a: {b: {}}\n", "a.b.c is not written there"),
        ("a: 1\n", "a.b.c is not written there"),
        ("", "is empty"),
    ],
)
def test_a_number_that_is_not_of_its_own_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConsoleError, match=problem):
        with_numbers(text, {("a", "b", "c"): 2}, "teams.yaml")
