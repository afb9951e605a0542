"""What was played, in a terminal: a table with a bar for each team and flavor, who waits, who gave way and why."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpu_tenancy.console.whatif.telling import Played, Turn, turns
from gpu_tenancy.model.whatif import GaveWay, Held, meaning, supply

_WIDTH: Final = 40
_NAMED: Final = 8


def show(console: Console, played: Played) -> None:
    """Prints a scene's state, or a story step by step with the state at its end."""
    if played.story:
        for each in turns(played.moments):
            _turn(console, each)
        console.print("[bold]at the end[/bold]", highlight=False)
    else:
        console.print(f"[bold]{escape(played.last.label)}[/bold]", highlight=False)
    console.print(_table(played), highlight=False)
    if not played.story:
        _evicted(console, played.last.evicted)
        _restless(console, played.last.restless)
    said = dict.fromkeys(each.reason for _, each in played.evicted())
    for reason in said:
        console.print(f"[dim]{reason}: {escape(meaning(reason))}[/dim]", highlight=False)
    console.print()


def _table(played: Played) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("team", "flavor"):
        table.add_column(heading)
    for heading in ("guaranteed", "limit", "runs", "waits"):
        table.add_column(heading, justify="right")
    table.add_column("")
    largest = max((supply(played.tree, name) for name in played.tree.flavors), default=1) or 1
    for each in played.held:
        numbers = (each.guaranteed, each.limit, each.runs, each.waits)
        table.add_row(each.team, each.flavor, *map(str, numbers), _bar(each, largest))
    return table


def _bar(held: Held, largest: int) -> str:
    """█ of its own, ▒ borrowed, · guaranteed or reachable and not in use."""
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
    """A step: only what is other than before it."""
    now = turn.moment
    counts = f"{len(now.running)} run, {len(now.waiting)} wait"
    console.print(f"[bold]{escape(now.label)}[/bold] [dim]{counts}[/dim]", highlight=False)
    starts = [f"{each.workload} runs with {each.gpus} {each.flavor} ({each.team})" for each in turn.starts]
    waits = [f"{each.workload} waits for {each.gpus} ({each.team}): {each.why}" for each in turn.waits]
    _lines(console, "[green]●[/green]", starts, "run")
    _lines(console, "[yellow]○[/yellow]", waits, "wait")
    _evicted(console, now.evicted)
    _restless(console, now.restless)


def _evicted(console: Console, evicted: Iterable[GaveWay]) -> None:
    lines = [f"{each.workload} gave way to {each.by} ({each.by_team}): {each.reason}" for each in evicted]
    counted = Counter(lines)
    said = [line if times == 1 else f"{line}, {times} times" for line, times in counted.items()]
    _lines(console, "[red]↩[/red]", said, "gave way")


def _restless(console: Console, queues: tuple[str, ...]) -> None:
    if queues:
        listed = escape(", ".join(queues))
        console.print(f"[red]in {listed} jobs evict one another for ever; this is one state of many[/red]")


def _lines(console: Console, mark: str, lines: list[str], word: str) -> None:
    for line in lines[:_NAMED]:
        console.print(f"{mark} {escape(line)}", highlight=False)
    if len(lines) > _NAMED:
        console.print(f"[dim]and {len(lines) - _NAMED} more {word}[/dim]", highlight=False)
