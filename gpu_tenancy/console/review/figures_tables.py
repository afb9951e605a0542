"""The tables of the report, made of what a stack comes to."""

from collections.abc import Iterator

from gpu_tenancy.console.review.figures import (
    DASH,
    MINUS,
    Cell,
    Row,
    Table,
    columns,
    compared,
    hourly,
    monthly,
    own,
    row,
    share,
    span,
)
from gpu_tenancy.console.review.review import Review
from gpu_tenancy.console.review.verdict import total
from gpu_tenancy.model.outlook import Group, Serving, StackOutlook, Supply, TeamOutlook
from gpu_tenancy.model.outlook.costs import HOURS
from gpu_tenancy.model.outlook.shares import Span

NO_BOUND = "no bound"
_CLIENTS = {"cluster": "any pod of the cluster", "team": "its own pods"}


def tables(review: Review) -> dict[str, Table]:
    """All tables by their names, each cell beside what it was at the base."""
    before = review.comparison.before if review.comparison else None
    old = {table.name: table for table in _all(before)} if before else {}
    return {table.name: compared(table, old.get(table.name)) for table in _all(review.now)}


def _all(outlook: StackOutlook) -> Iterator[Table]:
    yield _promises(outlook)
    yield _groups(outlook)
    yield _supply(outlook)
    yield _pools(outlook)
    yield _busy(outlook)
    yield _team_costs(outlook)
    yield _center_costs(outlook)
    yield _serving(outlook)
    yield _access(outlook)


def scheduled_by(team: TeamOutlook, scheduler: str) -> str:
    """Who admits a team's work, and through whose queue."""
    if scheduler == "Volcano" or team.queue == team.name:
        return scheduler
    return f"{scheduler}, queue of {team.queue}"


def _promises(outlook: StackOutlook) -> Table:
    rows = [
        row(
            team.name,
            each.flavor,
            scheduled_by(team, each.scheduler),
            team.cohort if each.scheduler == "Kueue" else DASH,
            each.guaranteed,
            each.limit,
            each.limit - each.guaranteed,
            "yes" if each.lends else "no",
            team=team.name,
        )
        for team in outlook.teams
        for each in team.holdings
    ]
    heads = columns("team", "flavor", "by", "group", "guaranteed#", "limit#", "may borrow#", "lends")
    return Table("promises", "Promises", heads, tuple(rows), keys=3)


def _groups(outlook: StackOutlook) -> Table:
    rows = [
        row(
            group.name,
            flavor,
            group.parent or DASH,
            own_,
            guaranteed,
            NO_BOUND if limit is None else limit,
        )
        for group in downwards(outlook)
        for flavor, (own_, guaranteed, limit) in group.shares.items()
        if own_ or guaranteed or limit
    ]
    heads = columns("group", "flavor", "in", "its own#", "guaranteed#", "limit#")
    return Table("groups", "Groups", heads, tuple(rows), keys=2)


def downwards(outlook: StackOutlook) -> Iterator[Group]:
    """The groups, the root first and each before those in it."""
    known = {group.name: group for group in outlook.groups}
    todo = [outlook.root]
    while todo:
        group = known[todo.pop(0)]
        yield group
        todo = [*group.groups, *todo]


def _supply(outlook: StackOutlook) -> Table:
    heads = columns(
        "flavor",
        "model",
        "asked for as",
        "GPUs#",
        "guaranteed#",
        "of least#",
        "of most#",
        "nobody's#",
        "limits#",
        "limits of least#",
        "limits of most#",
        "a GPU-hour#",
    )
    return Table("supply", "Promises against supply", heads, tuple(_flavor(each) for each in outlook.supply))


def _flavor(each: Supply) -> Row:
    least, most = each.gpus.least, each.gpus.most
    over = each.guaranteed > most
    return row(
        each.flavor,
        each.product or DASH,
        each.resource,
        span(each.gpus),
        Cell(str(each.guaranteed), tone="bad" if over else None),
        share(each.guaranteed, least),
        Cell(share(each.guaranteed, most), tone="bad" if over else None),
        max(0, most - each.guaranteed),
        each.limits,
        share(each.limits, least),
        share(each.limits, most),
        _hour(each.price),
    )


def _pools(outlook: StackOutlook) -> Table:
    rows = [
        row(
            pool.name,
            pool.flavor,
            pool.machine or "described in the stack",
            pool.capacity,
            span(pool.nodes),
            span(Span(pool.nodes.least * pool.gpus, pool.nodes.most * pool.gpus)) if pool.gpus else DASH,
            _hour(pool.node_price),
            _month(pool.floor),
            _month(pool.ceiling),
        )
        for pool in outlook.pools
    ]
    heads = columns(
        "pool",
        "flavor",
        "machine",
        "bought",
        "nodes#",
        "GPUs#",
        "a node-hour#",
        "a month, least nodes#",
        "a month, most nodes#",
    )
    return Table("pools", "Node pools", heads, tuple(rows))


def _hour(amount: float | None) -> Cell:
    return Cell(hourly(amount), tone="notice" if amount is None else None)


def _month(hour: float | None) -> Cell:
    return money(None if hour is None else hour * HOURS)


def money(amount: float | None) -> Cell:
    """Dollars a month; what is unknown stands out."""
    return Cell(monthly(amount), tone="notice" if amount is None else None)


def _busy(outlook: StackOutlook) -> Table:
    rows = [
        row(
            team.name,
            each.flavor,
            scheduled_by(team, each.scheduler),
            each.guaranteed,
            span(each.busy),
            each.alone,
            each.back or DASH,
            team=team.name,
        )
        for team in outlook.teams
        for each in team.holdings
    ]
    heads = columns("team", "flavor", "by", "guaranteed#", "all busy#", "alone#", "gets its own back")
    return Table("teams", "What each team gets", heads, tuple(rows), keys=3)


def _team_costs(outlook: StackOutlook) -> Table:
    rows = [
        row(team.name, team.cost_center, money(team.cost.guaranteed), money(team.cost.limit), team=team.name)
        if team.queue == team.name or any(own(team))
        else row(team.name, team.cost_center, f"paid by {team.queue}", f"paid by {team.queue}", team=team.name)
        for team in outlook.teams
    ]
    all_ = total(outlook)
    rows.append(row("all teams", "", money(all_.guaranteed), money(all_.limit), sums=True))
    heads = columns("team", "cost centre", "guaranteed#", "at the limit#")
    return Table("cost-by-team", "Cost, by team", heads, tuple(rows))


def _center_costs(outlook: StackOutlook) -> Table:
    rows = [row(name, money(cost.guaranteed), money(cost.limit)) for name, cost in sorted(outlook.cost_centers.items())]
    heads = columns("cost centre", "guaranteed#", "at the limit#")
    return Table("cost-by-centre", "Cost, by cost centre", heads, tuple(rows))


def _serving(outlook: StackOutlook) -> Table:
    heads = columns("team", "server", "flavor", "GPUs each#", "replicas#", "surge#", "peak#", "limit#", "room#")
    return Table("serving", "Serving", heads, tuple(_server(each) for each in outlook.serving), keys=2)


def _server(each: Serving) -> Row:
    room = each.limit - each.peak
    return row(
        each.team,
        each.name,
        each.flavor,
        each.gpus,
        span(each.replicas),
        each.surge,
        each.peak,
        each.limit,
        Cell(str(room).replace("-", MINUS), tone="bad" if room < 0 else None),
        team=each.team,
    )


def _access(outlook: StackOutlook) -> Table:
    rows = [
        row(
            each.team,
            each.owner,
            each.pod_security,
            _CLIENTS.get(each.clients, each.clients),
            ", ".join(each.egress) or "nowhere",
            ", ".join(f"{name} ({bucket})" for name, bucket in sorted(each.datasets.items())) or "none",
            team=each.team,
        )
        for each in outlook.access
    ]
    heads = columns("team", "owner", "pod security", "its servers are called by", "HTTPS to", "datasets")
    return Table("access", "Access", heads, tuple(rows))
