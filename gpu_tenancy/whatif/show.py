"""A timeline or a replay in a terminal."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console
from rich.markup import escape

from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.base.texts import plural
from gpu_tenancy.model.plan.shares import Tree, supply_of
from gpu_tenancy.pages.tables import Cell, Column, printed
from gpu_tenancy.simulation.player import Event, StepResult
from gpu_tenancy.simulation.stage import Held, JobStep, every_measure, holdings, meaning
from gpu_tenancy.whatif import replay
from gpu_tenancy.whatif.narrative import EventTexts, livelock, of_scenario, steps_table, teams_of, usage_table
from gpu_tenancy.whatif.timeline import Timeline

_WIDTH: Final = 20  # cells of the longest bar
_NAMED: Final = 8  # events of a kind that are printed for a step
_MARKS: Final = {
    "admitted": "[green]●[/green]",
    "pending": "[yellow]○[/yellow]",
    "preempted": "[red]↩[/red]",
    "evicted": "[red]↩[/red]",
    "finished": "[dim]■[/dim]",
}
_WORDS: Final = "preempted"  # the column that may wrap
_STYLES: Final = {"bad": "red", "notice": "yellow", "good": "green"}


class Display:
    """Prints a scenario while it is played, with a table of its teams after each step."""

    def __init__(self, console: Console, tree: Tree, scenario: Sequence[JobStep]) -> None:
        self._console = console
        self._tree = tree
        self._scenario = scenario
        self._texts = EventTexts(tree)
        self._kinds: Counter[str] = Counter()

    def begin(self, step: JobStep) -> None:
        """Prints the title of a step."""
        self._texts.know(step)
        self._kinds.clear()
        self._console.print(f"[bold]{escape(step.label)}[/bold]", highlight=False)

    def event(self, event: Event) -> None:
        """Prints an event; of a kind with many, the first."""
        self._kinds[event.kind] += 1
        text = self._texts.text(event)
        if self._kinds[event.kind] <= _NAMED:
            self._console.print(f"{_MARKS[event.kind]} {escape(text)}", highlight=False)

    def end(self, result: StepResult) -> None:
        """Prints the usage of the teams after a step."""
        for kind, count in self._kinds.items():
            if count > _NAMED:
                self._console.print(f"[dim]and {count - _NAMED} more {kind}[/dim]", highlight=False)
        self._console.print()
        held = of_scenario(holdings(self._tree, result.shown), teams_of(self._scenario))
        _usage(self._console, self._tree, held, result, scenario=True)
        self._console.print()

    def summary(self, steps: Sequence[StepResult], left_out: Iterable[str]) -> None:
        """Prints all steps, whether they match the simulation, Kueue's reasons with their meaning, and the limits."""
        found = steps_table(self._scenario, steps)
        # Not the title of the table, which would be wrapped to the width of the table.
        self._console.print(f"[bold]{escape(found.title)}[/bold]", highlight=False)
        self._console.print(printed(found, title=False), highlight=False)
        if played := [step for step in steps if step.live]:
            agreed, steps_text = sum(1 for step in played if step.agrees), plural(len(played), "step")
            verdict = f"[green]✓[/green] as foreseen in {steps_text}"
            if agreed < len(played):
                verdict = f"[red]✗[/red] as foreseen in {agreed} of {steps_text}"
            self._console.print(verdict, highlight=False)
        self._console.print()
        _notes(self._console, steps, left_out)


def show_load(console: Console, timeline: Timeline) -> None:
    """Prints the state under a load on all queues."""
    console.print(f"[bold]{escape(timeline.title)}[/bold]", highlight=False)
    for note in timeline.notes:
        console.print(escape(note), highlight=False)
    (step,) = timeline.steps
    _usage(console, timeline.tree, timeline.held, step, scenario=False)
    console.print()
    _notes(console, timeline.steps, timeline.left_out)


def show_replay(console: Console, replayed: replay.Replayed) -> None:
    """Prints waits, preemptions, gains and losses."""
    style = _STYLES[replay.tone(replayed)]
    console.print(f"[bold {style}]{escape(replay.headline(replayed))}[/]", highlight=False)
    for sentence in replay.sentences(replayed):
        console.print(escape(sentence), highlight=False)
    console.print()
    found = replay.teams_table(replayed)
    console.print(printed(found, title=False, drop=("longest wait", "never start", "GPU-hours")), highlight=False)
    _notes(console, (), replayed.not_simulated)


def _usage(console: Console, tree: Tree, held: Sequence[Held], result: StepResult, *, scenario: bool) -> None:
    longest: dict[str, int] = {}
    for measure in every_measure(tree):
        kind = _kind(measure.resource)
        longest[kind] = max(longest.get(kind, 1), supply_of(tree, measure))
    found = usage_table(held, result, scenario=scenario)
    at = len(found.columns) - (found.columns[-1].title == _WORDS)  # The bar is after the numbers.
    rows = tuple(
        replace(line, cells=(*line.cells[:at], Cell(_bar(usage, longest)), *line.cells[at:]))
        for line, usage in zip(found.rows, held, strict=True)
    )
    found = replace(found, columns=(*found.columns[:at], Column(""), *found.columns[at:]), rows=rows)
    drop = ("", "limit", "guaranteed", "borrowed")
    console.print(printed(found, title=False, drop=drop, wrap=_WORDS), highlight=False)
    if restless := result.shown.restless:
        console.print(f"[red]{escape(livelock(restless))}[/red]", highlight=False)


def _kind(resource: str) -> str:
    """GPUs of all flavors have one scale, CPU and memory one each."""
    return "" if is_extended(resource) else resource


def _bar(held: Held, longest: Mapping[str, int]) -> str:
    """█ used of the guarantee, ▒ borrowed, · unused up to the limit."""
    text, end, scale = "", 0, _WIDTH / longest[_kind(held.resource)]
    for mark, amount in (("█", held.own), ("▒", held.borrowed), ("·", held.limit - held.runs)):
        end += amount
        text += mark * max(0, round(end * scale) - len(text))
    return text


def _notes(console: Console, steps: Iterable[StepResult], left_out: Iterable[str]) -> None:
    for reason in dict.fromkeys(job.reason for step in steps for job in step.shown.evicted):
        console.print(f"[dim]{escape(reason)}: {escape(meaning(reason))}[/dim]", highlight=False)
    for part in left_out:
        console.print(f"[dim]used by this stack but not simulated: {escape(part)}[/dim]", highlight=False)
