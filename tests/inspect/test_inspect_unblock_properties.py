"""What lets a workload in is true of every tenancy at rest: the ends are played again, without what found them."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, event, example, given, settings
from live_builders import GPU
from live_worlds import FLAVORS, World, queues_of, worlds

from gpu_tenancy import kueue
from gpu_tenancy.cluster.snapshot import NotSimulatedError
from gpu_tenancy.explain.unblock import Unblock, find_unblock
from gpu_tenancy.kueue import (
    FAIR,
    Admitted,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Fungibility,
    Fungible,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceGroup,
    Simulation,
    Strategy,
    Tenancy,
)


def entries(world: World) -> dict[str, Unblock]:
    """What is said of each that waits."""
    queues = queues_of(world)
    waiting = [each for each in queues.workloads if each.stage == "waiting"]
    found: dict[str, Unblock] = {}
    for each in waiting:
        with suppress(NotSimulatedError):
            found[each.label] = find_unblock(queues, each)
    return found


def unrest() -> World:
    """Where the first of two ends begins a livelock, which the second would end."""
    stop = Fungibility(Fungible.STOP, Fungible.STOP)
    rows = (
        ("a", 2, Strategy.STRICT, Preemption(Policy.LOWER_OR_NEWER, Policy.NEVER)),
        ("b", 4, Strategy.BEST_EFFORT, Preemption(Policy.LOWER, Policy.ANY)),
        ("c", 3, Strategy.STRICT, Preemption(Policy.NEVER, Policy.NEVER)),
    )
    queues = tuple(
        ClusterQueue(
            name, (ResourceGroup((FlavorQuotas("a100", {GPU: Quota(nominal)}),)),), "org", strategy, preempts, stop
        )
        for name, nominal, strategy, preempts in rows
    )
    asked = (("a", 1, 1), ("a", 3, 1), ("b", 1, 0), ("b", 2, 0), ("b", 2, 1), ("b", 4, 1), ("c", 1, 0), ("c", 1, 0))
    workloads = tuple(
        kueue.Workload(f"{queue}/w{at}", queue, (PodSet({GPU: gpus}),), priority)
        for at, (queue, gpus, priority) in enumerate(asked)
    )
    runs = ("a/w0", "a/w1", "b/w2", "b/w4", "c/w6", "c/w7")
    running = {name: Admitted(name, name[0], ({GPU: "a100"},)) for name in runs}
    return World(Tenancy(queues, (Cohort("org"),), FAIR), workloads, running)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@example(unrest())
@given(worlds())
def test_the_named_workloads_are_sufficient(world: World) -> None:
    at_rest = world.again()
    for name, found in entries(world).items():
        assert found.admitted == (name in at_rest)
        for each in found.ends:
            event("one end")
            assert name in world.again(each)
        if found.together:
            event("several ends")
            assert name in world.again(*found.together)
        if found.ahead:
            event("what is ahead")
            assert name in world.again(*found.ahead)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(worlds())
def test_no_other_workloads_are_sufficient(world: World) -> None:
    at_rest = world.again()
    for name, found in entries(world).items():
        if found.admitted or found.ends:
            continue
        assert found.tested == found.running == len(at_rest)
        assert not [each for each in at_rest if name in world.again(each)]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(worlds())
def test_what_a_member_of_one_team_is_told_is_true_where_no_other_team_waits(world: World) -> None:
    mine = [each for each in world.workloads if each.queue == "a" or each.name in world.running]
    alone = replace(world, workloads=tuple(mine))
    at_rest = alone.again()
    assume(at_rest == set(world.running))  # Else those of others that wait have decided who runs.
    queues = queues_of(alone, of="a")
    for each in queues.workloads:
        if each.stage != "waiting":
            continue
        found = find_unblock(queues, each)
        assert all(name.startswith("a/") for name in (*found.ends, *found.together, *found.ahead))
        for ended in found.ends:
            event("one end")
            assert each.label in alone.again(ended)


def gets_in(world: World, queue: str, name: str, gpus: int, *, alone: bool) -> bool:
    """Whether so much of a flavor is given to a queue while nobody is preempted and nobody else waits."""
    meek = tuple(replace(each, preemption=Preemption()) for each in world.tenancy.queues)
    simulation = Simulation(Tenancy(meek, world.tenancy.cohorts))
    for each in world.workloads:
        if each.name in world.running and not alone:
            simulation.place(each, world.running[each.name].flavors, -1)
    simulation.submit(kueue.Workload("probe", queue, (PodSet({GPU: gpus}, flavors=frozenset({name})),)))
    simulation.rest()
    return "probe" in {each.name for each in simulation.settled().admitted}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(worlds())
def test_quota_arithmetic_agrees_with_the_simulation(world: World) -> None:
    quotas = queues_of(world).quotas
    for queue in world.tenancy.queues:
        for name in FLAVORS[: len(queue.groups[0].flavors)]:
            line = name, GPU
            now, ever = quotas.available(queue.name, line), quotas.potential_available(queue.name, line)
            for most, alone in ((now, False), (ever, True)):
                assert most <= 0 or gets_in(world, queue.name, name, most, alone=alone)
                assert not gets_in(world, queue.name, name, max(0, most) + 1, alone=alone)
