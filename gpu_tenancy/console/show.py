"""What the command prints: tables for people, plain text where nobody looks at a terminal."""

from collections.abc import Iterable
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpu_tenancy.console.proofs import Proof
from gpu_tenancy.console.summary import Summary
from gpu_tenancy.console.up import Outcome
from gpu_tenancy.model.catalogue import price_table
from gpu_tenancy.model.plan.costs import pool_costs
from gpu_tenancy.model.plan.gpus import machine_of
from gpu_tenancy.model.plan.supply import pool_supply
from gpu_tenancy.model.spec import Stack


def outcome(console: Console, result: Outcome) -> None:
    """The end of an `up`: what changed, what there is, and whether the promises hold."""
    console.print()
    console.print(f"[bold]{result.preview.name}[/bold] on the embedded platform, {result.server}")
    console.print(f"{changes(result)} [dim]({result.objects} objects, by {result.engine})[/dim]")
    console.print()
    console.print(promises(result.summary))
    if result.summary.waiting:
        waiting = "1 pod waits" if result.summary.waiting == 1 else f"{result.summary.waiting} pods wait"
        console.print(f"[dim]{waiting} for GPUs on a node; where Kueue runs, the queue holds them back[/dim]")
    console.print()
    for proof in result.proofs:
        console.print(_line(proof))
    for pod in result.summary.astray:
        console.print(f"[red]✗[/red] {pod} runs on a node of another model than it asked for")


def changes(result: Outcome) -> str:
    """`objects: 70 created, 2 pruned; nodes: 25 created`, or `no changes`."""
    parts = {"objects": result.changes, "nodes": result.nodes}
    said = {what: ", ".join(f"{count} {action}" for action, count in counts.items()) for what, counts in parts.items()}
    return "; ".join(f"{what}: {words}" for what, words in said.items() if words) or "no changes"


def pools(stack: Stack) -> Table:
    """Each pool's machines and what they cost: from the nodes that are always there to the most there may be."""
    table = Table(box=None, pad_edge=False, header_style="dim", title="Node pools, US dollars an hour")
    table.title_justify = "left"
    for heading, justify in _POOL_COLUMNS:
        table.add_column(heading, justify=justify)
    costs = pool_costs(stack)
    for cost in costs:
        supply, pool = pool_supply(stack, cost.pool), stack.pools[cost.pool]
        if supply is None:
            continue
        table.add_row(
            cost.pool,
            pool.machine or "(described)",
            supply.flavor,
            f"{supply.gpus_per_node} {supply.resource}" if supply.resource else "",
            f"{cost.least}" if cost.least == cost.most else f"{cost.least} to {cost.most}",
            supply.capacity,
            _dollars(cost.node),
            _dollars(cost.floor),
            _dollars(cost.ceiling),
        )
    return table


_POOL_COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("pool", "left"),
    ("machine", "left"),
    ("flavor", "left"),
    ("each node", "left"),
    ("nodes", "right"),
    ("bought", "left"),
    ("a node", "right"),
    ("least", "right"),
    ("most", "right"),
)


def price_note(stack: Stack) -> str:
    """Where the prices come from: the tables of the pools' clouds, with their dates; the stack's own come first."""
    machines = [machine for pool in stack.pools.values() if (machine := machine_of(stack, pool))]
    tables = [price_table(cloud) for cloud in dict.fromkeys(machine.cloud for machine in machines if machine.cloud)]
    listed = "; ".join(f"{table.region}, {table.source}, {table.date}" for table in tables)
    own = "the stack's own prices first, then " if stack.prices else ""
    return f"prices: {own}{listed}; machines of the stack's own count as unknown without a price" if listed else ""


def _dollars(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"


def promises(summary: Summary) -> Table:
    """Each team's guarantee, limit and use of each flavor, as the API server has them."""
    table = Table(box=None, pad_edge=False, header_style="dim", title="GPUs, read back from the API server")
    table.title_justify = "left"
    for heading, justify in _COLUMNS:
        table.add_column(heading, justify=justify)
    supply = {each.flavor: each for each in summary.supply}
    for holding in summary.holdings:
        flavor = supply[holding.flavor]
        table.add_row(
            holding.team,
            holding.flavor,
            holding.queue,
            str(holding.guaranteed),
            str(holding.limit),
            str(holding.used),
            f"{flavor.used} of {flavor.gpus}",
            "yes" if holding.lends else "no",
        )
    return table


_COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("team", "left"),
    ("flavor", "left"),
    ("scheduler", "left"),
    ("guaranteed", "right"),
    ("limit", "right"),
    ("used", "right"),
    ("flavor in use", "right"),
    ("lends", "left"),
)


def _line(proof: Proof) -> str:
    mark = "[green]✓[/green]" if proof.holds else "[red]✗[/red]"
    return f"{mark} {escape(proof.promise)}\n  [dim]{escape(proof.seen)}[/dim]"


def problems(console: Console, found: Iterable[object], where: str) -> None:
    """Everything that is wrong, each in a line that an editor can jump to."""
    # Without the escape a value such as [cpu] would be taken for markup, and be gone.
    listed = [escape(str(problem)) for problem in found]
    for line in listed:
        place, separator, rest = line.partition(": ")
        console.print(f"[bold]{place}[/bold]{separator}{rest}" if separator else line, highlight=False)
    console.print(
        f"[red]{len(listed)} {'problem' if len(listed) == 1 else 'problems'}[/red] in {where}; nothing was touched"
    )
