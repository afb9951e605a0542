"""`python -m benchmarks.agree.day`: a day of jobs, compressed to minutes, on the real Kueue and in a replay.

Jobs arrive at random moments, hold their GPUs for as long as they run, and start again from the beginning after a
preemption. Shown is by how much the waiting times differ.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.agree import kueue
from benchmarks.agree.objects import Objects
from benchmarks.agree.playing import Stage
from benchmarks.agree.tenancies import Data
from gpu_tenancy.base import terminal
from gpu_tenancy.embedded.processes import alone
from gpu_tenancy.kueue import PodSet, Workload
from gpu_tenancy.kueue.replay import Arrival, Replay, ReplayedJob
from gpu_tenancy.kueue.scenarios import read_tenancy

GPU: Final = "nvidia.com/gpu"
PREFIX: Final = "day"
_MILLI: Final = 1000.0
_LENDS: Final = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the day: when it arrives and how long it runs, in seconds of the compressed day."""

    name: str
    queue: str
    gpus: int
    priority: str
    at: float
    runs: float


def day(seed: int, jobs: int, seconds: float) -> tuple[Data, list[Job]]:
    """Three teams on 32 GPUs, of which one has no guarantee, and the jobs that they submit: more than fit at once."""
    dice = random.Random(seed)  # noqa: S311 - no secret

    def queue(name: str, nominal: int) -> Data:
        line = {"flavor": "a100", "resource": GPU, "nominal": nominal}
        return {"name": name, "cohort": "org", "preemption": _LENDS, "resources": [line]}

    scenario: Data = {
        "id": PREFIX,
        "fairSharing": False,
        "cohorts": [{"name": "org"}],
        "clusterQueues": [queue("research", 16), queue("vision", 16), queue("experiments", 0)],
        "priorities": {"low": 10, "high": 1000},
        "steps": [],
    }
    moments = sorted(dice.uniform(0, seconds) for _ in range(jobs))
    return scenario, [
        Job(
            f"j{number}",
            dice.choice(["research", "vision", "experiments"]),
            dice.choice([1, 2, 2, 4, 8]),
            dice.choice(["low", "high"]),
            at,
            min(seconds / 4, max(3.0, dice.expovariate(jobs / (9 * seconds)))),
        )
        for number, at in enumerate(moments)
    ]


@dataclass(slots=True)
class Seen:
    """What became of a job: seconds from its arrival to its first start, and its preemptions."""

    arrived: float
    waited: float | None = None
    preemptions: int = 0


def live(stage: Stage, scenario: Data, jobs: Sequence[Job]) -> dict[str, Seen]:
    """Plays the day on the real Kueue, and ends each job when it has run for its time."""
    objects, view = Objects(scenario, PREFIX), stage.observer.view(PREFIX)
    for manifest in objects.queues():
        stage.cluster.create(manifest)
    time.sleep(5)
    began, read = time.monotonic(), 0
    waiting, by_name = list(jobs), {job.name: job for job in jobs}
    seen: dict[str, Seen] = {}
    ends: dict[str, float] = {}
    left = len(jobs)
    while left:
        stage.observer.check()
        now = time.monotonic() - began
        while waiting and waiting[0].at <= now:
            job = waiting.pop(0)
            amounts = {"name": job.name, "queue": job.queue, "requests": {GPU: job.gpus}, "priority": job.priority}
            seen[job.name] = Seen(time.monotonic() - began)
            stage.cluster.create(objects.job(amounts))
        with view.changed:
            events, read = view.events[read:], len(view.events)
        for moment, sign, name, _, _ in events:
            if sign == "-":
                ends.pop(name, None)
                seen[name].preemptions += 1
                continue
            ends[name] = moment - began + by_name[name].runs
            if seen[name].waited is None:
                seen[name].waited = moment - began - seen[name].arrived
        for name in [name for name, end in ends.items() if end <= time.monotonic() - began]:
            stage.cluster.delete(objects.job_reference(name), wait=0)
            del ends[name]
            left -= 1
        time.sleep(0.02)
    return seen


class _Waits:
    """Observer of the replay."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}

    def arrived(self, job: ReplayedJob, now: int) -> None:
        self.seen[job.info.name] = Seen(now / _MILLI)

    def started(self, job: ReplayedJob, now: int) -> None:
        found = self.seen[job.info.name]
        if found.waited is None:
            found.waited = now / _MILLI - found.arrived

    def stopped(self, job: ReplayedJob, now: int, by: ReplayedJob | None) -> None:
        del now
        self.seen[job.info.name].preemptions += by is not None


def foreseen(scenario: Data, jobs: Sequence[Job], arrived: dict[str, Seen]) -> dict[str, Seen]:
    """The same in a replay, with the moments in which the jobs did arrive."""
    observer = _Waits()
    priorities: Any = scenario["priorities"]
    Replay(read_tenancy(scenario), observer).play(
        Arrival(
            round(arrived[job.name].arrived * _MILLI),
            Workload(job.name, job.queue, (PodSet({GPU: job.gpus}),), priorities[job.priority]),
            round(job.runs * _MILLI),
        )
        for job in jobs
    )
    return observer.seen


def main(
    seed: Annotated[int, typer.Option(help="Seed of the jobs.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs.")] = 120,
    seconds: Annotated[float, typer.Option(min=10, help="Length of the compressed day.")] = 240,
    out: Annotated[Path, typer.Option(help="Folder for the platform's data.")] = Path("out/day"),
) -> None:
    """Play a day of jobs on the real Kueue and in a replay, and show how much the waiting times differ."""
    with terminal.errors(), alone(out / "lock", terminal.report, "comparing a replay with Kueue"):
        scenario, drawn = day(seed, jobs, seconds)
        with (
            kueue.platform(out / "platform", terminal.report) as platform,
            kueue.stage(platform, [scenario], terminal.report, fair=False) as stage,
        ):
            terminal.progress(f"playing {jobs} jobs in {seconds:.0f} s, and until the last has ended")
            real = live(stage, scenario, drawn)
        _show(real, foreseen(scenario, drawn, real), seconds)


def _show(real: dict[str, Seen], planned: dict[str, Seen], seconds: float) -> None:
    compressed = 86_400 / seconds
    pairs = [(real[name].waited or 0.0, planned[name].waited or 0.0) for name in real]
    table = terminal.table("", "Kueue#", "replay#", title=f"{len(pairs)} jobs, a day in {seconds:.0f} s")
    waits = [sorted(waits) for waits in zip(*pairs, strict=True)]
    rows = {
        "mean wait, min of the day": [sum(found) / len(found) * compressed / 60 for found in waits],
        "median wait, min": [found[len(found) // 2] * compressed / 60 for found in waits],
        "95 % wait, min": [found[len(found) * 95 // 100] * compressed / 60 for found in waits],
        "preemptions": [float(sum(one.preemptions for one in found.values())) for found in (real, planned)],
    }
    for name, (first, second) in rows.items():
        table.add_row(name, f"{first:.1f}", f"{second:.1f}")
    terminal.out.print(table)
    apart = sorted(abs(first - second) for first, second in pairs)
    for share in (50, 90, 99):
        differs = apart[min(len(apart) - 1, len(apart) * share // 100)]
        terminal.out.print(f"{share} % of the jobs start within {differs:.1f} s of the compressed day", highlight=False)


if __name__ == "__main__":
    typer.run(main)
