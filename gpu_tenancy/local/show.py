"""Terminal output of `tenancy local up` and `validate`: tables, and plain text where the output is not a terminal."""

from textwrap import indent

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpu_tenancy.base.quantity import CPU, MEMORY, amount_text
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import available, counted
from gpu_tenancy.local.checks import Check
from gpu_tenancy.local.summary import Summary
from gpu_tenancy.local.up import Outcome
from gpu_tenancy.model.plan.costs import pool_costs
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.pools import PoolSupply
from gpu_tenancy.model.spec import Stack


def outcome(console: Console, result: Outcome) -> None:
    """Prints the result of `tenancy local up`: changes, GPUs by team, and checks."""
    console.print()
    console.print(f"[bold]{escape(result.preview.name)}[/bold] on the embedded platform, {escape(result.server)}")
    console.print(f"{escape(changes(result))} [dim]({result.objects} objects, by {result.engine})[/dim]")
    console.print()
    console.print(promises(result.summary))
    if unscheduled := waiting(result.summary):
        console.print(f"[dim]{unscheduled}[/dim]")
    console.print()
    for check in result.checks:
        _print_check(console, check)
    verdict = result.verdict
    style = {"good": "green", "notice": "yellow", "bad": "red"}[verdict.tone]
    console.print(f"\n[bold {style}]{verdict.title}[/bold {style}]")
    for reason in verdict.reasons:
        console.print(f"  {escape(reason)}", highlight=False)


def changes(result: Outcome) -> str:
    """`objects: 70 created, 2 pruned; nodes: 25 created`, or `no changes`."""
    parts = {"objects": result.changes, "nodes": result.nodes}
    listed = {
        what: ", ".join(f"{count} {action}" for action, count in counts.items()) for what, counts in parts.items()
    }
    return "; ".join(f"{what}: {counts}" for what, counts in listed.items() if counts) or "no changes"


def waiting(summary: Summary) -> str:
    """How many pods have no node, and why; empty if all have one."""
    if not summary.waiting:
        return ""
    pods = "1 pod is" if summary.waiting == 1 else f"{summary.waiting} pods are"
    free = available(supply.resource for supply in summary.supply)
    return f"{pods} unschedulable: no node has enough free {free} (with Kueue running, they stay pending in the queue)"


def pools(stack: Stack) -> Table:
    """Table of node pools with prices, from the minimum to the maximum number of nodes."""
    environment = Environment(stack)
    supplies = {name: pool.supply for name, pool in environment.all_pools.items()}
    with_gpus = any(supply and supply.resource for supply in supplies.values())
    per_node = "GPUs per node" if with_gpus else "allocatable per node"
    prices = "per node#", "min nodes#", "max nodes#"
    heads = "pool", "machine", "flavor", per_node, "nodes#", "capacity type", *prices
    listed = table(
        *heads, title="Node pools, USD per hour", drop=("capacity type", "per node", "machine", "min nodes", per_node)
    )
    for cost in pool_costs(environment):
        supply, pool = supplies[cost.pool], stack.pools.get(cost.pool)
        if supply is None:
            continue
        listed.add_row(
            cost.pool,
            (pool.machine or "custom") if pool else "worker cluster",
            supply.flavor,
            _per_node(supply, with_gpus=with_gpus),
            f"{cost.min_nodes}" if cost.min_nodes == cost.max_nodes else f"{cost.min_nodes} to {cost.max_nodes}",
            supply.capacity,
            _dollars(cost.node),
            _dollars(cost.floor),
            _dollars(cost.ceiling),
        )
    return listed


def _per_node(supply: PoolSupply, *, with_gpus: bool) -> str:
    """`8 nvidia.com/gpu`; in a stack without GPUs `31 CPUs, 116Gi memory`."""
    if with_gpus:
        return f"{supply.gpus_per_node} {supply.resource}" if supply.resource else ""
    return ", ".join(counted(supply.node[resource], resource) for resource in (CPU, MEMORY))


def _dollars(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"


def promises(summary: Summary) -> Table:
    """Table of each team's guarantee, limit and usage, as read from the API server."""
    counts = available(flavor.resource for flavor in summary.supply)
    listed = table(
        "team",
        "flavor",
        "scheduler",
        "guaranteed#",
        "limit#",
        "used#",
        "flavor in use#",
        "lends",
        drop=("scheduler", "lends", "flavor in use"),
        title=f"{counts}, read from the API server",
    )
    supply = {flavor.flavor: flavor for flavor in summary.supply}
    for holding in summary.holdings:
        flavor = supply[holding.flavor]
        listed.add_row(
            holding.team,
            holding.flavor,
            holding.scheduler,
            amount_text(holding.resource, holding.guaranteed),
            amount_text(holding.resource, holding.limit),
            amount_text(holding.resource, holding.used),
            f"{amount_text(flavor.resource, flavor.used)} of {amount_text(flavor.resource, flavor.capacity)}",
            "yes" if holding.lends else "no",
        )
    return listed


def _print_check(console: Console, check: Check) -> None:
    """The message of a controller is in the report; here only that of a failed check."""
    mark, style = {True: ("✓", "green"), False: ("✗", "red"), None: ("?", "yellow")}[check.holds]
    seen = f"not checked: {check.seen}" if check.holds is None else check.seen
    if check.message and check.holds is False:
        seen = f"{seen}: {check.message}"
    console.print(f"[{style}]{mark}[/{style}] {escape(check.promise)}\n[dim]{escape(indent(seen, '  '))}[/dim]")
