"""A simulated scenario in a terminal: a table with a bar for each team and flavor, pending jobs and evictions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from rich.console import Console
from rich.markup import escape

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.listing import PlainTable
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.base.terminal import table
from gpu_tenancy.model.plan.shares import Measure, supply_of
from gpu_tenancy.simulation.scenarios import GaveWay, Held, every_measure, meaning
from gpu_tenancy.whatif.narrative import Played, Turn, job_amount, livelock, turns

_WIDTH: Final = 40
"""Cells of the longest bar; half of it on a terminal with at most `_NARROW` columns."""
_NARROW: Final = 100
_NAMED: Final = 8


def show(console: Console, played: Played) -> None:
    """Prints the state, or the steps and the state at the end."""
    if played.scenario:
        for turn in turns(played.moments):
            _turn(console, turn)
        console.print("[bold]state at the end[/bold]", highlight=False)
    else:
        console.print(f"[bold]{escape(played.last.label)}[/bold]", highlight=False)
    console.print(
        _table(played, _WIDTH // 2 if console.is_terminal and console.width <= _NARROW else _WIDTH), highlight=False
    )
    if not played.scenario:
        _evicted(console, played.last.evicted)
        _restless(console, played.last.restless)
    for reason in dict.fromkeys(eviction.reason for _, eviction in played.evicted()):
        console.print(f"[dim]{reason}: {escape(meaning(reason))}[/dim]", highlight=False)
    console.print()


def _table(played: Played, width: int) -> PlainTable:
    listed = table("team", "flavor", "guaranteed#", "limit#", "used#", "pending#", "", drop=("", "limit"))
    capacities = {measure: supply_of(played.tree, measure) for measure in every_measure(played.tree)}
    largest = {
        measure.label: _largest(capacities, measure.resource) or capacity or 1
        for measure, capacity in capacities.items()
    }
    for held in played.held:
        amounts = (amount_text(held.resource, n) for n in (held.guaranteed, held.limit, held.runs, held.waits))
        listed.add_row(held.team, held.flavor, *amounts, _bar(held, width / largest[held.flavor]))
    return listed


def _largest(capacities: Mapping[Measure, int], resource: str) -> int:
    """The largest flavor, to which the bars of all flavors have the same scale: GPUs, CPUs and memory each have one."""
    same = is_extended(resource)
    listed = (
        capacity
        for measure, capacity in capacities.items()
        if (is_extended(measure.resource) if same else measure.resource == resource)
    )
    return max(listed, default=0)


def _bar(held: Held, scale: float) -> str:
    """█ used of the guarantee, ▒ borrowed, · not used up to the limit."""
    parts = (("█", held.own), ("▒", held.borrowed), ("·", held.limit - held.runs))
    ends, drawn, text = 0, 0, ""
    for mark, amount in parts:
        ends += amount
        upto = round(ends * scale)
        text += mark * max(0, upto - drawn)
        drawn = max(drawn, upto)
    return text


def _turn(console: Console, turn: Turn) -> None:
    """Prints what changes in a step."""
    now = turn.moment
    counts = f"{len(now.running)} running, {len(now.waiting)} pending"
    console.print(f"[bold]{escape(now.label)}[/bold] [dim]{counts}[/dim]", highlight=False)
    starts = [f"{job.workload} ({job.team}) running with {job_amount(job)}" for job in turn.starts]
    waits = [f"{job.workload} ({job.team}) pending for {job_amount(job)}: {job.why}" for job in turn.waits]
    _lines(console, "[green]●[/green]", starts, "running")
    _lines(console, "[yellow]○[/yellow]", waits, "pending")
    _evicted(console, now.evicted)
    _restless(console, now.restless)


def _evicted(console: Console, evicted: Iterable[GaveWay]) -> None:
    counted = Counter(f"{job.workload} preempted by {job.by} ({job.by_team}): {job.reason}" for job in evicted)
    lines = [line if times == 1 else f"{line}, {times} times" for line, times in counted.items()]
    _lines(console, "[red]↩[/red]", lines, "preempted")


def _restless(console: Console, queues: tuple[str, ...]) -> None:
    if queues:
        console.print(f"[red]{escape(livelock(queues))}[/red]")


def _lines(console: Console, mark: str, lines: list[str], word: str) -> None:
    for line in lines[:_NAMED]:
        console.print(f"{mark} {escape(line)}", highlight=False)
    if len(lines) > _NAMED:
        console.print(f"[dim]and {len(lines) - _NAMED} more {word}[/dim]", highlight=False)
