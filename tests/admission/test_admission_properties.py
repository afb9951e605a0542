"""What holds for every tenancy and every order of events."""

from collections.abc import Sequence
from dataclasses import replace

from admission_builders import GPU, running, work
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpu_tenancy.model.admission import (
    FAIR,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Policy,
    Preemption,
    Quota,
    ResourceGroup,
    Settled,
    Step,
    Strategy,
    Tenancy,
    Workload,
    run,
    settle,
)

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
QUEUES = ("a", "b", "c", "d")
GROUPS = ("left", "right")


def groups(quotas: Sequence[Quota]) -> tuple[ResourceGroup, ...]:
    """A resource group of as many flavors."""
    return (ResourceGroup(tuple(FlavorQuotas(f"f{n}", {GPU: quota}) for n, quota in enumerate(quotas))),)


@st.composite
def quotas(draw: st.DrawFn, flavors: int) -> list[Quota]:
    found: list[Quota] = []
    for _ in range(flavors):
        nominal = draw(st.integers(0, 6))
        limit = draw(st.none() | st.integers(0, 6))
        found.append(Quota(nominal, limit, draw(st.none() | st.integers(0, nominal))))
    return found


@st.composite
def tenancies(draw: st.DrawFn) -> Tenancy:
    """Up to four queues in a tree of up to three levels."""
    flavors = draw(st.integers(1, 2))
    cohorts = (Cohort("org"), *(Cohort(name, "org", groups(draw(quotas(flavors)))) for name in GROUPS))
    queues = tuple(
        ClusterQueue(
            name,
            groups(draw(quotas(flavors))),
            draw(st.sampled_from(["org", *GROUPS])),
            draw(st.sampled_from(Strategy)),
            Preemption(
                draw(st.sampled_from([Policy.NEVER, Policy.LOWER, Policy.LOWER_OR_NEWER])),
                draw(st.sampled_from([Policy.NEVER, Policy.LOWER, Policy.ANY])),
            ),
            weight=draw(st.sampled_from([0.0, 1.0, 2.0])),
        )
        for name in QUEUES[: draw(st.integers(1, 4))]
    )
    return Tenancy(queues, cohorts, draw(st.sampled_from([None, FAIR])))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Tenancy, list[Step]]:
    """A tenancy, and workloads that come and go."""
    tenancy = draw(tenancies())
    names = [each.name for each in tenancy.queues]
    steps: list[Step] = []
    there: list[str] = []
    for number in range(draw(st.integers(1, 12))):
        if there and draw(st.integers(0, 4)) == 0:
            gone = there.pop(draw(st.integers(0, len(there) - 1)))
            steps.append(Step(finish=(gone,)))
            continue
        there.append(f"w{number}")
        each = work(
            there[-1],
            draw(st.sampled_from(names)),
            draw(st.integers(1, 5)),
            draw(st.sampled_from([0, 0, 10])),
            draw(st.integers(1, 2)),
        )
        steps.append(Step((each,)))
    return tenancy, steps


def used(settled: Settled, steps: Sequence[Step]) -> dict[tuple[str, str], int]:
    """GPUs that run, by queue and flavor."""
    sizes = {each.name: each.pod_sets[0] for step in steps for each in step.submit}
    found: dict[tuple[str, str], int] = {}
    for each in settled.admitted:
        place = each.queue, each.flavors[0][GPU]
        found[place] = found.get(place, 0) + sizes[each.name].requests[GPU] * sizes[each.name].count
    return found


def quota_of(owner: ClusterQueue | Cohort, flavor: str) -> Quota:
    return next(
        (each.resources[GPU] for group in owner.groups for each in group.flavors if each.flavor == flavor), Quota()
    )


@SLOW
@given(worlds())
def test_nothing_runs_beyond_capacity_and_no_queue_beyond_its_limit(world: tuple[Tenancy, list[Step]]) -> None:
    tenancy, steps = world
    for settled in run(tenancy, steps):
        for flavor in ("f0", "f1"):
            by_queue = {queue: amount for (queue, at), amount in used(settled, steps).items() if at == flavor}
            owners = (*tenancy.queues, *tenancy.cohorts)
            assert sum(by_queue.values()) <= sum(quota_of(each, flavor).nominal for each in owners)
            for queue in tenancy.queues:
                quota = quota_of(queue, flavor)
                if quota.borrowing_limit is not None:
                    assert by_queue.get(queue.name, 0) <= quota.nominal + quota.borrowing_limit


@SLOW
@given(worlds())
def test_a_lender_keeps_what_it_does_not_lend(world: tuple[Tenancy, list[Step]]) -> None:
    tenancy, steps = world
    for settled in run(tenancy, steps):
        for flavor in ("f0", "f1"):
            by_queue = {queue: amount for (queue, at), amount in used(settled, steps).items() if at == flavor}
            for lender in tenancy.queues:
                quota = quota_of(lender, flavor)
                held = 0 if quota.lending_limit is None else quota.nominal - quota.lending_limit
                owners = [each for each in (*tenancy.queues, *tenancy.cohorts) if each is not lender]
                others = sum(amount for name, amount in by_queue.items() if name != lender.name)
                assert others <= sum(quota_of(each, flavor).nominal for each in owners) + quota.nominal - held


@SLOW
@given(worlds())
def test_everything_that_came_and_has_not_ended_runs_or_waits_once(world: tuple[Tenancy, list[Step]]) -> None:
    tenancy, steps = world
    there: list[str] = []
    for step, settled in zip(steps, run(tenancy, steps), strict=True):
        there = [name for name in there if name not in step.finish] + [each.name for each in step.submit]
        names = [*running(settled), *(each.name for each in settled.pending)]
        assert sorted(names) == sorted(there)
        assert all(each.why for each in settled.pending)


@SLOW
@given(worlds())
def test_the_same_comes_of_the_same(world: tuple[Tenancy, list[Step]]) -> None:
    assert run(*world) == run(*world)


@SLOW
@given(worlds())
def test_names_decide_nothing(world: tuple[Tenancy, list[Step]]) -> None:
    """Kueue itself breaks ties by random ids and by the order of a hash; the simulation by age and position."""
    tenancy, steps = world

    def renamed(name: str) -> str:
        return {"a": "z", "b": "y", "c": "x", "d": "v", "left": "s", "right": "r", "org": "t"}.get(
            name, f"z{9 - len(name)}{name[::-1]}"
        )

    other = Tenancy(
        tuple(replace(each, name=renamed(each.name), cohort=renamed(each.cohort or "")) for each in tenancy.queues),
        tuple(
            replace(each, name=renamed(each.name), parent=each.parent and renamed(each.parent))
            for each in tenancy.cohorts
        ),
        tenancy.fair_sharing,
    )
    moved = [
        Step(
            tuple(replace(each, name=renamed(each.name), queue=renamed(each.queue)) for each in step.submit),
            tuple(renamed(each) for each in step.finish),
        )
        for step in steps
    ]
    before, after = run(tenancy, steps), run(other, moved)
    assert [[renamed(name) for name in running(each)] for each in before] == [running(each) for each in after]


@SLOW
@given(
    st.lists(st.tuples(st.integers(1, 8), st.none() | st.integers(0, 8)), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 10])), max_size=24),
    st.booleans(),
)
def test_who_is_within_its_guarantee_never_waits_while_others_borrow(
    shapes: list[tuple[int, int | None]],
    arrivals: list[tuple[int, int]],
    fair: bool,  # noqa: FBT001 - drawn
) -> None:
    """With reclaim Any, and workloads of one GPU, so that nothing is lost to sizes that do not fit together."""
    rules = Preemption(reclaim=Policy.ANY)
    queues = tuple(
        ClusterQueue(name, groups([Quota(nominal, limit)]), "org", preemption=rules)
        for name, (nominal, limit) in zip(QUEUES, shapes, strict=False)
    )
    workloads = [
        work(f"w{n}", queues[index % len(queues)].name, 1, priority) for n, (index, priority) in enumerate(arrivals)
    ]
    steps = [Step((each,)) for each in workloads]
    for settled in run(Tenancy(queues, fair_sharing=FAIR if fair else None), steps):
        by_queue = {queue: amount for (queue, _), amount in used(settled, steps).items()}
        borrowed = any(by_queue.get(each.name, 0) > quota_of(each, "f0").nominal for each in queues)
        for each in settled.pending:
            (queue,) = (one for one in queues if one.name == each.queue)
            assert not borrowed or by_queue.get(queue.name, 0) >= quota_of(queue, "f0").nominal


@SLOW
@given(worlds())
def test_what_comes_all_at_once_uses_no_more_than_all_quota(world: tuple[Tenancy, list[Step]]) -> None:
    tenancy, steps = world
    workloads: list[Workload] = [each for step in steps for each in step.submit]
    found = settle(tenancy, workloads)
    assume(not found.livelock)
    total = sum(used(found, steps).values())
    assert total <= sum(
        quota_of(each, flavor).nominal for each in (*tenancy.queues, *tenancy.cohorts) for flavor in ("f0", "f1")
    )
