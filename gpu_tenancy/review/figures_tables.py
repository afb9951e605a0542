"""The tables of a review, made from the stack summary."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpu_tenancy.base.quantity import CPU, MEMORY, amount_text, format_bytes, format_cpu, is_extended
from gpu_tenancy.base.texts import DASH, MINUS, available, first_names, hourly, share
from gpu_tenancy.base.usd import Usd
from gpu_tenancy.model.outlook import Group, StackOutlook, Supply, TeamOutlook
from gpu_tenancy.model.outlook.shares import NOTHING, OWN_QUEUE, Cost, Holding, Span
from gpu_tenancy.model.plan.costs import OWN
from gpu_tenancy.pages.tables import Cell, Column, Row, Table, columns, compared, row
from gpu_tenancy.review.figures import sharing, span, work
from gpu_tenancy.review.review import Review, Used
from gpu_tenancy.review.verdict import total

NO_BOUND = "no limit"
_QUEUES = 3  # names of preempting queues in a row
_CLIENTS = {"cluster": "any pod in the cluster", "team": "pods of the team"}


@dataclass(frozen=True, slots=True)
class _Costs:
    stored: bool
    used: Used | None

    @property
    def heads(self) -> tuple[str, ...]:
        used = (f"used in {self.used.month}#",) if self.used else ()
        return ("guaranteed#", "at limit#", *(("storage#",) if self.stored else ()), *used)

    def cells(self, cost: Cost, teams: Iterable[str]) -> tuple[Cell, ...]:
        used = (money(self.used.of(teams)),) if self.used else ()
        return (money(cost.guaranteed), money(cost.limit), *((money(cost.storage),) if self.stored else ()), *used)


def tables(review: Review) -> dict[str, Table]:
    """All tables by name, with the values at the base."""
    before = review.comparison.before if review.comparison else None
    data = (*review.now.data, *(before.data if before else ()))
    shown = _Costs(any(access.kind == "storage" for access in data), review.used)
    old = {table.name: table for table in _all(before, shown)} if before else {}
    found = {table.name: compared(table, old.get(table.name)) for table in _all(review.now, shown)}
    return found | ({"work": work(review.effect)} if review.effect else {})


def _all(outlook: StackOutlook, costs: _Costs) -> Iterator[Table]:
    yield _promises(outlook)
    yield _preemption(outlook)
    yield _groups(outlook)
    yield _supply(outlook)
    yield _pools(outlook)
    yield _busy(outlook)
    yield _bill(outlook)
    yield _team_costs(outlook, costs)
    yield _center_costs(outlook, costs)
    yield _serving(outlook)
    if outlook.ways_in:
        yield ways_in(outlook)
    yield _access(outlook)
    yield _data(outlook, stored=costs.stored)
    yield _caches(outlook)
    yield _people(outlook)
    yield _secrets(outlook)


def _of_holdings(
    outlook: StackOutlook, heads: tuple[str, ...], cells: Callable[[TeamOutlook, Holding], Iterable[tuple[str, ...]]]
) -> tuple[tuple[Column, ...], tuple[Row, ...]]:
    """Columns and rows by team, flavor and scheduler; a team without a queue has one row, which names the queue."""
    rows = (
        row(*found, team=team.name)
        for team in outlook.teams
        for found in (*sharing(team, len(heads)), *(line for holding in team.holdings for line in cells(team, holding)))
    )
    return columns(*heads), tuple(rows)


def _promises(outlook: StackOutlook) -> Table:
    heads = "team", "flavor", "scheduler", "cohort", "guaranteed#", "with up to", "limit#", "may borrow#", "lends"

    def cells(team: TeamOutlook, holding: Holding) -> Iterator[tuple[str, ...]]:
        guaranteed, limit = holding.guaranteed, holding.limit
        yield (
            team.name,
            holding.flavor,
            holding.scheduler,
            team.cohort if holding.scheduler == "Kueue" else DASH,
            amount_text(holding.resource, guaranteed),
            holding.bound,
            *(amount_text(holding.resource, amount) for amount in (limit, limit - guaranteed)),
            "yes" if holding.lends else "no",
        )

    return Table("promises", "Guarantees and limits", *_of_holdings(outlook, heads, cells), keys=3)


def _preemption(outlook: StackOutlook) -> Table:
    heads = "team", "flavor", "when", "by queue", "up to#", "its pods stop"

    def cells(team: TeamOutlook, holding: Holding) -> Iterator[tuple[str, ...]]:
        for queues, when, amount in holding.preemptors:
            by = first_names(queues, _QUEUES) or OWN_QUEUE
            yield team.name, holding.flavor, when, by, amount_text(holding.resource, amount), outlook.grace

    return Table("preemption", "What can be preempted", *_of_holdings(outlook, heads, cells), keys=3)


def _groups(outlook: StackOutlook) -> Table:
    rows = [
        row(
            group.name,
            flavor,
            group.parent or DASH,
            amount_text(outlook.resources[flavor], own_),
            amount_text(outlook.resources[flavor], guaranteed),
            NO_BOUND if limit is None else amount_text(outlook.resources[flavor], limit),
        )
        for group in downwards(outlook)
        for flavor, (own_, guaranteed, limit) in group.shares.items()
        if own_ or guaranteed or limit
    ]
    heads = columns("cohort", "flavor", "parent", "own quota#", "guaranteed#", "limit#")
    return Table("groups", "Cohorts", heads, tuple(rows), keys=2)


def downwards(outlook: StackOutlook) -> Iterator[Group]:
    """The cohorts, parents before children."""
    known = {group.name: group for group in outlook.groups}
    todo = [outlook.root]
    while todo:
        group = known[todo.pop(0)]
        yield group
        todo = [*group.groups, *todo]


def _supply(outlook: StackOutlook) -> Table:
    with_gpus = not outlook.supply or any(is_extended(supply.resource) for supply in outlook.supply)
    heads = columns(
        "flavor",
        "model",
        "resource",
        "GPUs#" if with_gpus else "capacity#",
        "guaranteed#",
        "guaranteed, % of min#",
        "guaranteed, % of max#",
        "unassigned#",
        "sum of limits#",
        "limits, % of min#",
        "limits, % of max#",
        "price per GPU-hour#" if with_gpus else "price per CPU-hour#",
    )
    return Table("supply", "Guarantees and capacity", heads, tuple(_flavor(supply) for supply in outlook.supply))


def _flavor(supply: Supply) -> Row:
    minimum, maximum = supply.capacity.minimum, supply.capacity.maximum
    over, per_price = supply.guaranteed > maximum, 1000 if supply.resource == CPU else 1
    return row(
        supply.flavor,
        supply.product or DASH,
        supply.resource,
        span(supply.capacity, supply.resource),
        Cell(amount_text(supply.resource, supply.guaranteed), tone="bad" if over else None),
        share(supply.guaranteed, minimum),
        Cell(share(supply.guaranteed, maximum), tone="bad" if over else None),
        amount_text(supply.resource, max(0, maximum - supply.guaranteed)),
        amount_text(supply.resource, supply.limits),
        share(supply.limits, minimum),
        share(supply.limits, maximum),
        # Of a CPU of a node without GPUs; memory is included in the CPUs' price.
        DASH if supply.resource == MEMORY else _hour(supply.price and supply.price * per_price),
    )


def _pools(outlook: StackOutlook) -> Table:
    with_gpus = any(pool.gpus for pool in outlook.pools) or not outlook.pools
    rows: list[Row] = []
    for pool in outlook.pools:
        per_node, resource = (pool.gpus, pool.resource) if with_gpus else (pool.node[CPU], CPU)
        capacity = Span(pool.nodes.minimum * per_node, pool.nodes.maximum * per_node)
        rows.append(
            row(
                pool.name,
                pool.flavor,
                pool.machine or "custom",
                pool.capacity,
                span(pool.nodes),
                span(capacity, resource) if per_node else DASH,
                _hour(pool.node_price),
            )
        )
    heads = columns(
        "pool",
        "flavor",
        "machine",
        "capacity type",
        "nodes#",
        "GPUs#" if with_gpus else "CPUs#",
        "price per node-hour#",
    )
    return Table("pools", "Node pools", heads, tuple(rows))


def _hour(amount: float | None) -> Cell:
    return Cell(hourly(amount), tone="notice" if amount is None else None)


def money(amount: Usd) -> Cell:
    """US dollars per month; a sum without the price of a part is highlighted."""
    return Cell(str(amount), tone="notice" if amount.unpriced else None)


def _busy(outlook: StackOutlook) -> Table:
    heads = "team", "flavor", "scheduler", "guaranteed#", "with up to", "everyone busy#", "alone#", "reclaims"

    def cells(team: TeamOutlook, holding: Holding) -> Iterator[tuple[str, ...]]:
        yield (
            team.name,
            holding.flavor,
            holding.scheduler,
            amount_text(holding.resource, holding.guaranteed),
            holding.bound,
            span(holding.busy, holding.resource),
            amount_text(holding.resource, holding.alone),
            holding.back or DASH,
        )

    title = f"{available(outlook.resources.values())} available to each team"
    return Table("teams", title, *_of_holdings(outlook, heads, cells), keys=3)


def _team_costs(outlook: StackOutlook, costs: _Costs) -> Table:
    rows = [
        row(team.name, team.cost_center, *costs.cells(team.cost, [team.name]), team=team.name)
        if team.holdings or not team.shares
        else row(
            team.name,
            team.cost_center,
            *[f"paid by {team.queue}"] * 2,
            *costs.cells(team.cost, [team.name])[2:],
            team=team.name,
        )
        for team in outlook.teams
    ]
    names = _names(outlook.teams)
    others = [name for name in costs.used.teams if name not in names] if costs.used else []
    rows += [row(name, "not in the stack", *costs.cells(NOTHING, [name])) for name in others]
    rows.append(row("all teams", "", *costs.cells(total(outlook), [*names, *others]), sums=True))
    heads = columns("team", "cost center", *costs.heads)
    return Table("cost-by-team", "Monthly cost by team", heads, tuple(rows))


def _names(teams: Iterable[TeamOutlook]) -> list[str]:
    return [team.name for team in teams]


def _center_costs(outlook: StackOutlook, costs: _Costs) -> Table:
    rows = [
        row(name, *costs.cells(cost, _names(team for team in outlook.teams if team.cost_center == name)))
        for name, cost in sorted(outlook.cost_centers.items())
    ]
    return Table("cost-by-centre", "Monthly cost by cost center", columns("cost center", *costs.heads), tuple(rows))


def _bill(outlook: StackOutlook) -> Table:
    lines, figures = outlook.bill.lines, outlook.bill.figures
    rows = [
        row(
            line.title,
            line.number,
            *map(money, line.costs),
            line.region or ("price of the stack" if line.source == OWN else DASH),
        )
        for line in lines
    ]
    if rows:
        rows.append(row("total", "", *(money(figure.usd) for figure in figures), "", sums=True))
    heads = columns("part", "number#", "always billed#", "guarantees#", "limits#", "region of the price")
    return Table("bill", "Monthly bill", heads, tuple(rows))


def _serving(outlook: StackOutlook) -> Table:
    rows = (
        row(
            server.team,
            server.name,
            server.flavor,
            server.gpus,
            span(server.replicas),
            server.surge,
            server.peak,
            server.limit,
            Cell(str(headroom).replace("-", MINUS), tone="bad" if headroom < 0 else None),
            team=server.team,
        )
        for server in outlook.serving
        for headroom in (server.limit - server.peak,)
    )
    heads = columns(
        "team", "server", "flavor", "GPUs per replica#", "replicas#", "surge#", "peak#", "limit#", "headroom#"
    )
    return Table("serving", "Serving", heads, tuple(rows), keys=2)


def ways_in(outlook: StackOutlook) -> Table:
    """Hosts by which clients outside of the cluster reach servers."""
    rows = [
        row(
            way.team,
            way.host,
            Cell(way.reach, tone="bad" if way.reach == "public" and not way.key else None),
            way.gateway,
            ", ".join(way.paths),
            "token of the notebook" if way.notebook else f"key in Secret {way.key}" if way.key else "no key",
            ", ".join(f"notebook {name}" if way.notebook else f"{name} {part} %" for name, part in way.servers),
            team=way.team,
        )
        for way in outlook.ways_in
    ]
    heads = columns("team", "host", "reach", "gateway", "paths", "requests need", "servers")
    return Table("ways-in", "Reached from outside of the cluster", heads, tuple(rows), keys=2)


def _access(outlook: StackOutlook) -> Table:
    rows = [
        row(
            access.team,
            access.owner,
            access.pod_security,
            _CLIENTS.get(access.clients, access.clients),
            ", ".join(access.egress) or "none",
            ", ".join(f"{name} ({bucket})" for name, bucket in sorted(access.datasets.items())) or "none",
            team=access.team,
        )
        for access in outlook.access
    ]
    heads = columns("team", "owner", "pod security", "servers reachable from", "HTTPS egress", "datasets")
    return Table("access", "Access", heads, tuple(rows))


def _data(outlook: StackOutlook, *, stored: bool) -> Table:
    rows = [
        row(
            access.team,
            access.name,
            f"{access.place}; snapshots {access.snapshots}, cost unknown" if access.snapshots else access.place,
            access.right,
            format_bytes(access.size) if access.size else DASH,
            *([DASH if access.kind == "dataset" else money(Usd.of(1, access.cost, access.name))] if stored else []),
            ", ".join(access.mounted_by) or DASH,
            team=access.team,
        )
        for access in outlook.data
    ]
    costs = ("monthly cost#",) if stored else ()
    heads = columns("team", "claim", "bucket or class", "right", "size#", *costs, "mounted by")
    return Table("data", "Data", heads, tuple(rows), keys=2)


def _caches(outlook: StackOutlook) -> Table:
    rows = [
        row(
            cache.dataset,
            cache.runtime,
            cache.flavor,
            str(cache.nodes),
            f"{format_bytes(cache.size)} {cache.medium}{', loaded once created' if cache.warm else ''}",
            f"{format_cpu(cache.cpu)} ({cache.of_cpu:.0%})",
            f"{format_bytes(cache.memory)} ({cache.of_memory:.0%})",
            f"{format_cpu(cache.mount_cpu)} CPU, {format_bytes(cache.mount_memory)}",
        )
        for cache in outlook.caches
    ]
    heads = columns(
        "dataset", "runtime", "flavor", "nodes#", "cache", "CPUs of the flavor#", "memory of the flavor#", "each mount"
    )
    return Table("caches", "Caches of datasets", heads, tuple(rows))


def _people(outlook: StackOutlook) -> Table:
    rows = [
        row(members.team or "whole cluster", members.role, ", ".join(members.people), team=members.team)
        for members in outlook.people
    ]
    return Table("people", "People", columns("team", "role", "people"), tuple(rows), keys=2)


def _secrets(outlook: StackOutlook) -> Table:
    """Never the values."""
    rows = [
        row(
            secret.team,
            secret.name,
            secret.source,
            ", ".join(secret.users) or "none",
            secret.reach,
            secret.right or "none needed",
            team=secret.team,
        )
        for secret in outlook.secrets
    ]
    heads = columns("team", "Secret", "source", "users", "when a value changes", "right in the cloud")
    return Table("secrets", "Secrets", heads, tuple(rows), keys=2)
