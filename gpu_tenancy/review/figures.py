"""Tables and key figures of the page and the comment, with the values at the base."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.quantity import CPU, amount_text
from gpu_tenancy.base.texts import DASH, MINUS, UNKNOWN, unit
from gpu_tenancy.explain.proposal import Affected, Effect
from gpu_tenancy.model.outlook import StackOutlook, TeamOutlook
from gpu_tenancy.model.outlook.shares import HOURS, Cost, Holding, Span
from gpu_tenancy.pages.tables import Cell, Row, Table, Tone, about, columns, row
from gpu_tenancy.review.changes import ACTIONS, Action, Change, FieldChange
from gpu_tenancy.review.review import Review
from gpu_tenancy.review.verdict import total


@dataclass(frozen=True, slots=True)
class Difference:
    """One changed value of a table; an absent side is empty."""

    table: str
    about: str
    column: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A key figure at the top of a review.

    Attributes:
        change: signed difference to the base; empty without a base.
    """

    label: str
    value: str
    beside: str
    note: str
    change: str
    tone: Tone | None = None


def differences(tables: Iterable[Table]) -> Iterator[Difference]:
    """Removed rows, new rows and changed values of compared tables, in their order."""
    for table in tables:
        for gone in table.gone:
            yield Difference(table.title, gone, "", "present", "removed")
        for line in table.rows:
            label = ", ".join(about(table, line))
            if line.fresh:
                values = ", ".join(
                    f"{column.title} {cell.text}"
                    for column, cell in list(zip(table.columns, line.cells, strict=True))[table.keys :]
                )
                yield Difference(table.title, label, "", "", values or "new")
                continue
            for column, cell in zip(table.columns, line.cells, strict=True):
                if cell.was:
                    yield Difference(table.title, label, column.title, cell.was, cell.text)


def span(amount: Span, resource: str = "") -> str:
    """A range, or one number where both ends are equal; in base units of a resource, or a count."""
    minimum, maximum = amount_text(resource, amount.minimum), amount_text(resource, amount.maximum)
    return minimum if amount.minimum == amount.maximum else f"{minimum}{DASH}{maximum}"


def short(amount: float) -> str:
    """A rounded amount: `$151k`."""
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if round(amount / size, 1) >= 1:
            scaled = amount / size
            return f"${scaled:,.0f}{suffix}" if scaled >= _THREE_DIGITS else f"${scaled:,.1f}{suffix}"
    return f"${amount:,.0f}"


_THREE_DIGITS = 100


def own(team: TeamOutlook) -> Iterator[Holding]:
    """A team's GPUs without those of another team's queue, which are counted there."""
    return (holding for holding in team.holdings if holding.scheduler == "Volcano" or team.queue == team.name)


def known(outlook: StackOutlook) -> Cost:
    """Monthly cost of the GPUs that have a price, a lower bound."""
    prices = {supply.flavor: supply.price for supply in outlook.supply}
    held = [(prices.get(holding.flavor) or 0.0, holding) for team in outlook.teams for holding in own(team)]
    return Cost(
        sum(price * holding.guaranteed * HOURS for price, holding in held),
        sum(price * holding.limit * HOURS for price, holding in held),
    )


def key_figures(review: Review) -> tuple[Figure, ...]:
    """GPUs (CPUs where there are none) and monthly cost of guarantees and limits, with their changes."""
    before = review.comparison.before if review.comparison else None
    now = review.now
    noun = _unit(now)
    over = [supply.flavor for supply in now.supply if supply.guaranteed > supply.capacity.maximum]
    autoscaled = [supply.flavor for supply in now.supply if supply.guaranteed > supply.capacity.minimum]
    note = (
        f"{noun}; capacity exceeded: {', '.join(over)}"
        if over
        else f"{noun}; depends on autoscaling: {', '.join(autoscaled)}"
        if autoscaled
        else f"{noun}, always available"
    )
    return (
        _amount("guaranteed", now, before, note, "bad" if over else "good"),
        _amount("limits", now, before, f"{noun}, sum of all limits"),
        _cost("monthly cost, guarantees", "guaranteed", now, before),
        _cost("monthly cost, limits", "limit", now, before),
    )


def _amount(field: str, now: StackOutlook, before: StackOutlook | None, note: str, tone: Tone | None = None) -> Figure:
    """The sum of a field of all flavors, of the sum of their capacities."""
    amount, capacity = _sum(now, field), _counts(now, sum(supply.capacity.maximum for supply in now.totals))
    change = "" if before is None else _moved(_sum(before, field), amount)
    return Figure(field, f"{amount:,}", f"of {capacity:,}", note, change, tone)


def _sum(outlook: StackOutlook, field: str) -> int:
    return _counts(outlook, sum(getattr(supply, field) for supply in outlook.totals))


def _unit(outlook: StackOutlook) -> str:
    """What the sums count: GPUs, or CPUs where no flavor has GPUs."""
    return next((unit(supply.resource) for supply in outlook.totals), "GPUs")


def _counts(outlook: StackOutlook, amount: int) -> int:
    """A sum in whole GPUs or CPUs."""
    return amount // 1000 if any(supply.resource == CPU for supply in outlook.totals) else amount


def _moved(was: int, now: int) -> str:
    return "±0" if was == now else f"{now - was:+,}".replace("-", MINUS)


def _cost(label: str, field: str, now: StackOutlook, before: StackOutlook | None) -> Figure:
    amount = getattr(total(now), field)
    note = "USD, all teams" if amount is not None else f"at least {short(getattr(known(now), field))}"
    return Figure(
        label,
        UNKNOWN if amount is None else short(amount),
        "",
        note,
        "" if before is None else _cost_moved(getattr(total(before), field), amount),
    )


def _cost_moved(was: float | None, now: float | None) -> str:
    if was is None or now is None:
        return "±0" if was is now else f"was {UNKNOWN if was is None else short(was)}"
    difference = round(now - was)
    return "±0" if difference == 0 else f"{'+' if difference > 0 else MINUS}{short(abs(difference))}"


def work(effect: Effect) -> Table:
    """Each workload whose state the change decides."""
    parts: tuple[tuple[tuple[Affected, ...], str], ...] = (
        (effect.deleted, "deleted"),
        (effect.preempted, "preempted"),
        (effect.delayed, "stays pending"),
        (effect.later, "waits longer"),
        (effect.admitted, "admitted"),
    )
    rows = tuple(_row(one, outcome) for part, outcome in parts for one in part)
    heads = columns("workload", "outcome", "GPUs#", "hours#", "for or why")
    return Table("work", "Running and pending workloads", heads, rows)


def _row(one: Affected, outcome: str) -> Row:
    restarted = outcome == "preempted" and one.again
    bad = outcome in {"deleted", "preempted"}
    return row(
        one.label,
        Cell("preempted, admitted again" if restarted else outcome, tone="bad" if bad else None),
        ", ".join(f"{amount} {flavor}".strip() for flavor, amount in one.gpus.items()) or "0",
        one.hours,
        one.by or one.why,
        team=one.team,
    )


DONE: Final[dict[Action, str]] = {
    "delete": "deleted",
    "replace": "replaced",
    "create": "created",
    "update": "updated",
}


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One updated resource, or several of a kind that are created or deleted.

    Attributes:
        remark: whether the old resource is deleted first, and the difference between the files and Pulumi's preview.
    """

    action: Action
    kind: str
    names: tuple[str, ...]
    fields: tuple[FieldChange, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """All changes of one team, pool or part of the platform.

    Attributes:
        where: file and line in the stack; empty where unknown.
        team: name of the team; empty for other groups.
        loses: whether a resource is deleted or replaced.
    """

    name: str
    where: str
    tally: str
    lines: tuple[ChangeLine, ...]
    team: str
    loses: bool


def tally(changes: Iterable[Change]) -> str:
    """`1 deleted, 6 updated`, deletions first; `no changes`."""
    actions = [change.action for change in changes]
    parts = [f"{actions.count(action)} {DONE[action]}" for action in ACTIONS if action in actions]
    return ", ".join(parts) or "no changes"


def shown(review: Review) -> tuple[Change, ...]:
    """Changes from Pulumi's preview where there is one, else from the files."""
    return review.real.changes if review.real else review.changes


def change_groups(review: Review) -> tuple[ChangeGroup, ...]:
    """Changes by group: those with deletions or replacements first, then by name.

    Changes of Pulumi's preview take precedence; a remark tells where the files differ.
    """
    overlaid = _overlaid(review)
    names = dict.fromkeys(change.group for change, _ in overlaid)
    worst = {
        name: min(ACTIONS.index(change.action) for change, _ in overlaid if change.group == name) for name in names
    }
    ordered = sorted(names, key=lambda name: (min(worst[name], ACTIONS.index("create")), name))
    return tuple(
        _group(name, [pair for pair in overlaid if pair[0].group == name], review.where.get(name, ""))
        for name in ordered
    )


def _overlaid(review: Review) -> list[tuple[Change, str]]:
    if review.real is None:
        return [(change, "") for change in review.changes]
    real = {change.urn for change in review.real.changes}
    files = {change.urn: change for change in review.changes}
    previewed = [(change, _remark(change, files.get(change.urn), review)) for change in review.real.changes]
    unchanged = [change for change in review.changes if change.urn not in real]
    return previewed + [(change, "unchanged in the Pulumi preview") for change in unchanged]


def _remark(real: Change, files: Change | None, review: Review) -> str:
    if review.comparison is None:
        return ""
    if files is None:
        return "only in the Pulumi preview: the deployed state differs from the base"
    return "" if files.action == real.action else f"in the files: {DONE[files.action]}"


def _group(name: str, overlaid: list[tuple[Change, str]], where: str) -> ChangeGroup:
    lines: dict[tuple[int, str, str], ChangeLine] = {}
    single: list[tuple[tuple[int, str, str], ChangeLine]] = []
    for change, difference in overlaid:
        order = ACTIONS.index(change.action)
        remark = ", ".join(filter(None, ("deleted first" if change.effect.deleted_first else "", difference)))
        if change.fields:
            line = ChangeLine(change.action, change.kind, (change.name,), change.fields, remark)
            single.append(((order, change.kind, change.name), line))
            continue
        key = (order, change.kind, remark)
        names = (*lines[key].names, change.name) if key in lines else (change.name,)
        lines[key] = ChangeLine(change.action, change.kind, names, (), remark)
    ordered = sorted([*lines.items(), *single], key=lambda item: item[0])
    team = name.removeprefix("team ") if name.startswith("team ") else ""
    return ChangeGroup(
        name,
        where,
        tally(change for change, _ in overlaid),
        tuple(line for _, line in ordered),
        team,
        loses=any(change.action in {"delete", "replace"} for change, _ in overlaid),
    )
