"""`tenancy local demo`: plays a scenario of jobs; in a terminal event by event, with a table after each step."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from rich.console import Console
from rich.markup import escape

from gpu_tenancy.base.quantity import CPU, is_extended
from gpu_tenancy.base.texts import counted, plural
from gpu_tenancy.model.plan.shares import Measure, Share, Tree
from gpu_tenancy.simulation.scenarios import Event, Job, JobStep, Player, SimulatedPlayer, StepResult, meaning, unheard
from gpu_tenancy.whatif.demo_tables import step_table, summary_table, summary_title, teams_of
from gpu_tenancy.whatif.narrative import livelock

MARKS: Final = {
    "admitted": "[green]●[/green]",
    "pending": "[yellow]○[/yellow]",
    "preempted": "[red]↩[/red]",
    "evicted": "[red]↩[/red]",
    "finished": "[dim]■[/dim]",
}
"""The marks of `tenancy whatif`, and one for the end of a job."""


class Shown(Protocol):
    """Shows a scenario while it is played."""

    def begin(self, step: JobStep) -> None:
        """A step begins."""
        ...

    def event(self, event: Event) -> None:
        """Something happened to a job."""
        ...

    def end(self, result: StepResult) -> None:
        """A step has ended: nothing changes any more."""
        ...


def play_demo(tree: Tree, scenario: Iterable[JobStep], shown: Shown, live: Player | None = None) -> list[StepResult]:
    """Plays the steps one after another.

    Args:
        tree: of the stack.
        scenario: the steps.
        shown: gets the events of the cluster if there is one, else those of the simulation.
        live: plays the steps on a cluster; None for the simulation alone.

    Returns:
        The result of each step.
    """
    simulated = SimulatedPlayer(tree)
    results: list[StepResult] = []
    for step in scenario:
        shown.begin(step)
        foreseen = simulated.play(step, shown.event if live is None else unheard)
        results.append(StepResult(step, foreseen, None if live is None else live.play(step, shown.event)))
        shown.end(results[-1])
    return results


class Display:
    """Prints a scenario while it is played.

    Args:
        console: where to print.
        tree: of the stack.
        scenario: all steps, for tables with all of its teams.
    """

    def __init__(self, console: Console, tree: Tree, scenario: Sequence[JobStep]) -> None:
        self._console = console
        self._tree = tree
        self._scenario = scenario
        self._texts = EventTexts(tree)
        self._reasons: dict[str, None] = {}

    def begin(self, step: JobStep) -> None:
        """Prints the title of a step."""
        self._texts.know(step)
        self._console.print(f"[bold]{escape(step.label)}[/bold]", highlight=False)

    def event(self, event: Event) -> None:
        """Prints an event."""
        if event.kind == "preempted":
            self._reasons[event.reason] = None
        self._console.print(f"{MARKS[event.kind]} {escape(self._texts.text(event))}", highlight=False)

    def end(self, result: StepResult) -> None:
        """Prints what the teams use after a step."""
        self._console.print()
        self._console.print(step_table(self._tree, teams_of(self._scenario), result), highlight=False)
        if result.shown.restless:
            self._console.print(f"[red]{escape(livelock(result.shown.restless))}[/red]", highlight=False)
        self._console.print()

    def summary(self, results: Sequence[StepResult], left_out: Sequence[str]) -> None:
        """Prints all steps, whether they came as foreseen, and the meaning of Kueue's reasons.

        Args:
            results: of all steps.
            left_out: what the stack uses and the simulation does not cover.
        """
        # Not the title of the table, which would be wrapped to the width of the table.
        self._console.print(f"[bold]{escape(summary_title(self._scenario))}[/bold]", highlight=False)
        self._console.print(summary_table(self._scenario, results), highlight=False)
        if verdict := _verdict(results):
            self._console.print(verdict, highlight=False)
        self._console.print()
        for reason in self._reasons:
            self._console.print(f"[dim]{escape(reason)}: {escape(meaning(reason))}[/dim]", highlight=False)
        for part in left_out:
            self._console.print(f"[dim]used by this stack but not simulated: {escape(part)}[/dim]", highlight=False)


def _verdict(results: Sequence[StepResult]) -> str:
    """Whether a cluster did what the simulation foresaw; empty without one."""
    played = [result for result in results if result.live]
    if not played:
        return ""
    other = [result for result in played if not result.agrees]
    if not other:
        return f"[green]✓[/green] as foreseen in {plural(len(played), 'step')}"
    agreed = len(played) - len(other)
    return f"[red]✗[/red] as foreseen in {agreed} of {plural(len(played), 'step')}"


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
