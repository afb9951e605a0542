"""What the page and the comment are made of: tables of words, each cell beside what it was before."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.console.review.review import Review, Tone
from gpu_tenancy.console.review.verdict import total
from gpu_tenancy.model.outlook import StackOutlook, TeamOutlook
from gpu_tenancy.model.outlook.costs import HOURS, Cost
from gpu_tenancy.model.outlook.shares import Holding, Span

UNKNOWN: Final = "unknown"
"""What is said of a price that nobody knows; never 0."""
DASH: Final = "\N{EN DASH}"
MINUS: Final = "\N{MINUS SIGN}"


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; numbers are set to the right."""

    title: str
    number: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, what it was before where that is something else, and whether it is good or bad news."""

    text: str
    was: str = ""
    tone: Tone | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table.

    Attributes:
        team: whom it is about, by which a reader finds it; empty where it is about all.
        fresh: it was not there before.
        sums: it adds the others up.
    """

    cells: tuple[Cell, ...]
    team: str = ""
    fresh: bool = False
    sums: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that are the same where their first cells are.

    Attributes:
        name: in links, such as `cost-by-team`.
        keys: how many cells say what a row is about.
        gone: what rows were about that are no more.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    keys: int = 1
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """One number of a table that is another than before; empty where there is none."""

    table: str
    about: str
    column: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that everyone wants to see first.

    Attributes:
        change: since the base, with its sign; empty without a base.
    """

    label: str
    value: str
    beside: str
    note: str
    change: str
    tone: Tone | None = None


def row(*texts: object, team: str = "", sums: bool = False) -> Row:
    """A row of plain words."""
    cells = tuple(text if isinstance(text, Cell) else Cell(str(text)) for text in texts)
    return Row(cells, team=team, sums=sums)


def columns(*titles: str) -> tuple[Column, ...]:
    """Headings; those that end in `#` are of numbers."""
    return tuple(Column(title.removesuffix("#"), title.endswith("#")) for title in titles)


def about(table: Table, line: Row) -> tuple[str, ...]:
    """What a row is about."""
    return tuple(cell.text for cell in line.cells[: table.keys])


def compared(now: Table, before: Table | None) -> Table:
    """A table in which each cell knows what it was; without a base, as it is."""
    if before is None:
        return now
    old = {about(before, each): each for each in before.rows}
    rows = tuple(_beside(each, old.get(about(now, each))) for each in now.rows)
    left = old.keys() - {about(now, each) for each in now.rows}
    return replace(now, rows=rows, gone=tuple(", ".join(key) for key in old if key in left))


def _beside(now: Row, old: Row | None) -> Row:
    if old is None:
        return replace(now, fresh=True)
    pairs = zip(now.cells, old.cells, strict=True)
    return replace(now, cells=tuple(replace(new, was=was.text if was.text != new.text else "") for new, was in pairs))


def differences(tables: Iterable[Table]) -> Iterator[Difference]:
    """All that changed in compared tables, in their order: rows that went, that came, and cells."""
    for table in tables:
        for gone in table.gone:
            yield Difference(table.title, gone, "", "there", "gone")
        for line in table.rows:
            label = ", ".join(about(table, line))
            if line.fresh:
                said = ", ".join(
                    f"{column.title} {cell.text}"
                    for column, cell in list(zip(table.columns, line.cells, strict=True))[table.keys :]
                )
                yield Difference(table.title, label, "", "", said or "new")
                continue
            for column, cell in zip(table.columns, line.cells, strict=True):
                if cell.was:
                    yield Difference(table.title, label, column.title, cell.was, cell.text)


def span(amount: Span) -> str:
    """From the least to the most, or one number where both are the same."""
    return str(amount.least) if amount.least == amount.most else f"{amount.least}{DASH}{amount.most}"


def share(part: int, whole: int) -> str:
    """A part in percent; words where there is no whole."""
    if whole == 0:
        return DASH if part == 0 else "none there"
    return f"{round(100 * part / whole)} %"


def hourly(amount: float | None) -> str:
    """US dollars an hour, to the cent."""
    return UNKNOWN if amount is None else f"${amount:,.2f}"


def monthly(amount: float | None) -> str:
    """US dollars a month, to the dollar."""
    return UNKNOWN if amount is None else f"${round(amount):,}"


def short(amount: float) -> str:
    """`$151k`: an amount that one remembers."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if round(amount / size, 1) >= 1:
            scaled = amount / size
            return f"${scaled:,.0f}{unit}" if scaled >= _THREE_DIGITS else f"${scaled:,.1f}{unit}"
    return f"${amount:,.0f}"


_THREE_DIGITS = 100


def own(team: TeamOutlook) -> Iterator[Holding]:
    """What a team holds itself, not through the queue of another that is counted there."""
    return (each for each in team.holdings if each.scheduler == "Volcano" or team.queue == team.name)


def known(outlook: StackOutlook) -> Cost:
    """A month of all that has a price: what it costs at least."""
    prices = {each.flavor: each.price for each in outlook.supply}
    held = [(prices.get(each.flavor) or 0.0, each) for team in outlook.teams for each in own(team)]
    return Cost(
        sum(price * each.guaranteed * HOURS for price, each in held),
        sum(price * each.limit * HOURS for price, each in held),
    )


def key_figures(review: Review) -> tuple[Figure, ...]:
    """GPUs and dollars, guaranteed and at the limits, with what changed."""
    before = review.comparison.before if review.comparison else None
    now = review.now
    most = sum(each.gpus.most for each in now.supply)
    return (
        _guaranteed(now, before, most),
        Figure(
            "at most",
            f"{_sum(now, 'limits'):,}",
            f"of {most:,}",
            "GPUs, all limits together",
            _moved(before and _sum(before, "limits"), _sum(now, "limits")),
        ),
        _cost("a month, guaranteed", "guaranteed", now, before),
        _cost("a month, at the limits", "limit", now, before),
    )


def _guaranteed(now: StackOutlook, before: StackOutlook | None, most: int) -> Figure:
    amount = _sum(now, "guaranteed")
    over = [each.flavor for each in now.supply if each.guaranteed > each.gpus.most]
    scarce = [each.flavor for each in now.supply if each.guaranteed > each.gpus.least]
    note = (
        f"GPUs; more {', '.join(over)} than there are"
        if over
        else f"GPUs; {', '.join(scarce)} on nodes that come when asked for"
        if scarce
        else "GPUs, on nodes that are always there"
    )
    tone: Tone = "bad" if over else "good"
    return Figure(
        "guaranteed", f"{amount:,}", f"of {most:,}", note, _moved(before and _sum(before, "guaranteed"), amount), tone
    )


def _sum(outlook: StackOutlook, field: str) -> int:
    return sum(getattr(each, field) for each in outlook.supply)


def _moved(was: int | None, now: int) -> str:
    if was is None:
        return ""
    return "±0" if was == now else f"{now - was:+,}".replace("-", MINUS)


def _cost(label: str, field: str, now: StackOutlook, before: StackOutlook | None) -> Figure:
    amount = getattr(total(now), field)
    note = "US dollars, all teams together" if amount is not None else f"at least {short(getattr(known(now), field))}"
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
