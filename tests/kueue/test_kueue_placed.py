"""A simulation that starts with the state of a cluster: admitted workloads are placed, and the state is forked."""

import pytest
from kueue_builders import GPU, admitted, evicted, group, pending, queue, work

from gpu_tenancy.kueue import ClusterQueue, Policy, Preemption, Quota, Simulation, Tenancy

RECLAIMS = Preemption(Policy.LOWER, Policy.ANY)
A100 = ({GPU: "a100"},)


def tenancy(nominal_b: int = 4) -> Tenancy:
    """Two queues that reclaim their nominal quota from each other."""
    return Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", nominal_b, preemption=RECLAIMS)))


def test_a_placed_workload_is_admitted_and_uses_its_flavor() -> None:
    simulation = Simulation(Tenancy((ClusterQueue("a", group(f1=Quota(4), f2=Quota(4))),)))
    simulation.place(work("old", "a", 4), ({GPU: "f2"},), -1)
    simulation.submit(work("new", "a", 4))
    simulation.rest()
    assert {workload.name: dict(workload.flavors[0]) for workload in simulation.settled().admitted} == {
        "old": {GPU: "f2"},
        "new": {GPU: "f1"},
    }


def test_a_placed_workload_may_use_more_than_the_quota() -> None:
    simulation = Simulation(tenancy(nominal_b=0))
    simulation.place(work("old", "a", 6), A100, -1)
    simulation.submit(work("new", "a", 1))
    simulation.rest()
    assert pending(simulation.settled())["new"].startswith(
        "insufficient unused quota for nvidia.com/gpu in flavor a100, 1 more needed"
    )
    simulation.finish("old")
    simulation.rest()
    assert admitted(simulation.settled()) == ["new"]


def test_a_flavor_that_the_queue_no_longer_has_is_not_counted() -> None:
    simulation = Simulation(tenancy())
    simulation.place(work("old", "a", 8), ({GPU: "unknown"},), -1)
    simulation.submit(work("new", "a", 8))
    simulation.rest()
    assert admitted(simulation.settled()) == ["old", "new"]


@pytest.mark.parametrize(("first", "second", "target"), [(-9, -1, "y"), (-1, -9, "x")])
def test_the_newest_reservation_is_preempted_first(first: int, second: int, target: str) -> None:
    simulation = Simulation(tenancy())
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
    simulation = Simulation(tenancy(nominal_b=0))
    simulation.place(work("old", "a", 4), A100, -1, leaving=True)
    simulation.submit(work("new", "a", 4, priority=1))
    simulation.rest()
    state = simulation.settled()
    assert (admitted(state), list(pending(state))) == (["new"], ["old"])
    assert evicted(state) == []


def test_a_fixed_workload_is_not_preempted_but_may_finish() -> None:
    simulation = Simulation(tenancy())
    simulation.place(work("lent", "b", 8), A100, -1, fixed=True)
    simulation.submit(work("preemptor", "a", 4))
    simulation.rest()
    assert admitted(simulation.settled()) == ["lent"]
    simulation.finish("lent")
    simulation.rest()
    assert admitted(simulation.settled()) == ["preemptor"]


def test_forks_are_independent() -> None:
    simulation = Simulation(tenancy(nominal_b=0))
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
    simulation = Simulation(tenancy())
    simulation.place(work("one", "a", 2), A100, -1)
    with pytest.raises(ValueError, match=r"^duplicate workload 'one'$"):
        simulation.place(work("one", "a", 2), A100, -1)
    with pytest.raises(ValueError, match=r"^workload 'two': ClusterQueue 'c' does not exist$"):
        simulation.place(work("two", "c", 2), A100, -1)


def test_placement_is_possible_only_at_the_start() -> None:
    simulation = Simulation(tenancy())
    simulation.rest()
    with pytest.raises(ValueError, match=r"^workload 'late' cannot be placed after the simulation has started$"):
        simulation.place(work("late", "a", 2), A100, -1)
