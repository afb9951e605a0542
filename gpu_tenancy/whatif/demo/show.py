"""A scenario in a terminal: each event as it happens, a table after each step, and all steps at the end."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from gpu_tenancy.base.texts import plural
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.scenarios import Event, JobStep, StepResult, meaning
from gpu_tenancy.whatif.demo.events import MARKS, EventTexts
from gpu_tenancy.whatif.demo.tables import step_table, summary_table, summary_title, teams_of
from gpu_tenancy.whatif.narrative import livelock


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
