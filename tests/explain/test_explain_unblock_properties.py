"""Workloads that are named as sufficient admit the pending one, in random tenancies."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, example, given, settings
from hypothesis import strategies as st
from live_builders import ACTIVE, GPU, Data, condition, flavor, job, local_queue, meta, only_gpus, workload

from gpu_tenancy import kueue
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, Missing, State
from gpu_tenancy.cluster.snapshot import NotSimulatedError
from gpu_tenancy.explain.unblock import Unblock, find_unblock

FLAVORS = ("a100", "b100")
QUEUES = ("a", "b", "c")


@dataclass(frozen=True)
class World:
    """A settled tenancy: the order of the workloads, and the running ones."""

    tenancy: kueue.Tenancy
    workloads: tuple[kueue.Workload, ...]
    running: dict[str, kueue.Admitted]

    def again(self, *ended: str) -> set[str]:
        """The running workloads if, in the same state, these have ended one after another.

        `others in b` stands for all that run in queue b and end at once: a member may not read their names.
        """
        simulation = kueue.Simulation(self.tenancy)
        for at, each in enumerate(self.workloads):
            if each.name in self.running:
                simulation.place(each, self.running[each.name].flavors, at - 1000)
            else:
                simulation.submit(each)
        simulation.rest()
        for name in ended:
            queue = name.removeprefix("others in ")
            for each in [name] if "/" in name else [one for one in self.running if one.startswith(f"{queue}/")]:
                simulation.finish(each)
            if simulation.rest():
                return set()
        return {each.name for each in simulation.settled().admitted}


@st.composite
def _groups(draw: st.DrawFn, flavors: int) -> tuple[kueue.ResourceGroup, ...]:
    found: list[kueue.FlavorQuotas] = []
    for name in FLAVORS[:flavors]:
        nominal = draw(st.integers(0, 6))
        quota = kueue.Quota(nominal, draw(st.none() | st.integers(0, 6)), draw(st.none() | st.integers(0, nominal)))
        found.append(kueue.FlavorQuotas(name, {GPU: quota}))
    return (kueue.ResourceGroup(tuple(found)),)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to three queues of one cohort, with up to nine workloads of which some are pending."""
    flavors = draw(st.integers(1, 2))
    names = QUEUES[: draw(st.integers(1, 3))]
    queues = tuple(
        kueue.ClusterQueue(
            name,
            draw(_groups(flavors)),
            "org",
            draw(st.sampled_from(kueue.Strategy)),
            kueue.Preemption(
                draw(st.sampled_from([kueue.Policy.NEVER, kueue.Policy.LOWER, kueue.Policy.LOWER_OR_NEWER])),
                draw(st.sampled_from([kueue.Policy.NEVER, kueue.Policy.LOWER, kueue.Policy.ANY])),
            ),
            kueue.Fungibility(draw(st.sampled_from(kueue.Fungible)), draw(st.sampled_from(kueue.Fungible))),
        )
        for name in names
    )
    tenancy = kueue.Tenancy(queues, (kueue.Cohort("org"),), draw(st.sampled_from([None, kueue.FAIR])))
    shapes = st.tuples(st.sampled_from(names), st.integers(1, 5), st.integers(0, 2))
    asked = draw(st.lists(shapes, min_size=2, max_size=9))
    workloads = tuple(
        kueue.Workload(f"{queue}/w{at}", queue, (kueue.PodSet({GPU: gpus}),), priority)
        for at, (queue, gpus, priority) in enumerate(asked)
    )
    simulation = kueue.Simulation(tenancy)
    for one in workloads:
        simulation.submit(one)
    rest = simulation.settled(simulation.rest())
    assume(not rest.livelock and rest.pending)
    return World(tenancy, workloads, {each.name: each for each in rest.admitted})


def _quota(each: kueue.Quota) -> Data:
    limits = {"borrowingLimit": each.borrowing_limit, "lendingLimit": each.lending_limit}
    return {
        "name": GPU,
        "nominalQuota": str(each.nominal),
        **{key: str(limit) for key, limit in limits.items() if limit is not None},
    }


def _queue(world: World, queue: kueue.ClusterQueue) -> Data:
    used: dict[str, int] = {}
    for each in world.workloads:
        if each.name in world.running and each.queue == queue.name:
            name = world.running[each.name].flavors[0][GPU]
            used[name] = used.get(name, 0) + each.pod_sets[0].requests[GPU]
    flavors = queue.groups[0].flavors
    status: Data = {
        "conditions": [ACTIVE],
        "flavorsReservation": [
            {"name": name, "resources": [{"name": GPU, "total": str(much)}]} for name, much in used.items()
        ],
    }
    if world.tenancy.fair_sharing:
        status["fairSharing"] = {"weightedShare": 0}
    return {
        "metadata": meta(queue.name),
        "spec": {
            "cohortName": queue.cohort,
            "namespaceSelector": {},
            "queueingStrategy": str(queue.strategy),
            "preemption": {
                "withinClusterQueue": str(queue.preemption.within),
                "reclaimWithinCohort": str(queue.preemption.reclaim),
            },
            "flavorFungibility": {
                "whenCanBorrow": str(queue.fungibility.when_can_borrow),
                "whenCanPreempt": str(queue.fungibility.when_can_preempt),
            },
            "resourceGroups": [
                {
                    "coveredResources": [GPU],
                    "flavors": [{"name": each.flavor, "resources": [_quota(each.resources[GPU])]} for each in flavors],
                }
            ],
        },
        "status": status,
    }


def _workload(world: World, at: int, each: kueue.Workload) -> Data:
    about = only_gpus(job(each.name, each.queue, gpus=each.pod_sets[0].requests[GPU]))
    about["spec"]["template"]["spec"]["nodeSelector"] = {}
    runs = world.running.get(each.name)
    found = workload(about, f"2026-01-01T00:00:{at:02}Z", each.priority, admitted=runs is not None)
    found["metadata"]["name"] = each.name.partition("/")[2]
    found["metadata"]["ownerReferences"][0]["name"] = found["metadata"]["name"]
    if runs is not None:
        found["status"]["admission"]["podSetAssignments"][0]["flavors"] = dict(runs.flavors[0])
        reserved = condition("QuotaReserved", "True", "QuotaReserved", "")
        found["status"]["conditions"][0] = {**reserved, "lastTransitionTime": f"2026-01-02T00:00:{at:02}Z"}
    return found


def queues_of(world: World, of: str = "") -> Queues:
    """The read state of the world's cluster: by an administrator, or by a member of the team `of`."""
    objects: Any = {
        "ClusterQueue": [_queue(world, each) for each in world.tenancy.queues],
        "LocalQueue": [local_queue(each.name) for each in world.tenancy.queues if of in {"", each.name}],
        "ResourceFlavor": [flavor(name) for name in FLAVORS],
        "Workload": [_workload(world, at, each) for at, each in enumerate(world.workloads) if of in {"", each.queue}],
    }
    hidden: dict[Kind, Missing] = {
        kind: Missing(kind, "", "", "an admin", partly=True) for kind in (("Workload", "LocalQueue") if of else ())
    }
    return Queues(State({kind: tuple(each) for kind, each in objects.items()}, hidden))


# What lets a workload in is true of every tenancy at rest: the ends are played again, without what found them.


def entries(world: World) -> dict[str, Unblock]:
    """The result for each pending workload."""
    queues = queues_of(world)
    waiting = [each for each in queues.workloads if each.stage == "waiting"]
    found: dict[str, Unblock] = {}
    for each in waiting:
        with suppress(NotSimulatedError):
            found[each.label] = find_unblock(queues, each)
    return found


def unrest() -> World:
    """The first of two ends begins a livelock, which the second would end."""
    stop = kueue.Fungibility(kueue.Fungible.STOP, kueue.Fungible.STOP)
    rows = (
        ("a", 2, kueue.Strategy.STRICT, kueue.Preemption(kueue.Policy.LOWER_OR_NEWER, kueue.Policy.NEVER)),
        ("b", 4, kueue.Strategy.BEST_EFFORT, kueue.Preemption(kueue.Policy.LOWER, kueue.Policy.ANY)),
        ("c", 3, kueue.Strategy.STRICT, kueue.Preemption(kueue.Policy.NEVER, kueue.Policy.NEVER)),
    )
    queues = tuple(
        kueue.ClusterQueue(
            name,
            (kueue.ResourceGroup((kueue.FlavorQuotas("a100", {GPU: kueue.Quota(nominal)}),)),),
            "org",
            strategy,
            preempts,
            stop,
        )
        for name, nominal, strategy, preempts in rows
    )
    asked = (("a", 1, 1), ("a", 3, 1), ("b", 1, 0), ("b", 2, 0), ("b", 2, 1), ("b", 4, 1), ("c", 1, 0), ("c", 1, 0))
    workloads = tuple(
        kueue.Workload(f"{queue}/w{at}", queue, (kueue.PodSet({GPU: gpus}),), priority)
        for at, (queue, gpus, priority) in enumerate(asked)
    )
    runs = ("a/w0", "a/w1", "b/w2", "b/w4", "c/w6", "c/w7")
    running = {name: kueue.Admitted(name, name[0], ({GPU: "a100"},)) for name in runs}
    return World(kueue.Tenancy(queues, (kueue.Cohort("org"),), kueue.FAIR), workloads, running)


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
def test_members_answers_hold_if_no_other_team_waits(world: World) -> None:
    mine = [each for each in world.workloads if each.queue == "a" or each.name in world.running]
    alone = replace(world, workloads=tuple(mine))
    at_rest = alone.again()
    assume(at_rest == set(world.running))  # Else those of others that wait have decided who runs.
    queues = queues_of(alone, of="a")
    for each in queues.workloads:
        if each.stage != "waiting":
            continue
        found = find_unblock(queues, each)
        assert all(name.startswith(("a/", "others in ")) for name in (*found.ends, *found.together))
        assert all(name.startswith("a/") for name in found.ahead)
        for ended in found.ends:
            event("one end" if "/" in ended else "all of another queue")
            assert each.label in alone.again(ended)


def gets_in(world: World, queue: str, name: str, gpus: int, *, alone: bool) -> bool:
    """Whether a queue gets this much of a flavor while nothing is preempted and no other workload is pending."""
    meek = tuple(replace(each, preemption=kueue.Preemption()) for each in world.tenancy.queues)
    simulation = kueue.Simulation(kueue.Tenancy(meek, world.tenancy.cohorts))
    for each in world.workloads:
        if each.name in world.running and not alone:
            simulation.place(each, world.running[each.name].flavors, -1)
    simulation.submit(kueue.Workload("probe", queue, (kueue.PodSet({GPU: gpus}, flavors=frozenset({name})),)))
    simulation.rest()
    return "probe" in {each.name for each in simulation.settled().admitted}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
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
