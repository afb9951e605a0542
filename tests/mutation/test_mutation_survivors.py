"""The lists of survivors: `make mutants` tries the mutants themselves."""

from collections.abc import Callable, Collection

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
