"""Jobs that arrive and end in real time: starts, preemptions, and conservation of GPU-seconds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kueue_builders import GPU, admitted, queue, work
from test_kueue_properties import tenancies

from gpu_tenancy.kueue import Cohort, Policy, Preemption, Step, Strategy, Tenancy, Workload, run
from gpu_tenancy.kueue.replay import Arrival, Replay, ReplayedJob

HOUR = 3_600_000
TIRELESS = 10**12
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


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
    tenancy = Tenancy((queue("a", 8),))
    log, _ = played(
        tenancy,
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
    both = Preemption(reclaim=Policy.ANY, within=Policy.ANY)
    tenancy = Tenancy((queue("a", 1, preemption=both),))
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
    replay = Replay(tenancy, log)
    replay.play(
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
