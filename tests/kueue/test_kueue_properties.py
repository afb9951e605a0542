"""Properties of every tenancy and every sequence of steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kueue_builders import GPU, admitted, group, settle, work

from benchmarks.agree.drawing import draw
from gpu_tenancy.kueue import (
    FAIR,
    BorrowWithinCohort,
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
    Settled,
    Step,
    Strategy,
    Tenancy,
    Workload,
    cycle,
    run,
    runner,
)
from gpu_tenancy.kueue.candidate_cache import CandidateCache
from gpu_tenancy.kueue.scenarios import read_steps, read_tenancy

SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
QUEUES = ("a", "b", "c", "d")
GROUPS = ("left", "right")


def groups(*flavors: Quota) -> tuple[ResourceGroup, ...]:
    return group(**{f"f{number}": quota for number, quota in enumerate(flavors)})


@st.composite
def quotas(draw: st.DrawFn) -> Quota:
    nominal = draw(st.integers(0, 6))
    return Quota(nominal, draw(st.none() | st.integers(0, 6)), draw(st.none() | st.integers(0, nominal)))


@st.composite
def tenancies(draw: st.DrawFn, *, wide: bool = False) -> Tenancy:
    """Up to four queues in a tree of up to three levels; `wide`: up to twenty, of two resources and with all rules."""
    flavors, fair = range(draw(st.integers(1, 2))), draw(st.sampled_from([None, FAIR]))
    resources = (GPU, "cpu")[: draw(st.integers(1, 2)) if wide else 1]

    def own() -> tuple[ResourceGroup, ...]:
        lines = (FlavorQuotas(f"f{number}", {name: draw(quotas()) for name in resources}) for number in flavors)
        return (ResourceGroup(tuple(lines)),)

    def preemption() -> Preemption:
        within = draw(st.sampled_from([Policy.NEVER, Policy.LOWER, Policy.LOWER_OR_NEWER]))
        reclaim = draw(st.sampled_from([Policy.NEVER, Policy.LOWER, Policy.ANY]))
        borrows = wide and not fair and reclaim is not Policy.NEVER
        return Preemption(within, reclaim, draw(st.sampled_from([None, BorrowWithinCohort(5)])) if borrows else None)

    weight = st.sampled_from([1.0, 2.0])
    cohorts = [Cohort("org"), *(Cohort(name, "org", own(), draw(weight) if wide else None) for name in GROUPS)]
    if wide:
        cohorts.append(Cohort("team", GROUPS[0]))
    names = [f"q{number}" for number in range(draw(st.integers(3, 20)))] if wide else QUEUES[: draw(st.integers(1, 4))]
    fungible = st.sampled_from(Fungible)
    queues = tuple(
        ClusterQueue(
            name,
            own(),
            draw(st.sampled_from([cohort.name for cohort in cohorts])),
            draw(st.sampled_from(Strategy)),
            preemption(),
            Fungibility(draw(fungible), draw(fungible)) if wide else Fungibility(),
            draw(st.sampled_from([0.0, 1.0, 2.0])),
        )
        for name in names
    )
    return Tenancy(queues, tuple(cohorts), fair)


@st.composite
def worlds(draw: st.DrawFn, *, wide: bool = False) -> tuple[Tenancy, list[Step]]:
    """A tenancy, and steps that submit or finish workloads."""
    tenancy = draw(tenancies(wide=wide))
    names = [queue.name for queue in tenancy.queues]
    resources = sorted(tenancy.queues[0].groups[0].covered)
    steps: list[Step] = []
    unfinished: list[str] = []
    for number in range(draw(st.integers(20, 60) if wide else st.integers(1, 12))):
        if unfinished and draw(st.integers(0, 4)) == 0:
            finished = unfinished.pop(draw(st.integers(0, len(unfinished) - 1)))
            steps.append(Step(finish=(finished,)))
            continue
        unfinished.append(f"w{number}")
        requests = {resource: draw(st.integers(1, 5)) for resource in resources}
        pods, queue = PodSet(requests, draw(st.integers(1, 2))), draw(st.sampled_from(names))
        steps.append(Step((Workload(unfinished[-1], queue, (pods,), draw(st.sampled_from([0, 0, 10]))),)))
    return tenancy, steps


def used(settled: Settled, steps: Sequence[Step]) -> dict[tuple[str, str], int]:
    """GPUs that admitted workloads use, by queue and flavor."""
    pod_sets = {workload.name: workload.pod_sets[0] for step in steps for workload in step.submit}
    usage: dict[tuple[str, str], int] = {}
    for workload in settled.admitted:
        place, pod_set = (workload.queue, workload.flavors[0][GPU]), pod_sets[workload.name]
        usage[place] = usage.get(place, 0) + pod_set.requests[GPU] * pod_set.count
    return usage


def quota_of(owner: ClusterQueue | Cohort, name: str) -> Quota:
    return next(
        (flavor.resources[GPU] for group in owner.groups for flavor in group.flavors if flavor.flavor == name), Quota()
    )


@pytest.mark.slow
@SLOW
@given(worlds())
def test_usage_stays_within_quota_and_limits(world: tuple[Tenancy, list[Step]]) -> None:
    """Within all quota, borrowing limits, and the quota that others lend."""
    tenancy, steps = world
    owners = (*tenancy.queues, *tenancy.cohorts)
    for settled in run(tenancy, steps):
        for flavor in ("f0", "f1"):
            by_queue = {queue: amount for (queue, name), amount in used(settled, steps).items() if name == flavor}
            total = sum(quota_of(owner, flavor).nominal for owner in owners)
            assert sum(by_queue.values()) <= total
            for queue in tenancy.queues:
                quota, own = quota_of(queue, flavor), by_queue.get(queue.name, 0)
                if quota.borrowing_limit is not None:
                    assert own <= quota.nominal + quota.borrowing_limit
                if quota.lending_limit is not None:
                    assert sum(by_queue.values()) - own <= total - (quota.nominal - quota.lending_limit)


@SLOW
@given(worlds())
def test_unfinished_workloads_are_admitted_or_pending(world: tuple[Tenancy, list[Step]]) -> None:
    tenancy, steps = world
    unfinished: list[str] = []
    for step, settled in zip(steps, run(tenancy, steps), strict=True):
        unfinished = [name for name in unfinished if name not in step.finish]
        unfinished += [workload.name for workload in step.submit]
        names = [*admitted(settled), *(workload.name for workload in settled.pending)]
        assert sorted(names) == sorted(unfinished)
        assert all(workload.why for workload in settled.pending)


@pytest.mark.slow
@SLOW
@given(worlds())
def test_two_runs_have_the_same_result(world: tuple[Tenancy, list[Step]]) -> None:
    assert run(*world) == run(*world)


@pytest.mark.slow
@SLOW
@given(worlds())
def test_names_do_not_affect_the_result(world: tuple[Tenancy, list[Step]]) -> None:
    """Kueue breaks ties by random UIDs and the order of maps; the simulation by the order of creation and of queues."""
    tenancy, steps = world

    def renamed(name: str) -> str:
        return {"a": "z", "b": "y", "c": "x", "d": "v", "left": "s", "right": "r", "org": "t"}.get(
            name, f"z{9 - len(name)}{name[::-1]}"
        )

    renamed_tenancy = Tenancy(
        tuple(replace(queue, name=renamed(queue.name), cohort=renamed(queue.cohort or "")) for queue in tenancy.queues),
        tuple(
            replace(cohort, name=renamed(cohort.name), parent=cohort.parent and renamed(cohort.parent))
            for cohort in tenancy.cohorts
        ),
        tenancy.fair_sharing,
    )
    renamed_steps = [
        Step(
            tuple(
                replace(workload, name=renamed(workload.name), queue=renamed(workload.queue))
                for workload in step.submit
            ),
            tuple(renamed(name) for name in step.finish),
        )
        for step in steps
    ]
    states, renamed_states = run(tenancy, steps), run(renamed_tenancy, renamed_steps)
    expected = [[renamed(name) for name in admitted(settled)] for settled in states]
    assert [admitted(settled) for settled in renamed_states] == expected


@SLOW
@given(
    st.lists(st.tuples(st.integers(1, 8), st.none() | st.integers(0, 8)), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 10])), max_size=24),
    st.booleans(),
)
def test_nominal_quota_is_never_lent_while_requested(
    quotas_of: list[tuple[int, int | None]],
    submitted: list[tuple[int, int]],
    fair: bool,  # noqa: FBT001 - drawn
) -> None:
    """With the reclaim policy Any. Workloads have one GPU, so quota is never fragmented."""
    rules = Preemption(reclaim=Policy.ANY)
    queues = tuple(
        ClusterQueue(name, groups(Quota(nominal, limit)), "org", preemption=rules)
        for name, (nominal, limit) in zip(QUEUES, quotas_of, strict=False)
    )
    workloads = [
        work(f"w{number}", queues[index % len(queues)].name, 1, priority)
        for number, (index, priority) in enumerate(submitted)
    ]
    steps = [Step((workload,)) for workload in workloads]
    for settled in run(Tenancy(queues, fair_sharing=FAIR if fair else None), steps):
        by_queue = {queue: amount for (queue, _), amount in used(settled, steps).items()}
        borrowing = any(by_queue.get(queue.name, 0) > quota_of(queue, "f0").nominal for queue in queues)
        for workload in settled.pending:
            (queue,) = (queue for queue in queues if queue.name == workload.queue)
            assert not borrowing or by_queue.get(queue.name, 0) >= quota_of(queue, "f0").nominal


@pytest.mark.slow
@SLOW
@given(worlds())
def test_workloads_at_once_stay_within_the_total_quota(world: tuple[Tenancy, list[Step]]) -> None:
    tenancy, steps = world
    workloads: list[Workload] = [workload for step in steps for workload in step.submit]
    settled = settle(tenancy, workloads)
    assume(not settled.livelock)
    total = sum(used(settled, steps).values())
    owners = (*tenancy.queues, *tenancy.cohorts)
    assert total <= sum(quota_of(owner, flavor).nominal for owner in owners for flavor in ("f0", "f1"))


# The candidate cache: what it has cached across cycles equals what a new cache computes.


@pytest.mark.slow
def test_cached_candidates_equal_those_of_a_new_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [(read_tenancy(one), read_steps(one)) for one in draw(1, 230)]
    with_cache = [run(*world) for world in worlds]
    run_cycle = cycle.run_cycle

    def with_new_cache(tree: Any, heads: Any, number: int, _cache: CandidateCache) -> Any:
        return run_cycle(tree, heads, number, CandidateCache(tree.queues.values()))

    monkeypatch.setattr(runner, "run_cycle", with_new_cache)
    assert [run(*world) for world in worlds] == with_cache
