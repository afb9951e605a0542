"""A simulated moment in a terminal: a table, a bar for each team and flavor, and who waits or gave way."""

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from model.plan.shares import Share, Tree
from model.whatif import Moment

_WIDTH: Final = 40
_NAMED: Final = 8


def moment(console: Console, tree: Tree, seen: Moment, wanted: Mapping[tuple[str, str], int] | None) -> None:
    """Prints one moment.

    Args:
        console: where.
        tree: of the stack.
        seen: the moment.
        wanted: GPUs that each team asked for; None where single jobs matter, which are then named.
    """
    console.print(f"[bold]{escape(seen.label)}[/bold]", highlight=False)
    console.print(_table(tree, seen, wanted), highlight=False)
    if wanted is None:
        _jobs(console, seen)
    for gone, by in seen.evicted[:_NAMED]:
        console.print(f"[yellow]↩[/yellow] {escape(gone)} gave way to {escape(by)}", highlight=False)
    if len(seen.evicted) > _NAMED:
        console.print(f"[dim]and {len(seen.evicted) - _NAMED} more gave way[/dim]", highlight=False)
    if seen.restless:
        queues = ", ".join(seen.restless)
        console.print(f"[red]in {escape(queues)} jobs evict one another for ever; this is one state of many[/red]")
    console.print()


def _table(tree: Tree, seen: Moment, wanted: Mapping[tuple[str, str], int] | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("team", "flavor"):
        table.add_column(heading)
    for heading in ("guaranteed", "limit", "runs", "waits"):
        table.add_column(heading, justify="right")
    table.add_column("")
    largest = max((_supply(tree, name) for name in tree.flavors), default=1)
    waiting = _waiting(seen)
    for team, shares in tree.team_shares.items():
        for name, flavor_shares in shares.items():
            resource = tree.flavors[name].resource
            share = flavor_shares.get(resource) if resource else None
            if share is None:
                continue
            runs = seen.gpus(team, name)
            waits = str(wanted.get((team, name), 0) - runs) if wanted is not None else waiting.pop(team, "")
            sure, limit = str(share.guaranteed), str(share.most)
            table.add_row(team, name, sure, limit, str(runs), waits, _bar(share, runs, largest or 1))
    return table


def _waiting(seen: Moment) -> dict[str, str]:
    """GPUs that each team's jobs wait for, whatever the flavor: shown once for a team."""
    found: dict[str, int] = {}
    for each in seen.waiting:
        found[each.team] = found.get(each.team, 0) + each.gpus
    return {team: str(gpus) for team, gpus in found.items()}


def _supply(tree: Tree, flavor: str) -> int:
    return tree.supply(flavor).get(tree.flavors[flavor].resource or "", 0)


def _bar(share: Share, runs: int, largest: int) -> str:
    """█ of its own, ▒ borrowed, · guaranteed or reachable and not in use."""
    own = min(runs, share.guaranteed)
    scale = _WIDTH / largest
    parts = (("█", own), ("▒", runs - own), ("·", share.most - runs))
    ends, drawn, text = 0, 0, ""
    for mark, amount in parts:
        ends += amount
        upto = round(ends * scale)
        text += mark * max(0, upto - drawn)
        drawn = max(drawn, upto)
    return text


def _jobs(console: Console, seen: Moment) -> None:
    for each in seen.running:
        words = f"{each.workload} runs with {each.gpus} {each.flavor} ({each.team})"
        console.print(f"[green]●[/green] {escape(words)}", highlight=False)
    for waits in seen.waiting:
        words = f"{waits.workload} waits for {waits.gpus} ({waits.team}): {waits.why}"
        console.print(f"[yellow]○[/yellow] {escape(words)}", highlight=False)
