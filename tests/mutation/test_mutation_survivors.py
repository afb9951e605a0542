"""The lists of survivors, and a sample of the mutants themselves: `make mutants` tries all of them."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from mutation import cel_mutants, packs
from mutation.verdict import known


@pytest.mark.parametrize(
    ("tool", "names"),
    [
        ("guards", lambda: {one.name for one in cel_mutants.all_mutants()}),
        ("packs", packs.all_mutants),
    ],
    ids=["guards", "packs"],
)
def test_each_survivor_that_is_listed_is_a_mutant(tool: str, names: Callable[[], Collection[str]]) -> None:
    assert known(tool).stale(names()) == []


def test_no_mutant_of_a_pack_is_left_without_a_reason() -> None:
    assert [*known("packs").open] == []


@pytest.mark.slow
@pytest.mark.process
def test_a_sample_of_the_mutants_of_the_packs_is_noticed() -> None:
    """One of a hundred, other ones once a pack is changed: ten seconds of processor time."""
    root = Path(__file__).parents[2]
    options = ["-p", "mutation.packs", "-p", "no:cacheprovider", "-p", "no:xdist", "--every", "100", "-m", packs.MARKS]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/policy"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root}/tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (figures,) = (line.split() for line in run.stdout.splitlines() if line.startswith("all "))
    assert int(figures[1]) == int(figures[2]) > 0
