"""The events of a scenario as lines, each with what its team uses after it."""

from collections import Counter
from typing import Final

from gpu_tenancy.base.quantity import CPU, is_extended
from gpu_tenancy.base.texts import counted
from gpu_tenancy.model.plan.measures import Measure
from gpu_tenancy.model.plan.shares import Share, Tree
from gpu_tenancy.simulation.scenarios import Event, Job, JobStep

MARKS: Final = {
    "admitted": "[green]●[/green]",
    "pending": "[yellow]○[/yellow]",
    "preempted": "[red]↩[/red]",
    "evicted": "[red]↩[/red]",
    "finished": "[dim]■[/dim]",
}
"""The marks of `tenancy whatif`, and one for the end of a job."""


class EventTexts:
    """Texts of events; it follows what each team uses.

    Args:
        tree: of the stack.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._jobs: dict[str, Job] = {}
        self._used: Counter[tuple[str, Measure]] = Counter()
        self._running: set[str] = set()
        self._pending: dict[str, str] = {}

    def know(self, step: JobStep) -> None:
        """Takes the jobs that a step submits."""
        self._jobs |= {job.name: job for job in step.submit}
        self._pending = {}

    def text(self, event: Event) -> str:
        """`n1-3 admitted: namespace1 uses 15 CPUs, 5 borrowed`."""
        job = self._jobs.get(event.job)
        if event.kind == "admitted":
            self._count(job, 1)
        elif event.kind != "pending":
            self._count(job, -1)
        who = f"{event.job} ({event.team})"
        match event.kind:
            case "admitted":
                usage = self._usage(job)
                return f"{event.job} admitted{f': {usage}' if usage else f' ({event.team})'}"
            case "preempted":
                because = ": ".join(part for part in (event.reason, event.message) if part)
                by = f"{event.by} ({event.by_team})" if event.by_team else event.by
                return f"{who} preempted by {by}, {because}"
            case kind:
                because = ": ".join(part for part in (event.reason, event.message) if part)
                return f"{who} {kind}{self._because(kind, event.job, because)}"

    def _because(self, kind: str, job: str, because: str) -> str:
        """`: insufficient unused quota …`; `, as n1-3` for the same reason as another job of this step."""
        if kind == "pending" and (same := self._pending.setdefault(because, job)) != job:
            return f", as {same}"
        return f": {because}" if because else ""

    def _count(self, job: Job | None, sign: int) -> None:
        if job is None or (job.name in self._running) == (sign > 0):
            return
        (self._running.add if sign > 0 else self._running.discard)(job.name)
        self._used[job.queue, measure_of(self._tree, job)] += sign * amount_of_job(self._tree, job)

    def _usage(self, job: Job | None) -> str:
        if job is None:
            return ""
        measure = measure_of(self._tree, job)
        used = self._used[job.queue, measure]
        share = self._tree.team_shares[job.queue].get(measure.flavor, {}).get(measure.resource, Share())
        borrowed = used - share.guaranteed
        label = "" if not is_extended(measure.resource) and measure.flavor == CPU else measure.label
        text = f"{job.queue} uses {counted(used, measure.resource, label)}"
        if borrowed <= 0:
            return text
        return f"{text}, {counted(borrowed, measure.resource).partition(' ')[0]} borrowed"


def measure_of(tree: Tree, job: Job) -> Measure:
    """What is counted of a job: its GPUs, or its CPUs if it has none."""
    resource = tree.flavors[job.flavor].resource
    return Measure(job.flavor, resource if resource and job.requests.get(resource) else CPU)


def amount_of_job(tree: Tree, job: Job) -> int:
    """The amount of it for all pods of a job, in base units."""
    return job.pods * job.requests.get(measure_of(tree, job).resource, 0)
