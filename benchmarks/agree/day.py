"""`python -m benchmarks.agree.day`: a day of jobs, compressed to minutes, on the real Kueue and in a replay.

Jobs arrive at random moments, hold their GPUs for as long as they run, and start again from the beginning after a
preemption. Shown is by how much the waiting times differ: from a replay, and from one in which each job holds its quota
as long as it did on Kueue, which is longer than it ran by the time that the control plane takes to start and delete it.
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
    """What became of a job: seconds from its arrival to its first start, and its preemptions.

    Attributes:
        held: seconds from its last admission until its Workload was gone.
    """

    arrived: float
    waited: float | None = None
    held: float = 0.0
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
    leaving: dict[str, float] = {}
    left = len(jobs)
    while left or leaving:
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
            leaving[name] = ends.pop(name) - by_name[name].runs
            left -= 1
        for name in [name for name in leaving if name not in view.workloads]:
            seen[name].held = time.monotonic() - began - leaving.pop(name)
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


def foreseen(scenario: Data, jobs: Sequence[Job], real: dict[str, Seen], *, held: bool = False) -> dict[str, Seen]:
    """The same in a replay of jobs that arrive when they did; with `held`, for as long as they held their quota."""
    observer = _Waits()
    priorities: Any = scenario["priorities"]
    Replay(read_tenancy(scenario), observer).play(
        Arrival(
            round(real[job.name].arrived * _MILLI),
            Workload(job.name, job.queue, (PodSet({GPU: job.gpus}),), priorities[job.priority]),
            round((real[job.name].held if held else job.runs) * _MILLI),
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
        _show([real, foreseen(scenario, drawn, real), foreseen(scenario, drawn, real, held=True)], seconds)
        longer = sorted(real[job.name].held - job.runs for job in drawn)
        terminal.out.print(f"quota was held {longer[len(longer) // 2]:.1f} s longer than jobs ran", highlight=False)


def _show(played: Sequence[dict[str, Seen]], seconds: float) -> None:
    minute = 86_400 / seconds / 60
    names = list(played[0])
    waits = [[found[name].waited or 0.0 for name in names] for found in played]
    titles = ("Kueue#", "replay#", "replay, quota held as long#")
    table = terminal.table("", *titles, title=f"{len(names)} jobs, a day in {seconds:.0f} s")
    shown = [sorted(found) for found in waits]
    rows = {
        "mean wait, min of the day": [sum(found) / len(found) * minute for found in shown],
        "median wait, min": [found[len(found) // 2] * minute for found in shown],
        "95 % wait, min": [found[len(found) * 95 // 100] * minute for found in shown],
        "preemptions": [float(sum(one.preemptions for one in found.values())) for found in played],
    }
    for share in (50, 90):
        apart = [sorted(abs(one - real) for one, real in zip(found, waits[0], strict=True)) for found in waits]
        rows[f"{share} % of jobs start within, min"] = [found[len(found) * share // 100] * minute for found in apart]
    for name, figures in rows.items():
        table.add_row(name, *(f"{figure:.1f}" for figure in figures))
    terminal.out.print(table)


if __name__ == "__main__":
    typer.run(main)
