"""A simulation that begins with a cluster at work: what runs is placed, and the state is played again and again."""

import pytest
from admission_builders import GPU, evicted, group, queue, running, waiting, work

from gpu_tenancy.model.admission import ClusterQueue, Policy, Preemption, Quota, Simulation, Tenancy

RECLAIMS = Preemption(Policy.LOWER, Policy.ANY)
A100 = ({GPU: "a100"},)


def tenancy(mine: int = 4, others: int = 4) -> Tenancy:
    """Two queues that take their guarantee back from each other."""
    return Tenancy((queue("a", mine, preemption=RECLAIMS), queue("b", others, preemption=RECLAIMS)))


def test_what_is_placed_runs_and_uses_its_flavor() -> None:
    found = Simulation(Tenancy((ClusterQueue("a", group(f1=Quota(4), f2=Quota(4))),)))
    found.place(work("old", "a", 4), ({GPU: "f2"},), -1)
    found.submit(work("new", "a", 4))
    found.rest()
    assert {each.name: dict(each.flavors[0]) for each in found.settled().admitted} == {
        "old": {GPU: "f2"},
        "new": {GPU: "f1"},
    }


def test_what_is_placed_may_use_more_than_there_is() -> None:
    found = Simulation(tenancy(others=0))
    found.place(work("old", "a", 6), A100, -1)
    found.submit(work("new", "a", 1))
    found.rest()
    assert waiting(found.settled())["new"].startswith(
        "insufficient unused quota for nvidia.com/gpu in flavor a100, 1 more needed"
    )
    found.finish("old")
    found.rest()
    assert running(found.settled()) == ["new"]


def test_a_flavor_that_the_queue_does_not_have_any_more_uses_nothing() -> None:
    found = Simulation(tenancy())
    found.place(work("old", "a", 8), ({GPU: "gone"},), -1)
    found.submit(work("new", "a", 8))
    found.rest()
    assert running(found.settled()) == ["old", "new"]


@pytest.mark.parametrize(("first", "second", "victim"), [(-9, -1, "y"), (-1, -9, "x")])
def test_the_newest_reservation_is_preempted_first(first: int, second: int, victim: str) -> None:
    found = Simulation(tenancy())
    found.place(work("x", "b", 4), A100, first)
    found.place(work("y", "b", 4), A100, second)
    found.submit(work("mine", "a", 4))
    found.rest()
    assert evicted(found.settled()) == [(victim, "mine", "InCohortReclamation")]


def test_the_order_of_creation_is_that_of_placing_and_submitting() -> None:
    rules = Preemption(Policy.LOWER_OR_NEWER)
    for order, expected in (("old new", ["old"]), ("new old", ["new"])):
        found = Simulation(Tenancy((queue("a", 4, preemption=rules),)))
        for name in order.split():
            if name == "new":
                found.place(work("new", "a", 4), A100, -1)
            else:
                found.submit(work("old", "a", 4))
        found.rest()
        assert running(found.settled()) == expected


def test_what_leaves_gives_its_quota_back_by_itself_and_waits() -> None:
    found = Simulation(tenancy(others=0))
    found.place(work("old", "a", 4), A100, -1, leaving=True)
    found.submit(work("new", "a", 4, priority=1))
    found.rest()
    state = found.settled()
    assert (running(state), list(waiting(state))) == (["new"], ["old"])
    assert evicted(state) == []


def test_what_is_fixed_is_preempted_by_nobody_and_may_end() -> None:
    found = Simulation(tenancy())
    found.place(work("lent", "b", 8), A100, -1, fixed=True)
    found.submit(work("mine", "a", 4))
    found.rest()
    assert running(found.settled()) == ["lent"]
    found.finish("lent")
    found.rest()
    assert running(found.settled()) == ["mine"]


def test_forks_go_on_by_themselves() -> None:
    found = Simulation(tenancy(others=0))
    found.place(work("one", "a", 2), A100, -2)
    found.place(work("two", "a", 2), A100, -1)
    found.submit(work("next", "a", 2))
    found.rest()
    fork = found.fork()
    for ended, left in (("one", ["two", "next"]), ("two", ["one", "next"])):
        again = fork()
        again.finish(ended)
        again.rest()
        assert running(again.settled()) == left
    assert running(found.settled()) == ["one", "two"]


def test_a_name_or_a_queue_that_does_not_do_is_refused() -> None:
    found = Simulation(tenancy())
    found.place(work("one", "a", 2), A100, -1)
    with pytest.raises(ValueError, match=r"^duplicate workload 'one'$"):
        found.place(work("one", "a", 2), A100, -1)
    with pytest.raises(ValueError, match=r"^workload 'two': ClusterQueue 'c' does not exist$"):
        found.place(work("two", "c", 2), A100, -1)


def test_nothing_is_placed_after_the_beginning() -> None:
    found = Simulation(tenancy())
    found.rest()
    with pytest.raises(ValueError, match=r"^workload 'late' cannot be placed after the simulation has started$"):
        found.place(work("late", "a", 2), A100, -1)
