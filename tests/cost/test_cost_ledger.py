"""GPU-hours of a flavor: what is used, idle, borrowed and lent adds up at every moment, and so over time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenancy.cost.ledger import HOUR, Hours, Ledger, Promise

QUEUES: tuple[str, ...] = ("a", "b", "c", "stranger")
PROMISES = st.fixed_dictionaries(
    {name: st.builds(Promise, st.integers(0, 16).map(float), st.booleans()) for name in QUEUES[:3]}
)
CHANGES = st.lists(st.tuples(st.integers(0, 7200), st.sampled_from(QUEUES), st.integers(-8, 8)), max_size=20).map(
    lambda found: sorted(found, key=lambda change: change[0])
)
END = 7200


def _by_the_second(
    promises: dict[str, Promise], unassigned: int, changes: list[tuple[int, str, int]]
) -> dict[str, list[float]]:
    """Used, borrowed and lent of each queue, by what the ledger says that they are at each second."""
    sums = {name: [0.0, 0.0, 0.0] for name in QUEUES}
    levels = dict.fromkeys(QUEUES, 0)
    moments = sorted({0, END, *(at for at, _, _ in changes)})
    for at, end in pairwise(moments):
        for moment, name, by in changes:
            levels[name] += by if moment == at else 0
        known = {name: promises.get(name, Promise(0)) for name in QUEUES}
        over = {name: max(0, levels[name] - known[name].guaranteed) for name in QUEUES}
        idle = {name: max(0, known[name].guaranteed - levels[name]) if known[name].lends else 0 for name in QUEUES}
        of_guarantees = max(0, sum(over.values()) - unassigned)
        part = min(1, of_guarantees / sum(idle.values())) if sum(idle.values()) else 0
        for name in QUEUES:
            for place, amount in enumerate((levels[name], over[name], idle[name] * part)):
                sums[name][place] += amount * (end - at) / HOUR
    return sums


@given(PROMISES, st.integers(0, 16), CHANGES)
def test_a_ledger_is_what_a_count_of_every_moment_gives(
    promises: dict[str, Promise], unassigned: int, changes: list[tuple[int, str, int]]
) -> None:
    ledger = Ledger(promises, unassigned, 0.0)
    levels = dict.fromkeys(QUEUES, 0)
    kept: list[tuple[int, str, int]] = []
    for at, name, by in changes:
        if levels[name] + by >= 0:
            levels[name] += by
            kept.append((at, name, by))
            ledger.change(at, name, by)
    found = ledger.closed(END)
    for name, (used, borrowed, lent) in _by_the_second(promises, unassigned, kept).items():
        hours = found.get(name, Hours())
        assert hours.used == pytest.approx(used, abs=1e-6)
        assert hours.borrowed == pytest.approx(borrowed, abs=1e-6)
        assert hours.lent == pytest.approx(lent, abs=1e-6)
        promised = promises.get(name, Promise(0)).guaranteed * END / HOUR
        assert hours.guaranteed == pytest.approx(promised)
        assert hours.guaranteed == pytest.approx(hours.used - hours.borrowed + hours.idle, abs=1e-6)
        assert (hours.lent or 0) <= hours.idle + 1e-6
    total = sum(found.values(), Hours())
    assert (total.lent or 0) <= total.borrowed + 1e-6


def test_unassigned_quota_is_borrowed_before_guarantees() -> None:
    promises = {"a": Promise(0), "b": Promise(6), "c": Promise(3), "d": Promise(9, lends=False)}
    ledger = Ledger(promises, 4, 0.0)
    ledger.change(0, "a", 10)
    found = ledger.closed(HOUR)
    assert (found["a"].borrowed, found["b"].lent, found["c"].lent, found["d"].lent) == (10, 4, 2, 0)


def test_lent_is_unknown_if_a_part_of_it_is() -> None:
    assert (Hours(lent=None) + Hours(lent=1)).lent is None
