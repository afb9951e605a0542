"""The tables of a review, made from the stack summary."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from gpu_tenancy.base.quantity import CPU, MEMORY, amount_text, format_bytes, format_cpu, is_extended
from gpu_tenancy.base.texts import DASH, MINUS, available, first_names, hourly, share
from gpu_tenancy.base.usd import Usd
from gpu_tenancy.model.outlook import Access, Group, Serving, StackOutlook, Supply, TeamOutlook, WayIn
from gpu_tenancy.model.outlook.data import DataAccess
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
        text, guaranteed, limit = partial(amount_text, holding.resource), holding.guaranteed, holding.limit
        cohort = team.cohort if holding.scheduler == "Kueue" else DASH
        amounts = text(guaranteed), holding.bound, text(limit), text(limit - guaranteed)
        yield team.name, holding.flavor, holding.scheduler, cohort, *amounts, "yes" if holding.lends else "no"

    return Table("promises", "Guarantees and limits", *_of_holdings(outlook, heads, cells), keys=3)


def _preemption(outlook: StackOutlook) -> Table:
    heads = "team", "flavor", "when", "by queue", "up to#", "its pods stop"

    def cells(team: TeamOutlook, holding: Holding) -> Iterator[tuple[str, ...]]:
        for queues, when, amount in holding.preemptors:
            by = first_names(queues, _QUEUES) or OWN_QUEUE
            yield team.name, holding.flavor, when, by, amount_text(holding.resource, amount), outlook.grace

    return Table("preemption", "What can be preempted", *_of_holdings(outlook, heads, cells), keys=3)


def _groups(outlook: StackOutlook) -> Table:
    def text(flavor: str, amount: int | None) -> str:
        return NO_BOUND if amount is None else amount_text(outlook.resources[flavor], amount)

    rows = [
        row(group.name, flavor, group.parent or DASH, *(text(flavor, amount) for amount in shares))
        for group in downwards(outlook)
        for flavor, shares in group.shares.items()
        if any(shares)
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
    flavor = "flavor", "model", "resource", "GPUs#" if with_gpus else "capacity#"
    guarantees = "guaranteed#", "guaranteed, % of min#", "guaranteed, % of max#", "unassigned#"
    limits = "sum of limits#", "limits, % of min#", "limits, % of max#"
    heads = columns(*flavor, *guarantees, *limits, f"price per {'GPU' if with_gpus else 'CPU'}-hour#")
    return Table("supply", "Guarantees and capacity", heads, tuple(_flavor(supply) for supply in outlook.supply))


def _flavor(supply: Supply) -> Row:
    minimum, maximum = supply.capacity.minimum, supply.capacity.maximum
    text, per_price = partial(amount_text, supply.resource), 1000 if supply.resource == CPU else 1
    flavor = supply.flavor, supply.product or DASH, supply.resource, span(supply.capacity, supply.resource)
    shares = share(supply.guaranteed, minimum), share(supply.guaranteed, maximum)
    guarantees = text(supply.guaranteed), *shares, text(maximum - supply.guaranteed)
    limits = text(supply.limits), share(supply.limits, minimum), share(supply.limits, maximum)
    # Of a CPU of a node without GPUs; memory is included in the CPUs' price.
    price = DASH if supply.resource == MEMORY else _hour(supply.price and supply.price * per_price)
    return row(*flavor, *guarantees, *limits, price)


def _pools(outlook: StackOutlook) -> Table:
    with_gpus = any(pool.gpus for pool in outlook.pools) or not outlook.pools
    rows: list[Row] = []
    for pool in outlook.pools:
        per_node, resource = (pool.gpus, pool.resource) if with_gpus else (pool.node[CPU], CPU)
        whole = Span(pool.nodes.minimum * per_node, pool.nodes.maximum * per_node)
        capacity = span(whole, resource) if per_node else DASH
        cells = pool.name, pool.flavor, pool.machine or "custom", pool.capacity, span(pool.nodes), capacity
        rows.append(row(*cells, _hour(pool.node_price)))
    counted = "GPUs#" if with_gpus else "CPUs#"
    heads = columns("pool", "flavor", "machine", "capacity type", "nodes#", counted, "price per node-hour#")
    return Table("pools", "Node pools", heads, tuple(rows))


def _hour(amount: float | None) -> Cell:
    return Cell(hourly(amount), tone="notice" if amount is None else None)


def money(amount: Usd) -> Cell:
    """US dollars per month; a sum without the price of a part is highlighted."""
    return Cell(str(amount), tone="notice" if amount.unpriced else None)


def _busy(outlook: StackOutlook) -> Table:
    heads = "team", "flavor", "scheduler", "guaranteed#", "with up to", "everyone busy#", "alone#", "reclaims"

    def cells(team: TeamOutlook, holding: Holding) -> Iterator[tuple[str, ...]]:
        text, busy = partial(amount_text, holding.resource), span(holding.busy, holding.resource)
        amounts = text(holding.guaranteed), holding.bound, busy, text(holding.alone)
        yield team.name, holding.flavor, holding.scheduler, *amounts, holding.back or DASH

    title = f"{available(outlook.resources.values())} available to each team"
    return Table("teams", title, *_of_holdings(outlook, heads, cells), keys=3)


def _team_costs(outlook: StackOutlook, costs: _Costs) -> Table:
    rows: list[Row] = []
    for team in outlook.teams:
        own = costs.cells(team.cost, [team.name])
        cells = own if team.holdings or not team.shares else (*[f"paid by {team.queue}"] * 2, *own[2:])
        rows.append(row(team.name, team.cost_center, *cells, team=team.name))
    names = _names(outlook.teams)
    others = [name for name in costs.used.teams if name not in names] if costs.used else []
    rows += [row(name, "not in the stack", *costs.cells(NOTHING, [name])) for name in others]
    rows.append(row("all teams", "", *costs.cells(total(outlook), [*names, *others]), sums=True))
    return Table("cost-by-team", "Monthly cost by team", columns("team", "cost center", *costs.heads), tuple(rows))


def _names(teams: Iterable[TeamOutlook]) -> list[str]:
    return [team.name for team in teams]


def _center_costs(outlook: StackOutlook, costs: _Costs) -> Table:
    rows = [
        row(name, *costs.cells(cost, _names(team for team in outlook.teams if team.cost_center == name)))
        for name, cost in sorted(outlook.cost_centers.items())
    ]
    return Table("cost-by-centre", "Monthly cost by cost center", columns("cost center", *costs.heads), tuple(rows))


def _bill(outlook: StackOutlook) -> Table:
    rows: list[Row] = []
    for line in outlook.bill.lines:
        region = line.region or ("price of the stack" if line.source == OWN else DASH)
        rows.append(row(line.title, line.number, *map(money, line.costs), region))
    if rows:
        rows.append(row("total", "", *(money(figure.usd) for figure in outlook.bill.figures), "", sums=True))
    heads = columns("part", "number#", "always billed#", "guarantees#", "limits#", "region of the price")
    return Table("bill", "Monthly bill", heads, tuple(rows))


def _of_teams(name: str, title: str, heads: tuple[str, ...], cells: Iterable[tuple[object, ...]], keys: int) -> Table:
    """A table whose rows begin with the name of their team."""
    return Table(name, title, columns(*heads), tuple(row(*own, team=str(own[0])) for own in cells), keys)


def _serving(outlook: StackOutlook) -> Table:
    def cells(server: Serving) -> tuple[object, ...]:
        headroom = server.limit - server.peak
        left = Cell(str(headroom).replace("-", MINUS), tone="bad" if headroom < 0 else None)
        amounts = span(server.replicas), server.surge, server.peak, server.limit, left
        return server.team, server.name, server.flavor, server.gpus, *amounts

    heads = "team", "server", "flavor", "GPUs per replica#", "replicas#", "surge#", "peak#", "limit#", "headroom#"
    return _of_teams("serving", "Serving", heads, map(cells, outlook.serving), 2)


def ways_in(outlook: StackOutlook) -> Table:
    """Hosts by which clients outside of the cluster reach servers."""

    def cells(way: WayIn) -> tuple[object, ...]:
        reach = Cell(way.reach, tone="bad" if way.reach == "public" and not way.key else None)
        need = "token of the notebook" if way.notebook else f"key in Secret {way.key}" if way.key else "no key"
        servers = (f"notebook {name}" if way.notebook else f"{name} {part} %" for name, part in way.servers)
        return way.team, way.host, reach, way.gateway, ", ".join(way.paths), need, ", ".join(servers)

    heads = "team", "host", "reach", "gateway", "paths", "requests need", "servers"
    return _of_teams("ways-in", "Reached from outside of the cluster", heads, map(cells, outlook.ways_in), 2)


def _access(outlook: StackOutlook) -> Table:
    def cells(access: Access) -> tuple[object, ...]:
        clients, egress = _CLIENTS.get(access.clients, access.clients), ", ".join(access.egress) or "none"
        datasets = ", ".join(f"{name} ({bucket})" for name, bucket in sorted(access.datasets.items()))
        return access.team, access.owner, access.pod_security, clients, egress, datasets or "none"

    heads = "team", "owner", "pod security", "servers reachable from", "HTTPS egress", "datasets"
    return _of_teams("access", "Access", heads, map(cells, outlook.access), 1)


def _data(outlook: StackOutlook, *, stored: bool) -> Table:
    def cells(access: DataAccess) -> tuple[object, ...]:
        place = f"{access.place}; snapshots {access.snapshots}, cost unknown" if access.snapshots else access.place
        size = format_bytes(access.size) if access.size else DASH
        cost = DASH if access.kind == "dataset" else money(Usd.of(1, access.cost, access.name))
        paid = (cost,) if stored else ()
        return access.team, access.name, place, access.right, size, *paid, ", ".join(access.mounted_by) or DASH

    costs = ("monthly cost#",) if stored else ()
    heads = "team", "claim", "bucket or class", "right", "size#", *costs, "mounted by"
    return _of_teams("data", "Data", heads, map(cells, outlook.data), 2)


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
    cells = (
        (one.team, one.name, one.source, ", ".join(one.users) or "none", one.reach, one.right or "none needed")
        for one in outlook.secrets
    )
    heads = "team", "Secret", "source", "users", "when a value changes", "right in the cloud"
    return _of_teams("secrets", "Secrets", heads, cells, 2)
