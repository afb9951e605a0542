"""Tables and key figures of the page and the comment, with the values at the base."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.quantity import CPU, amount_text
from gpu_tenancy.base.texts import DASH, MINUS, UNKNOWN, unit
from gpu_tenancy.base.usd import Usd
from gpu_tenancy.explain.proposal import Affected, Effect
from gpu_tenancy.model.outlook import StackOutlook, TeamOutlook
from gpu_tenancy.model.outlook.bill import BillFigure
from gpu_tenancy.model.outlook.shares import Span
from gpu_tenancy.pages.tables import Cell, Row, Table, Tone, about, columns, row
from gpu_tenancy.review.changes import ACTIONS, Action, Change, FieldChange
from gpu_tenancy.review.review import Review


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
    """A key figure at the top of a review, with the signed difference to the base, empty without a base."""

    label: str
    value: str
    beside: str
    note: str
    change: str
    tone: Tone | None = None
    bound: str = ""  # `at least`, before the value


def differences(tables: Iterable[Table]) -> Iterator[Difference]:
    """Removed rows, new rows and changed values of compared tables, in their order."""
    for table in tables:
        yield from (Difference(table.title, gone, "", "present", "removed") for gone in table.gone)
        for line in table.rows:
            label = ", ".join(about(table, line))
            pairs = [(column.title, cell) for column, cell in zip(table.columns, line.cells, strict=True)]
            if line.fresh:
                values = ", ".join(f"{title} {cell.text}" for title, cell in pairs[table.keys :])
                yield Difference(table.title, label, "", "", values or "new")
                continue
            for title, cell in pairs:
                if cell.was:
                    yield Difference(table.title, label, title, cell.was, cell.text)


def span(amount: Span, resource: str = "") -> str:
    """A range, or one number if both ends are equal; in base units of a resource, or a count."""
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


def sharing(team: TeamOutlook, length: int) -> tuple[tuple[str, ...], ...]:
    """The row of a team that shares a queue, in a table of teams and flavors: its name, the queue, and dashes."""
    return ((team.name, team.shares, *[DASH] * (length - 2)),) if team.shares else ()


def key_figures(review: Review) -> tuple[Figure, ...]:
    """GPUs (or CPUs) of guarantees and limits, and the figures of the bill, with their changes."""
    before = review.comparison.before if review.comparison else None
    now = review.now
    noun = next((unit(supply.resource) for supply in now.totals), "GPUs")
    autoscaled = [supply.flavor for supply in now.supply if supply.guaranteed > supply.capacity.minimum]
    note = f"{noun}, always available"
    if autoscaled:
        note = f"{noun}; depends on autoscaling: {', '.join(autoscaled)}"
    was = [figure.usd for figure in before.bill.figures] if before else repeat(None)
    return (
        _amount("guaranteed", now, before, note, "good"),
        _amount("limits", now, before, f"{noun}, sum of all limits"),
        *map(_cost, now.bill.figures, was),
    )


def _amount(field: str, now: StackOutlook, before: StackOutlook | None, note: str, tone: Tone | None = None) -> Figure:
    amount = _counts(now, sum(getattr(supply, field) for supply in now.totals))
    capacity = _counts(now, sum(supply.capacity.maximum for supply in now.totals))
    change = ""
    if before is not None:
        was = _counts(before, sum(getattr(supply, field) for supply in before.totals))
        change = "±0" if was == amount else f"{amount - was:+,}".replace("-", MINUS)
    return Figure(field, f"{amount:,}", f"of {capacity:,}", note, change, tone)


def _counts(outlook: StackOutlook, amount: int) -> int:
    return amount // 1000 if any(supply.resource == CPU for supply in outlook.totals) else amount


def _cost(figure: BillFigure, was: Usd | None) -> Figure:
    usd, change = figure.usd, ""
    value = short(usd.known) if round(usd.known) or not usd.unpriced else UNKNOWN
    if was and was.unpriced != usd.unpriced:
        change = f"was {was}"
    elif was:
        difference = round(usd.known - was.known)
        change = f"{'+' if difference > 0 else MINUS}{short(abs(difference))}" if difference else "±0"
    return Figure(figure.label, value, "", figure.about, change, bound=usd.bound if value != UNKNOWN else "")


def work(effect: Effect) -> Table:
    """Each workload whose state the change decides."""
    affected = {
        "deleted": effect.deleted,
        "preempted": effect.preempted,
        "restarts": effect.restarted,
        "idle, stopped": effect.idle,
        "stays pending": effect.delayed,
        "never admitted": effect.never,
        "waits longer": effect.later,
        "admitted": effect.admitted,
    }

    def work_row(outcome: str, one: Affected) -> Row:
        again = "preempted, admitted again" if outcome == "preempted" and one.again else outcome
        ends = outcome in {"deleted", "preempted", "restarts", "idle, stopped", "never admitted"}
        held = ", ".join(f"{amount} {flavor}".strip() for flavor, amount in one.gpus.items()) or "0"
        cells = one.label, Cell(again, tone="bad" if ends else None), held, one.hours, one.by or one.why
        return row(*cells, team=one.team)

    rows = tuple(work_row(outcome, one) for outcome, workloads in affected.items() for one in workloads)
    heads = columns("workload", "outcome", "GPUs#", "hours#", "for or why")
    return Table("work", "Running and pending workloads", heads, rows)


DONE: Final[dict[Action, str]] = {"delete": "deleted", "replace": "replaced", "create": "created", "update": "updated"}


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One updated resource, or several created or deleted ones of a kind."""

    action: Action
    kind: str
    names: tuple[str, ...]
    fields: tuple[FieldChange, ...] = ()
    remark: str = ""  # the old resource is deleted first, or the files differ from Pulumi's preview


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """All changes of one team, pool or part of the platform."""

    name: str
    where: str  # file and line in the stack; empty if unknown
    tally: str
    lines: tuple[ChangeLine, ...]
    team: str  # empty for other groups
    loses: bool  # a resource is deleted or replaced


def tally(changes: Iterable[Change]) -> str:
    """`1 deleted, 6 updated`, deletions first; `no changes`."""
    actions = [change.action for change in changes]
    parts = [f"{actions.count(action)} {DONE[action]}" for action in ACTIONS if action in actions]
    return ", ".join(parts) or "no changes"


def shown(review: Review) -> tuple[Change, ...]:
    """Changes from Pulumi's preview if there is one, else from the files."""
    return review.real.changes if review.real else review.changes


def change_groups(review: Review) -> tuple[ChangeGroup, ...]:
    """Changes by group, losses first, then by name; Pulumi's preview takes precedence over the files."""
    groups = grouped((pair[0].group, pair) for pair in _overlaid(review))

    def place(name: str) -> tuple[int, str]:
        worst = min(ACTIONS.index(change.action) for change, _ in groups[name])
        return min(worst, ACTIONS.index("create")), name

    return tuple(_group(name, groups[name], review.where.get(name, "")) for name in sorted(groups, key=place))


def _overlaid(review: Review) -> list[tuple[Change, str]]:
    if review.real is None:
        return [(change, "") for change in review.changes]
    real = {change.urn for change in review.real.changes}
    files = {change.urn: change for change in review.changes}
    found: list[tuple[Change, str]] = []
    for change in review.real.changes:
        in_files, remark = files.get(change.urn), ""
        if review.comparison and in_files is None:
            remark = "only in the Pulumi preview: the deployed state differs from the base"
        elif review.comparison and in_files and in_files.action != change.action:
            remark = f"in the files: {DONE[in_files.action]}"
        found.append((change, remark))
    unchanged = [change for change in review.changes if change.urn not in real]
    return found + [(change, "unchanged in the Pulumi preview") for change in unchanged]


def _group(name: str, overlaid: list[tuple[Change, str]], where: str) -> ChangeGroup:
    together: dict[tuple[int, str, str], ChangeLine] = {}
    single: list[tuple[tuple[int, str, str], ChangeLine]] = []
    for change, difference in overlaid:
        order = ACTIONS.index(change.action)
        how = "deleted first" if change.effect.deleted_first else "restarts nodes" if change.effect.restarts else ""
        remark = ", ".join(filter(None, (how, difference)))
        line = ChangeLine(change.action, change.kind, (change.name,), change.fields, remark)
        if change.fields:
            single.append(((order, change.kind, change.name), line))
            continue
        key = (order, change.kind, remark)
        together[key] = replace(line, names=(*together[key].names, change.name)) if key in together else line
    lines = tuple(line for _, line in sorted([*together.items(), *single], key=lambda item: item[0]))
    team = name.removeprefix("team ") if name.startswith("team ") else ""
    loses = any(change.action in {"delete", "replace"} for change, _ in overlaid)
    return ChangeGroup(name, where, tally(change for change, _ in overlaid), lines, team, loses)
