"""Templates and tables of all pages."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal, TypeAlias

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gpu_tenancy.base.output import PlainTable
from gpu_tenancy.base.texts import code_parts, visible

Tone: TypeAlias = Literal["good", "notice", "bad"]


@dataclass(frozen=True, slots=True)
class Column:
    """Heading of a column; numbers are aligned to the right."""

    title: str
    number: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A value, its previous value where it changed, and its tone."""

    text: str
    was: str = ""
    tone: Tone | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table, or its total (`sums`)."""

    cells: tuple[Cell, ...]
    team: str = ""  # for the search; empty for a total
    fresh: bool = False  # the base does not have the row
    sums: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose rows are identified by their first `keys` cells."""

    name: str  # id in links, such as `cost-by-team`
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    keys: int = 1
    gone: tuple[str, ...] = ()  # labels of rows that only the base has


def row(*texts: object, team: str = "", sums: bool = False) -> Row:
    """A row of cells or plain values."""
    return Row(tuple(text if isinstance(text, Cell) else Cell(str(text)) for text in texts), team=team, sums=sums)


def columns(*titles: str) -> tuple[Column, ...]:
    """Columns by title; a title that ends in `#` marks a column of numbers."""
    return tuple(Column(title.removesuffix("#"), title.endswith("#")) for title in titles)


def about(table: Table, line: Row) -> tuple[str, ...]:
    """The cells that identify a row."""
    return tuple(cell.text for cell in line.cells[: table.keys])


def compared(now: Table, before: Table | None) -> Table:
    """A table with the base's values in its cells; unchanged without a base."""
    if before is None:
        return now
    old = {about(before, line): line for line in before.rows}
    rows: list[Row] = []
    for line in now.rows:
        if (was := old.get(about(now, line))) is None:
            rows.append(replace(line, fresh=True))
        else:
            pairs = zip(line.cells, was.cells, strict=True)
            cells = [replace(new, was=cell.text if cell.text != new.text else "") for new, cell in pairs]
            rows.append(replace(line, cells=tuple(cells)))
    present = {about(now, line) for line in now.rows}
    return replace(now, rows=tuple(rows), gone=tuple(", ".join(key) for key in old if key not in present))


def printed(shown: Table, *, title: bool = True, drop: Sequence[str] = (), wrap: str = "") -> PlainTable:
    """A table for the terminal, with the base's values in its cells.

    The columns `drop` may be left out, in this order; the text of the column `wrap` may wrap.
    """
    marks = ("~" if column.title == wrap else "#" if column.number else "" for column in shown.columns)
    heads = [f"{column.title}{mark}" for column, mark in zip(shown.columns, marks, strict=True)]
    listed = PlainTable(*heads, title=shown.title if title else "", drop=drop)
    for line in shown.rows:
        listed.add_row(*(f"{cell.text} (was {cell.was})" if cell.was else cell.text for cell in line.cells))
    return listed


_LINES: Final = "\n\t\u200c\u200d"
_HOUSE: Final = "gpu_tenancy.pages"  # package whose templates have the style and macros of all pages

FOLD: Final = 30  # rows, teams or jobs beyond which a table, cohort or step starts collapsed


def _shown(value: object) -> object:
    """Text without invisible characters; this program's markup is unchanged."""
    return visible(value, _LINES) if type(value) is str else value


@cache
def environment(*packages: str) -> Environment:
    """Templates of packages with a folder `templates`, in order of precedence, and the shared ones."""
    # StrictUndefined: a misspelled name in a template must not become an empty cell.
    found = Environment(
        loader=ChoiceLoader([PackageLoader(package, "templates") for package in (*packages, _HOUSE)]),
        finalize=_shown,
        autoescape=True,  # select_autoescape decides by the extension and does not know `.j2`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["prose"] = _prose
    return found


def _prose(sentence: str) -> Markup:
    """A sentence of this program, with what is in backticks as code."""
    parts = enumerate(code_parts(visible(sentence, _LINES)))
    return Markup("").join(Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in parts)


def policy(script: str = "", *more: str) -> str:
    """Content Security Policy of a page: no external content, only the given inline script, and `more` directives."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    content = f"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}"
    return "; ".join((content, "base-uri 'none'; form-action 'none'; img-src data:", *more))
