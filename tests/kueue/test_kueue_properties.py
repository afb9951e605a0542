"""Properties of admission in any tenancy, and of replays: which job starts and ends when."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kueue_builders import GPU, admitted, group, queue, settle, work

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
from gpu_tenancy.kueue.replay import Arrival, Replay, ReplayedJob
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
            for member in tenancy.queues:
                quota, own = quota_of(member, flavor), by_queue.get(member.name, 0)
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


HOUR = 3_600_000
TIRELESS = 10**12


@dataclass
class Log:
    """Observed starts and ends by name, GPU-milliseconds, and the maximum GPUs of each queue."""

    starts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    ends: dict[str, int] = field(default_factory=dict[str, int])
    preempted: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    held: Counter[str] = field(default_factory=Counter[str])
    most: Counter[str] = field(default_factory=Counter[str])
    now: Counter[str] = field(default_factory=Counter[str])
    last: int = 0

    def arrived(self, job: ReplayedJob, now: int) -> None:
        assert job.arrival.at == now >= self.last
        self.last = now

    def started(self, job: ReplayedJob, now: int) -> None:
        assert now >= self.last
        self.last = now
        self.starts.setdefault(job.info.name, []).append(now)
        self._count(job, 1)

    def stopped(self, job: ReplayedJob, now: int, by: ReplayedJob | None) -> None:
        assert job.running_since is not None
        assert now >= self.last
        self.last = now
        self.held[job.info.name] += now - job.running_since
        if by is None:
            self.ends[job.info.name] = now
        else:
            self.preempted.append((job.info.name, by.info.name, now))
        self._count(job, -1)

    def _count(self, job: ReplayedJob, sign: int) -> None:
        of = job.arrival.workload.queue
        self.now[of] += sign * sum(pod_set.requests[GPU] * pod_set.count for pod_set in job.arrival.workload.pod_sets)
        self.most[of] = max(self.most[of], self.now[of])


def played(tenancy: Tenancy, *arrivals: tuple[int, Workload, int], checkpoint: int | None = None) -> tuple[Log, Replay]:
    log = Log()
    replay = Replay(tenancy, log, checkpoint=checkpoint)
    replay.play(Arrival(*arrival) for arrival in arrivals)
    return log, replay


def test_jobs_wait_for_an_end_and_the_backoff_of_kueue() -> None:
    log, _ = played(
        Tenancy((queue("a", 8),)),
        (0, work("first", "a", 8), HOUR),
        (1000, work("second", "a", 8), HOUR),
        (2000, work("third", "a", 8), 1),
    )
    assert log.starts == {"first": [0], "second": [HOUR + 1000], "third": [2 * HOUR + 2000]}
    assert log.ends == {"first": HOUR, "second": 2 * HOUR + 1000, "third": 2 * HOUR + 2001}


LENDING = Tenancy(
    (queue("owner", 8, 0, preemption=Preemption(reclaim=Policy.ANY)), queue("borrower", 0, 8)), (Cohort("org"),)
)


@pytest.mark.parametrize(
    ("checkpoint", "repeated"), [(None, 40 * 60_000), (15 * 60_000, 10 * 60_000), (40 * 60_000, 0)], ids=str
)
def test_a_preempted_job_repeats_what_it_has_not_saved(checkpoint: int | None, repeated: int) -> None:
    at = 40 * 60_000
    log, replay = played(
        LENDING, (0, work("long", "borrower", 8), HOUR), (at, work("own", "owner", 8), HOUR), checkpoint=checkpoint
    )
    assert log.preempted == [("long", "own", at)]
    assert log.starts["own"] == [at + 100]
    again = log.starts["long"][1]
    assert again == at + 100 + HOUR + 1000
    assert log.ends["long"] == again + HOUR - (at - repeated)
    assert log.held["long"] == HOUR + repeated
    assert list(replay.pending) == []


def test_jobs_that_never_fit_block_strict_queues_only() -> None:
    for strategy, starts in ((Strategy.BEST_EFFORT, {"small": [1]}), (Strategy.STRICT, {})):
        tenancy = Tenancy((queue("a", 8, strategy=strategy),))
        log, replay = played(tenancy, (0, work("huge", "a", 9), 1), (1, work("small", "a", 1), 1))
        assert log.starts == starts
        assert next(iter(replay.pending)).info.name == "huge"


def test_endless_preemption_ends_with_the_next_arrival() -> None:
    tenancy = Tenancy((queue("a", 1, preemption=Preemption(reclaim=Policy.ANY, within=Policy.ANY)),))
    log, replay = played(
        tenancy, (0, work("one", "a", 1), HOUR), (5000, work("other", "a", 1), HOUR), (HOUR, work("late", "a", 1), 1)
    )
    assert replay.livelocks > 0
    assert log.last >= HOUR


def test_arrivals_out_of_order_and_in_unknown_queues_are_refused() -> None:
    with pytest.raises(ValueError, match="'late' arrives before"):
        played(Tenancy((queue("a", 1),)), (5, work("early", "a", 1), 1), (4, work("late", "a", 1), 1))
    with pytest.raises(ValueError, match="ClusterQueue 'b' does not exist"):
        played(Tenancy((queue("a", 1),)), (5, work("job", "b", 1), 1))


@st.composite
def days(draw: st.DrawFn, tenancy: Tenancy) -> list[Arrival]:
    """Up to a dozen jobs, some at the same moment."""
    at, found = 0, list[Arrival]()
    for number in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0, 1, 50, 1000, 60_000]))
        name = draw(st.sampled_from(tenancy.queues)).name
        workload = work(f"w{number}", name, draw(st.integers(1, 4)), draw(st.sampled_from([0, 0, 10])))
        found.append(Arrival(at, workload, draw(st.sampled_from([0, 500, 30_000, 200_000]))))
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tenancy, list[Arrival]]:
    tenancy = draw(tenancies())
    return tenancy, draw(days(tenancy))


@SLOW
@given(cases(), st.none() | st.just(10_000))
def test_each_job_runs_its_duration_and_repeats(case: tuple[Tenancy, list[Arrival]], checkpoint: int | None) -> None:
    tenancy, arrivals = case
    log = Log()
    replay = Replay(tenancy, log, checkpoint=checkpoint)
    end = replay.play(arrivals)
    pending = {job.info.name for job in replay.pending}
    assert log.ends.keys() == {one.workload.name for one in arrivals} - pending
    assert end >= max(log.ends.values(), default=0)
    gone = Counter(name for name, _, _ in log.preempted)
    for one in arrivals:
        name = one.workload.name
        if name in pending:
            continue
        assert log.held[name] >= one.duration
        assert (log.held[name] > one.duration) <= (gone[name] > 0)
        assert len(log.starts[name]) == 1 + gone[name]
    assert all(count == 0 for count in log.now.values())


@SLOW
@given(cases())
def test_endless_jobs_are_admitted_as_in_steps(case: tuple[Tenancy, list[Arrival]]) -> None:
    tenancy, arrivals = case
    states = run(tenancy, [Step((one.workload,)) for one in arrivals])
    if any(state.livelock for state in states):
        return
    log = Log()
    Replay(tenancy, log).play(
        Arrival(60_000 * number, one.workload, TIRELESS + number * TIRELESS) for number, one in enumerate(arrivals)
    )
    assert _running(log, arrivals, 60_000 * len(arrivals)) == set(admitted(states[-1]))


def _running(log: Log, arrivals: Sequence[Arrival], at: int) -> set[str]:
    """Names of the jobs that ran at a moment before any has ended."""
    stops = Counter(name for name, _, moment in log.preempted if moment < at)
    return {
        one.workload.name
        for one in arrivals
        if sum(1 for start in log.starts.get(one.workload.name, ()) if start < at) > stops[one.workload.name]
    }
