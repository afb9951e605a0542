"""A month of jobs in the simulation of Kueue, written as the Workloads of a cluster."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from builders import EXISTING, Data, pool, team

from gpu_tenancy.cost.statement import Period, Terms
from gpu_tenancy.kueue import PodSet, Workload
from gpu_tenancy.kueue.replay import Arrival, Replay, ReplayedJob
from gpu_tenancy.model.load import load
from gpu_tenancy.model.observability.expressions import RECORDED_EVERY
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source

GPU: Final = "nvidia.com/gpu"
OCTOBER: Final = Period.of("2026-10", datetime(2026, 11, 26, tzinfo=UTC))
MILLI: Final = 1000


def lab(**sections: Data) -> Data:
    """16 H100s: 8 guaranteed to vision, 4 to speech, 2 to serving, which lends none; a team in vision's queue."""
    return {
        "environment": "test",
        "cluster": EXISTING,
        "pools": {"cpu": pool("m7i.8xlarge", 1), "h100": pool(nodes=2)},
        "prices": {"p5.48xlarge": {"onDemand": 80}},
        "teams": {
            "vision": team(gpus={"h100": {"guaranteed": 8, "limit": 16}}),
            "speech": team(gpus={"h100": {"guaranteed": 4, "limit": 16}}, costCenter="rd-002"),
            "serving": team(gpus={"h100": {"guaranteed": 2, "limit": 2}}, lends=False),
            "students": team(queue="vision"),
        },
        **sections,
    }


def terms(sections: Data) -> Terms:
    return Terms.of(Tree(load(Source(sections))))


@dataclass
class Month:
    """Observes a replay: the quota of every job, and the levels of each queue over time."""

    jobs: dict[str, ReplayedJob] = field(default_factory=dict[str, ReplayedJob])
    ends: dict[str, int] = field(default_factory=dict[str, int])
    past: dict[str, int] = field(default_factory=dict[str, int])
    last: dict[str, int] = field(default_factory=dict[str, int])
    levels: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])  # milliseconds, queue, GPUs

    def arrived(self, job: ReplayedJob, now: int) -> None:
        assert now == job.arrival.at
        self.jobs[job.arrival.workload.name] = job

    def started(self, job: ReplayedJob, now: int) -> None:
        self.last[job.arrival.workload.name] = now
        self.levels.append((now, job.arrival.workload.queue, gpus_of(job)))

    def stopped(self, job: ReplayedJob, now: int, by: ReplayedJob | None) -> None:
        name = job.arrival.workload.name
        self.levels.append((now, job.arrival.workload.queue, -gpus_of(job)))
        if by is None:
            self.ends[name] = now
        else:
            self.past[name] = self.past.get(name, 0) + now - self.last[name]

    def gpu_hours(self, queue: str | None = None) -> float:
        """GPU-hours of the jobs, which have all ended."""
        assert self.ends.keys() == self.last.keys()
        return sum(-by * at for at, name, by in self.levels if queue in {None, name}) / MILLI / 3600

    def workloads(self) -> Iterator[Data]:
        """Kueue's Workload of each job that started."""
        for name, job in self.jobs.items():
            if name in self.last:
                yield workload_of(name, job, self.last[name], self.ends.get(name), self.past.get(name, 0))


def gpus_of(job: ReplayedJob) -> int:
    return sum(pods.count * pods.requests.get(GPU, 0) for pods in job.arrival.workload.pod_sets)


def moment(milliseconds: int) -> str:
    """A moment of October as Kubernetes writes it, in whole seconds."""
    return f"{datetime.fromtimestamp(OCTOBER.start + milliseconds // MILLI, UTC):%Y-%m-%dT%H:%M:%SZ}"


def workload_of(name: str, job: ReplayedJob, admitted: int, finished: int | None, past: int) -> Data:
    conditions: list[Data] = [{"type": "Admitted", "status": "True", "lastTransitionTime": moment(admitted)}]
    if finished is not None:
        done = {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": moment(finished)}
        conditions.append(done)
    assignments = [
        {
            "name": pods.name,
            "count": pods.count,
            "flavors": {GPU: "h100"},
            "resourceUsage": {GPU: str(pods.count * pods.requests.get(GPU, 0))},
        }
        for pods in job.arrival.workload.pod_sets
    ]
    status: Data = {"admission": {"podSetAssignments": assignments}, "conditions": conditions}
    if job.preemptions:
        status["accumulatedPastExecutionTimeSeconds"] = past // MILLI
        status["schedulingStats"] = {"evictions": [{"reason": "Preempted", "count": job.preemptions}]}
    return {
        "metadata": {
            "name": f"job-{name}", "namespace": job.arrival.workload.queue, "creationTimestamp": moment(job.arrival.at),
            "ownerReferences": [{"kind": "Job", "name": name}],
        },
        "spec": {}, "status": status,
    }  # fmt: skip


def played(sections: Data, arrivals: Iterable[Arrival]) -> Month:
    month = Month()
    Replay(tenancy(Tree(load(Source(sections)))), month, checkpoint=60 * MILLI).play(arrivals)
    return month


def arrivals(seed: int, count: int = 400) -> list[Arrival]:
    """Jobs of the first twenty days, of one to eight GPUs, in whole seconds."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    moments = sorted(dice.randrange(20 * 86_400) for _ in range(count))
    return [
        Arrival(
            at * MILLI,
            Workload(
                f"train-{number}",
                queue := dice.choice(("vision", "vision", "speech", "serving")),
                (PodSet({GPU: dice.choice((1, 2) if queue == "serving" else (1, 2, 4, 8))}, 1, frozenset({"h100"})),),
            ),
            dice.choice((600, 7200, 36_000)) * MILLI,
        )
        for number, at in enumerate(moments)
    ]


def use(team: str, at: float, name: str, hours: list[tuple[float, int | None]], kind: str = "Job") -> Iterator[str]:
    """Samples of a job with a pod of 8 GPUs from a time on: for each number of hours, percent of use, or a gap."""
    pod, owner = f'namespace="{team}",pod="{name}-0"', f'created_by_kind="{kind}",created_by_name="{name}"'
    series = {f"kube_pod_info{{{pod},{owner}}}": 1.0, f'gpu_tenancy:gpus_of_job{{namespace="{team}",{owner}}}': 8.0}
    if kind == "Job":
        end = at + sum(length for length, _ in hours) * 3600
        times = {"created": at, "status_start_time": at, "status_completion_time": end, "spec_parallelism": 1}
        series |= {f'kube_job_{one}{{namespace="{team}",job_name="{name}"}}': value for one, value in times.items()}
    for length, percent in hours:
        for _ in range(round(length * 3600 / RECORDED_EVERY)):
            at += RECORDED_EVERY
            if percent is not None:
                yield f"gpu_tenancy:pod_gpu_utilization{{{pod}}} {percent} {at:.0f}"
                yield from (f"{one} {value:.0f} {at:.0f}" for one, value in series.items())
