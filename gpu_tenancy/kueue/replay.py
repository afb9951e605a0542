"""Plays jobs that arrive, run and end in real time; only pending and running workloads stay in memory."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from gpu_tenancy.kueue.api import Tenancy, Workload, validate
from gpu_tenancy.kueue.runner import Runner
from gpu_tenancy.kueue.simulation import Simulation
from gpu_tenancy.kueue.workload_info import Queue, WorkloadInfo, cohort_trees


@dataclass(frozen=True, slots=True)
class Arrival:
    """A workload with its time of arrival and its duration, in milliseconds."""

    at: int
    workload: Workload
    duration: int


@dataclass(slots=True, eq=False)
class ReplayedJob:
    """A workload in a replay; times are in milliseconds."""

    arrival: Arrival
    info: WorkloadInfo
    remaining: int
    running_since: int | None = None  # None while it is pending
    preemptions: int = 0
    lost: int = 0  # running time that the job has to repeat


class Observer(Protocol):
    """Gets events in the order of time; `now` is in milliseconds."""

    def arrived(self, job: ReplayedJob, now: int) -> None:
        """A job was submitted."""

    def started(self, job: ReplayedJob, now: int) -> None:
        """A job was admitted."""

    def stopped(self, job: ReplayedJob, now: int, by: ReplayedJob | None) -> None:
        """A job has ended, or was preempted for the job `by`; `running_since` is still set."""


class Replay:
    """A tenancy in which jobs arrive and end; ValueError as by `gpu_tenancy.kueue.api.parents` and `validate`.

    A job saves its progress after every `checkpoint` milliseconds of running; None: a preempted job starts again.
    """

    def __init__(self, tenancy: Tenancy, observer: Observer, *, checkpoint: int | None = None) -> None:
        validate(tenancy)
        self._observer, self._checkpoint = observer, checkpoint
        self._runners = [Runner(tree, self) for tree in cohort_trees(tenancy)]
        self._queues: dict[str, tuple[Runner, Queue]] = {
            name: (runner, queue) for runner in self._runners for name, queue in runner.tree.queues.items()
        }
        self._jobs: dict[WorkloadInfo, ReplayedJob] = {}
        # Ends of running jobs, each with the start that it belongs to; a preempted job's end stays until it is due.
        self._ends: list[tuple[int, int, int, ReplayedJob]] = []
        self._created = 0
        self._now = 0
        self.livelocks = 0  # number of times that workloads preempted one another until something else happened

    @property
    def pending(self) -> Iterable[ReplayedJob]:
        """The pending jobs in the order of arrival; after `play`, the jobs that can never run."""
        return (job for job in self._jobs.values() if job.running_since is None)

    def play(self, arrivals: Iterable[Arrival]) -> int:
        """Plays arrivals, sorted by time, until nothing happens; returns the time of the last event in milliseconds.

        Raises ValueError: an arrival is earlier than the one before it, or its queue does not exist.
        """
        for arrival in arrivals:
            if arrival.at < self._now:
                raise ValueError(f"workload {arrival.workload.name!r} arrives before the one ahead of it")
            if arrival.workload.queue not in self._queues:
                raise ValueError(
                    f"workload {arrival.workload.name!r}: ClusterQueue {arrival.workload.queue!r} does not exist"
                )
            self._run(until=arrival.at)
            runner, queue = self._queues[arrival.workload.queue]
            info = WorkloadInfo.new(arrival.workload, queue, self._created)
            self._created += 1
            self._now = arrival.at
            job = self._jobs[info] = ReplayedJob(arrival, info, arrival.duration)
            self._observer.arrived(job, arrival.at)
            runner.act(self._now, submit=info)
        self._run(until=None)
        return self._now

    def admitted(self, workload: WorkloadInfo) -> None:
        """`Watcher` method."""
        job, now = self._jobs[workload], self._now
        job.running_since = now
        heapq.heappush(self._ends, (now + job.remaining, workload.created, now, job))
        self._observer.started(job, now)

    def preempted(self, workload: WorkloadInfo, by: WorkloadInfo) -> None:
        """`Watcher` method."""
        job, now = self._jobs[workload], self._now
        ran = now - (job.running_since or 0)
        saved = ran // self._checkpoint * self._checkpoint if self._checkpoint else 0
        job.remaining -= saved
        job.lost += ran - saved
        job.preemptions += 1
        self._observer.stopped(job, now, self._jobs[by])
        job.running_since = None

    def _run(self, until: int | None) -> None:
        """Plays all events up to and including a moment; None: until nothing is due."""
        while True:
            event, runner = min(
                ((moment, runner) for runner in self._runners if (moment := runner.next_event) is not None),
                key=lambda one: one[0],
                default=(None, None),
            )
            while self._ends and self._ends[0][3].running_since != self._ends[0][2]:
                heapq.heappop(self._ends)
            end = self._ends[0][0] if self._ends else None
            due = min((moment for moment in (event, end) if moment is not None), default=None)
            if due is None or (until is not None and due > until):
                return
            # What a livelock has left is overdue.
            self._now = max(self._now, due)
            if due == end:
                job = heapq.heappop(self._ends)[3]
                self._observer.stopped(job, self._now, None)
                del self._jobs[job.info]
                self._queues[job.arrival.workload.queue][0].act(self._now, finish=job.info)
            elif runner is not None:
                runner.step()
                self.livelocks += runner.livelock


Lasts: TypeAlias = Callable[[str], float | None]  # seconds that a workload runs, by name; None: unknown


def waits(
    simulation: Simulation, left: Lasts, whole: Lasts, *, most: int, until: str | None = None
) -> tuple[dict[str, float], bool]:
    """Seconds until pending workloads are admitted, if nothing else is submitted; and whether more ends would follow.

    Workloads that are not admitted are left out; running ones have 0.

    Args:
        simulation: at rest; the function changes it.
        left: seconds that running workloads still run; a workload with an unknown time does not end.
        whole: seconds that workloads run that start later; a preempted workload starts again.
        most: number of ends to simulate.
        until: stop when this workload is admitted.
    """
    running = simulation.running
    found = dict.fromkeys(running, 0.0)
    ends = {other: seconds for other in running if (seconds := left(other)) is not None}
    due = [(end, other) for other, end in ends.items()]
    heapq.heapify(due)
    while due and most and until not in found:
        now, ended = heapq.heappop(due)
        if ends.get(ended) != now:
            continue  # It was preempted before.
        most -= 1
        del ends[ended]
        simulation.finish(ended)
        if simulation.rest():
            break  # Workloads preempt one another endlessly: nobody knows what runs.
        after = simulation.running
        for stopped in running - after:
            ends.pop(stopped, None)
        for started in after - running:
            found.setdefault(started, now)
            if (seconds := whole(started)) is not None:
                ends[started] = now + seconds
                heapq.heappush(due, (now + seconds, started))
        running = after
    return found, bool(due and not most)
