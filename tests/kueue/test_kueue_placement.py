"""Simulations that start with the state of a cluster, and the queues that can preempt a borrower."""

from random import Random
from typing import Any, Final

import pytest
from kueue_builders import GPU, admitted, evicted, group, pending, queue, work

from gpu_tenancy.kueue import (
    FAIR,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    Policy,
    Preemption,
    Preemptor,
    Quota,
    Quotas,
    Simulation,
    Tenancy,
    Workload,
    preemptors,
)

RECLAIMS = Preemption(Policy.LOWER, Policy.ANY)
A100 = ({GPU: "a100"},)


def two_queues(nominal_b: int = 4) -> Tenancy:
    """Two queues that reclaim their nominal quota from each other."""
    return Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", nominal_b, preemption=RECLAIMS)))


def started(tenancy: Tenancy, placed: Workload, new: Workload, flavor: str = "a100", **how: bool) -> Simulation:
    """A simulation at rest, which began with one workload admitted and another one pending."""
    simulation = Simulation(tenancy)
    simulation.place(placed, ({GPU: flavor},), -1, **how)
    simulation.submit(new)
    simulation.rest()
    return simulation


def test_a_placed_workload_is_admitted_and_uses_its_flavor() -> None:
    tenancy = Tenancy((ClusterQueue("a", group(f1=Quota(4), f2=Quota(4))),))
    simulation = started(tenancy, work("old", "a", 4), work("new", "a", 4), "f2")
    assert {workload.name: dict(workload.flavors[0]) for workload in simulation.settled().admitted} == {
        "old": {GPU: "f2"},
        "new": {GPU: "f1"},
    }


def test_a_placed_workload_may_use_more_than_the_quota() -> None:
    simulation = started(two_queues(nominal_b=0), work("old", "a", 6), work("new", "a", 1))
    assert pending(simulation.settled())["new"].startswith(
        "insufficient unused quota for nvidia.com/gpu in flavor a100, 1 more needed"
    )
    simulation.finish("old")
    simulation.rest()
    assert admitted(simulation.settled()) == ["new"]


def test_a_flavor_that_the_queue_no_longer_has_is_not_counted() -> None:
    simulation = started(two_queues(), work("old", "a", 8), work("new", "a", 8), "unknown")
    assert admitted(simulation.settled()) == ["old", "new"]


@pytest.mark.parametrize(("first", "second", "target"), [(-9, -1, "y"), (-1, -9, "x")])
def test_the_newest_reservation_is_preempted_first(first: int, second: int, target: str) -> None:
    simulation = Simulation(two_queues())
    simulation.place(work("x", "b", 4), A100, first)
    simulation.place(work("y", "b", 4), A100, second)
    simulation.submit(work("preemptor", "a", 4))
    simulation.rest()
    assert evicted(simulation.settled()) == [(target, "preemptor", "InCohortReclamation")]


def test_the_order_of_place_and_submit_is_the_order_of_creation() -> None:
    rules = Preemption(Policy.LOWER_OR_NEWER)
    for order, expected in (("old new", ["old"]), ("new old", ["new"])):
        simulation = Simulation(Tenancy((queue("a", 4, preemption=rules),)))
        for name in order.split():
            if name == "new":
                simulation.place(work("new", "a", 4), A100, -1)
            else:
                simulation.submit(work("old", "a", 4))
        simulation.rest()
        assert admitted(simulation.settled()) == expected


def test_a_leaving_workload_releases_its_quota_and_is_pending() -> None:
    new = work("new", "a", 4, priority=1)
    state = started(two_queues(nominal_b=0), work("old", "a", 4), new, leaving=True).settled()
    assert (admitted(state), list(pending(state))) == (["new"], ["old"])
    assert evicted(state) == []


def test_a_fixed_workload_is_not_preempted_but_may_finish() -> None:
    simulation = started(two_queues(), work("lent", "b", 8), work("preemptor", "a", 4), fixed=True)
    assert admitted(simulation.settled()) == ["lent"]
    simulation.finish("lent")
    simulation.rest()
    assert admitted(simulation.settled()) == ["preemptor"]


def test_forks_are_independent() -> None:
    simulation = Simulation(two_queues(nominal_b=0))
    simulation.place(work("one", "a", 2), A100, -2)
    simulation.place(work("two", "a", 2), A100, -1)
    simulation.submit(work("next", "a", 2))
    simulation.rest()
    fork = simulation.fork()
    for finished, expected in (("one", ["two", "next"]), ("two", ["one", "next"])):
        copy = fork()
        copy.finish(finished)
        copy.rest()
        assert admitted(copy.settled()) == expected
    assert admitted(simulation.settled()) == ["one", "two"]


def test_a_duplicate_name_and_an_unknown_queue_are_rejected() -> None:
    simulation = Simulation(two_queues())
    simulation.place(work("one", "a", 2), A100, -1)
    with pytest.raises(ValueError, match=r"^duplicate workload 'one'$"):
        simulation.place(work("one", "a", 2), A100, -1)
    with pytest.raises(ValueError, match=r"^workload 'two': ClusterQueue 'c' does not exist$"):
        simulation.place(work("two", "c", 2), A100, -1)


def test_placement_is_possible_only_at_the_start() -> None:
    simulation = Simulation(two_queues())
    simulation.rest()
    with pytest.raises(ValueError, match=r"^workload 'late' cannot be placed after the simulation has started$"):
        simulation.place(work("late", "a", 2), A100, -1)


# Queues that can preempt workloads of a borrower.

LINE: Final = ("a100", GPU)
ANY: Final = Preemption(reclaim=Policy.ANY)
LOWER: Final = Preemption(reclaim=Policy.LOWER)
ABOVE: Final = Preemption(reclaim=Policy.ANY, borrow=BorrowWithinCohort(5))


def tree(own: int, *takers: ClusterQueue, fair: bool = False, **cohort: int | None) -> Tenancy:
    """A borrower without quota of its own in the root, whose own quota is `own`; the cohort `side` beside it."""
    side = Cohort("side", "org", group(a100=Quota(cohort.get("nominal") or 0, cohort.get("limit"))))
    root = Cohort("org", None, group(a100=Quota(own)))
    return Tenancy((queue("borrower", 0, 4), *takers), (root, side), FAIR if fair else None)


CASES: Final[dict[str, tuple[Tenancy, list[Preemptor]]]] = {
    "a guarantee that is lent": (tree(2, queue("t", 2, preemption=ANY)), [Preemptor("t", lower=False)]),
    "the same from lower priorities": (tree(2, queue("t", 2, preemption=LOWER)), [Preemptor("t", lower=True)]),
    "one that is never reclaimed": (tree(2, queue("t", 2)), []),
    "one that is not lent": (tree(4, queue("t", 2, 0, 0, preemption=ANY)), []),
    "quota of the cohort of both": (tree(4, queue("t", 0, preemption=ANY)), []),
    "quota of the other's cohort": (
        tree(2, queue("t", 0, cohort="side", preemption=ANY), nominal=2),
        [Preemptor("t", lower=False)],
    ),
    "the same without borrowing": (tree(2, queue("t", 0, 0, cohort="side", preemption=ANY), nominal=2), []),
    "borrowing by priority": (tree(4, queue("t", 0, preemption=ABOVE)), [Preemptor("t", lower=True, at_most=5)]),
    "a smaller share": (tree(4, queue("t", 0, preemption=ANY), fair=True), [Preemptor("t", lower=False, fair=True)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_who_can_preempt_is_who_does(case: str) -> None:
    tenancy, expected = CASES[case]
    quotas = Quotas(tenancy, {"borrower": {LINE: 4}})
    assert list(preemptors(quotas, "borrower", LINE)) == expected
    done = {
        (priority, own)
        for priority in (0, 5, 6)
        for own in (priority, priority + 1)
        for amount in range(1, 5)
        if preempts(tenancy, {"borrower": 4}, priority, work("new", "t", amount, own))
    }
    named = {
        (priority, own)
        for one in expected
        for priority in (0, 5, 6)
        for own in (priority, priority + 1)
        if own > priority or not one.lower
        if one.at_most is None or priority <= one.at_most
    }
    assert done == named


def test_a_queue_that_borrows_nothing_loses_nothing_to_others() -> None:
    tenancy, _ = CASES["a guarantee that is lent"]
    assert not list(preemptors(Quotas(tenancy), "borrower", LINE))
    assert list(preemptors(Quotas(tenancy), "borrower", LINE, ever=True))
    assert not list(preemptors(Quotas(tenancy), "t", LINE)), "t has no preemptor: the borrower never reclaims"


def test_a_cohort_within_its_quota_loses_nothing_to_others() -> None:
    inside = (queue("borrower", 0, cohort="side"), queue("owner", 4, cohort="side", preemption=ANY))
    outside = queue("t", 2, preemption=ANY)
    tenancy = Tenancy((*inside, outside), (Cohort("org"), Cohort("side", "org")))
    for used, names in ((4, ["owner"]), (5, ["owner", "t"])):
        quotas = Quotas(tenancy, {"borrower": {LINE: used}})
        assert [one.queue for one in preemptors(quotas, "borrower", LINE)] == names


@pytest.mark.parametrize("seed", range(60))
def test_nobody_else_preempts_in_any_tree(seed: int) -> None:
    chance = Random(seed)  # noqa: S311 - the same trees every time, no secret
    tenancy = drawn(chance)
    quotas = Quotas(tenancy)
    named = {
        one.name: {each.queue: each for each in preemptors(quotas, one.name, LINE, ever=True)} for one in tenancy.queues
    }
    potential = {one.name: quotas.potential_available(one.name, LINE) for one in tenancy.queues}
    for _ in range(40):
        usage = {name: chance.randint(0, most) for name, most in potential.items()}
        if any(
            Quotas(tenancy, {name: {LINE: used} for name, used in usage.items()}).available(name, LINE) < 0
            for name in usage
        ):
            continue
        taker, priority, more = chance.choice(list(usage)), chance.choice((0, 6)), chance.choice((0, 1))
        if not potential[taker]:
            continue
        new = work("new", taker, chance.randint(1, potential[taker]), priority + more)
        for victim in preempts(tenancy, usage, priority, new) - {taker}:
            one = named[victim][taker]
            assert more or not one.lower
            assert one.at_most is None or priority <= one.at_most


def preempts(tenancy: Tenancy, usage: dict[str, int], priority: int, new: Any) -> set[str]:
    """The queues whose workloads a new workload preempts; each of them has one GPU."""
    simulation = Simulation(tenancy)
    second = -sum(usage.values())
    for name, used in usage.items():
        for number in range(used):
            simulation.place(work(f"{name}/{number}", name, 1, priority), ({GPU: "a100"},), second)
            second += 1
    simulation.submit(new)
    return set() if simulation.rest() else {one.name.partition("/")[0] for one in simulation.settled().evicted}


def drawn(chance: Random) -> Tenancy:
    """Three queues in a tree of two levels."""
    bounds = (None, None, 0, 1)
    sides = (
        Cohort(name, "org", group(a100=Quota(chance.choice((0, 0, 1)), chance.choice(bounds))))
        for name in ("left", "right")
    )
    queues: list[ClusterQueue] = []
    for name in "abc":
        nominal, reclaim = chance.randint(0, 2), chance.choice((Policy.NEVER, Policy.LOWER, Policy.ANY, Policy.ANY))
        borrow = chance.choice((None, BorrowWithinCohort(), BorrowWithinCohort(0)))
        policies = Preemption(Policy.LOWER, reclaim, None if reclaim is Policy.NEVER else borrow)
        cohort = chance.choice(("org", "left", "left", "right"))
        lends = chance.choice((None, 0, nominal))
        queues.append(queue(name, nominal, chance.choice(bounds), lends, cohort=cohort, preemption=policies))
    root = Cohort("org", None, group(a100=Quota(chance.randint(0, 2))))
    return Tenancy(tuple(queues), (root, *sides), chance.choice((None, FAIR)))
