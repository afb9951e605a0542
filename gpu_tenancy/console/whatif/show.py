"""A simulated scenario in a terminal: a table with a bar for each team and flavor, pending jobs and evictions."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpu_tenancy.console.terminal import Column, table
from gpu_tenancy.console.texts import plural
from gpu_tenancy.console.whatif.narrative import Played, Turn, livelock, turns
from gpu_tenancy.model.whatif import GaveWay, Held, Running, Waiting, meaning, supply

_WIDTH: Final = 40
_NAMED: Final = 8
_COLUMNS: Final[tuple[Column, ...]] = (
    ("team", "left"),
    ("flavor", "left"),
    ("guaranteed", "right"),
    ("limit", "right"),
    ("used", "right"),
    ("pending", "right"),
    ("", "left"),
)


def show(console: Console, played: Played) -> None:
    """Prints the state, or the steps and the state at the end."""
    if played.story:
        for each in turns(played.moments):
            _turn(console, each)
        console.print("[bold]state at the end[/bold]", highlight=False)
    else:
        console.print(f"[bold]{escape(played.last.label)}[/bold]", highlight=False)
    console.print(_table(played), highlight=False)
    if not played.story:
        _evicted(console, played.last.evicted)
        _restless(console, played.last.restless)
    for reason in dict.fromkeys(eviction.reason for _, eviction in played.evicted()):
        console.print(f"[dim]{reason}: {escape(meaning(reason))}[/dim]", highlight=False)
    console.print()


def _table(played: Played) -> Table:
    listed = table(_COLUMNS)
    largest = max((supply(played.tree, name) for name in played.tree.flavors), default=1) or 1
    for each in played.held:
        numbers = (each.guaranteed, each.limit, each.runs, each.waits)
        listed.add_row(each.team, each.flavor, *map(str, numbers), _bar(each, largest))
    return listed


def _bar(held: Held, largest: int) -> str:
    """█ used of the guarantee, ▒ borrowed, · not used up to the limit."""
    scale = _WIDTH / largest
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
    starts = [f"{job.workload} ({job.team}) running with {_gpus(job)}" for job in turn.starts]
    waits = [f"{job.workload} ({job.team}) pending for {_gpus(job)}: {job.why}" for job in turn.waits]
    _lines(console, "[green]●[/green]", starts, "running")
    _lines(console, "[yellow]○[/yellow]", waits, "pending")
    _evicted(console, now.evicted)
    _restless(console, now.restless)


def _gpus(job: Running | Waiting) -> str:
    return plural(job.gpus, f"{job.flavor} GPU") if job.flavor else f"{job.gpus} GPUs"


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
