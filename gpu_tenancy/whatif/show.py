"""A timeline, or a replay, in a terminal."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape

from gpu_tenancy.base.output import PlainTable
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import plural
from gpu_tenancy.model.plan.shares import Tree, supply_of
from gpu_tenancy.pages.tables import Table
from gpu_tenancy.simulation.scenarios import Event, Held, JobStep, StepResult, every_measure, holdings, meaning
from gpu_tenancy.whatif import replay
from gpu_tenancy.whatif.narrative import EventTexts, livelock
from gpu_tenancy.whatif.tables import of_scenario, steps_table, teams_of, usage_table
from gpu_tenancy.whatif.timeline import PlayedStep, Timeline

_WIDTH: Final = 20
"""Cells of the longest bar."""
_NAMED: Final = 8
"""Events of a kind that are printed of a step."""
_MARKS: Final = {
    "admitted": "[green]●[/green]",
    "pending": "[yellow]○[/yellow]",
    "preempted": "[red]↩[/red]",
    "evicted": "[red]↩[/red]",
    "finished": "[dim]■[/dim]",
}
_WORDS: Final = "preempted"
"""The column of words, which may wrap."""
_STYLES: Final = {"bad": "red", "notice": "yellow", "good": "green"}


class Display:
    """Prints a scenario while it is played, with a table after each step.

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
        self._kinds: Counter[str] = Counter()

    def begin(self, step: JobStep) -> None:
        """Prints the title of a step."""
        self._texts.know(step)
        self._kinds.clear()
        self._console.print(f"[bold]{escape(step.label)}[/bold]", highlight=False)

    def event(self, event: Event) -> None:
        """Prints an event; of many of one kind, the first."""
        self._kinds[event.kind] += 1
        text = self._texts.text(event)
        if self._kinds[event.kind] <= _NAMED:
            self._console.print(f"{_MARKS[event.kind]} {escape(text)}", highlight=False)

    def end(self, result: StepResult) -> None:
        """Prints what the teams use after a step."""
        for kind, count in self._kinds.items():
            if count > _NAMED:
                self._console.print(f"[dim]and {count - _NAMED} more {kind}[/dim]", highlight=False)
        self._console.print()
        held = of_scenario(holdings(self._tree, result.shown), teams_of(self._scenario))
        _usage(self._console, self._tree, held, result, scenario=True)
        self._console.print()

    def summary(self, steps: Sequence[PlayedStep], left_out: Iterable[str]) -> None:
        """Prints all steps, whether they came as foreseen, and the meaning of Kueue's reasons.

        Args:
            steps: all steps.
            left_out: features of the stack that the simulation does not cover.
        """
        results = [step.result for step in steps]
        found = steps_table(self._scenario, results)
        # Not the title of the table, which would be wrapped to the width of the table.
        self._console.print(f"[bold]{escape(found.title)}[/bold]", highlight=False)
        self._console.print(_printed(found), highlight=False)
        if verdict := _verdict(results):
            self._console.print(verdict, highlight=False)
        self._console.print()
        _notes(self._console, steps, left_out)


def show_load(console: Console, timeline: Timeline) -> None:
    """Prints the state under a load on all queues."""
    console.print(f"[bold]{escape(timeline.title)}[/bold]", highlight=False)
    (step,) = timeline.steps
    _usage(console, timeline.tree, timeline.held, step.result, scenario=False)
    console.print()
    _notes(console, timeline.steps, timeline.left_out)


def show_replay(console: Console, replayed: replay.Replayed) -> None:
    """Prints who waits how long, who is preempted, who gains and who loses."""
    style = _STYLES[replay.tone(replayed)]
    console.print(f"[bold {style}]{escape(replay.headline(replayed))}[/]", highlight=False)
    for sentence in replay.sentences(replayed):
        console.print(escape(sentence), highlight=False)
    console.print()
    found = replay.teams_table(replayed)
    console.print(_printed(found, drop=("longest wait", "never start", "GPU-hours")), highlight=False)
    _notes(console, (), replayed.not_simulated)


def _usage(console: Console, tree: Tree, held: Sequence[Held], result: StepResult, *, scenario: bool) -> None:
    longest: dict[str, int] = {}
    for measure in every_measure(tree):
        kind = _kind(measure.resource)
        longest[kind] = max(longest.get(kind, 1), supply_of(tree, measure))
    bars = [_bar(usage, _WIDTH / longest[_kind(usage.resource)]) for usage in held]
    found = usage_table(held, result, scenario=scenario)
    console.print(_printed(found, drop=("", "limit", "guaranteed", "borrowed"), bars=bars), highlight=False)
    if restless := result.shown.restless:
        console.print(f"[red]{escape(livelock(restless))}[/red]", highlight=False)


def _kind(resource: str) -> str:
    """GPUs of all flavors have one scale, CPUs and memory each another."""
    return "" if is_extended(resource) else resource


def _bar(held: Held, scale: float) -> str:
    """█ used of the guarantee, ▒ borrowed, · not used up to the limit."""
    text, end = "", 0
    for mark, amount in (("█", held.own), ("▒", held.borrowed), ("·", held.limit - held.runs)):
        end += amount
        text += mark * max(0, round(end * scale) - len(text))
    return text


def _printed(found: Table, drop: Sequence[str] = (), bars: Sequence[str] | None = None) -> PlainTable:
    """A table of the page for the terminal, with a bar after the numbers."""
    marks = {True: "#", False: ""}
    heads = [column.title + ("~" if column.title == _WORDS else marks[column.number]) for column in found.columns]
    at_bar = len(heads) - (heads[-1] == f"{_WORDS}~")
    if bars is not None:
        heads.insert(at_bar, "")
    listed = table(*heads, drop=drop)
    for at, line in enumerate(found.rows):
        cells = [f"{cell.text} (was {cell.was})" if cell.was else cell.text for cell in line.cells]
        if bars is not None:
            cells.insert(at_bar, bars[at])
        listed.add_row(*cells)
    return listed


def _verdict(results: Sequence[StepResult]) -> str:
    """Whether a cluster did what the simulation foresaw; empty without one."""
    played = [result for result in results if result.live]
    if not played:
        return ""
    agreed = sum(1 for result in played if result.agrees)
    if agreed == len(played):
        return f"[green]✓[/green] as foreseen in {plural(len(played), 'step')}"
    return f"[red]✗[/red] as foreseen in {agreed} of {plural(len(played), 'step')}"


def _notes(console: Console, steps: Iterable[PlayedStep], left_out: Iterable[str]) -> None:
    """The meaning of Kueue's reasons, and what is not simulated."""
    for reason in dict.fromkeys(job.reason for step in steps for job in step.moment.evicted):
        console.print(f"[dim]{escape(reason)}: {escape(meaning(reason))}[/dim]", highlight=False)
    for part in left_out:
        console.print(f"[dim]used by this stack but not simulated: {escape(part)}[/dim]", highlight=False)
