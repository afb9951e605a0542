"""Terminal output of `tenancy local up` and `validate`: tables, and plain text where the output is not a terminal."""

from pathlib import Path
from textwrap import indent

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpu_tenancy.base.json import Json, at
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.quantity import CPU, MEMORY, amount_text
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import UNKNOWN, available, counted
from gpu_tenancy.local.summary import Summary
from gpu_tenancy.local.up import Outcome
from gpu_tenancy.model.plan.costs import pool_costs
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.resolve import resolve
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.roles import KINDS


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
        mark, style = {True: ("✓", "green"), False: ("✗", "red"), None: ("?", "yellow")}[check.holds]
        seen = f"not checked: {check.seen}" if check.holds is None else check.seen
        if check.message and check.holds is False:  # the other messages of controllers are in the report
            seen = f"{seen}: {check.message}"
        console.print(f"[{style}]{mark}[/{style}] {escape(check.promise)}\n[dim]{escape(indent(seen, '  '))}[/dim]")
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
    """The number of pods without a node, and why; empty if all have one."""
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
    allocatable = "GPUs per node" if with_gpus else "allocatable per node"
    prices = "per node#", "min nodes#", "max nodes#"
    heads = "pool", "machine", "flavor", allocatable, "nodes#", "capacity type", *prices
    drop = "capacity type", "per node", "machine", "min nodes", allocatable
    listed = table(*heads, title="Node pools, USD per hour", drop=drop)
    for cost in pool_costs(environment):
        supply, pool = supplies[cost.pool], stack.pools.get(cost.pool)
        if supply is None:
            continue
        if with_gpus:
            per_node = f"{supply.gpus_per_node} {supply.resource}" if supply.resource else ""
        else:
            per_node = ", ".join(counted(supply.node[resource], resource) for resource in (CPU, MEMORY))
        listed.add_row(
            cost.pool,
            (pool.machine or "custom") if pool else "worker cluster",
            supply.flavor,
            per_node,
            f"{supply.min_nodes}" if supply.min_nodes == cost.max_nodes else f"{supply.min_nodes} to {cost.max_nodes}",
            supply.capacity,
            *(UNKNOWN if usd is None else f"{usd:,.2f}" for usd in (cost.node, cost.floor, cost.ceiling)),
        )
    return listed


def promises(summary: Summary) -> Table:
    """Table of each team's guarantee, limit and usage, as read from the API server."""
    counts = available(flavor.resource for flavor in summary.supply)
    heads = "team", "flavor", "scheduler", "guaranteed#", "limit#", "used#", "flavor in use#", "lends"
    listed = table(*heads, drop=("scheduler", "lends", "flavor in use"), title=f"{counts}, read from the API server")
    supply = {flavor.flavor: flavor for flavor in summary.supply}
    for holding in summary.holdings:
        flavor = supply[holding.flavor]
        listed.add_row(
            *holding.cells,
            f"{amount_text(flavor.resource, flavor.used)} of {amount_text(flavor.resource, flavor.capacity)}",
            "yes" if holding.lends else "no",
        )
    return listed


def next_steps(result: Outcome, folder: Path) -> tuple[str, ...]:
    """The arguments of `usage`, `why` and `fit` that show something of a deployed stack.

    `usage` and `why` are about a pending workload, if there is one. `fit` is about `job.yaml` in the folder, which is
    written: a copy of a Job of the team, with another name.
    """
    teams = resolve(result.preview.stack).teams.items()
    declared = [(team, name) for team, section in teams for name in (*section.training, *section.serving)]
    if not declared:
        return ("usage",)
    pending = [workload for workload in result.summary.pending if workload in declared]
    team, workload = (*pending, *declared)[0]
    steps = [f"usage {team}", f"why {team}/{workload}"]
    for item in result.preview.objects:
        if (item.api_version, item.kind) == KINDS["job"].api and item.namespace == team:
            file, labels = folder / "job.yaml", at(item.shown, "metadata", "labels")
            metadata: Json = {"name": "example", "namespace": team, "labels": labels}
            write_text(file, yaml.safe_dump({**item.shown, "metadata": metadata}, sort_keys=False))
            return (*steps, f"fit {team} -f {file}")
    return tuple(steps)
