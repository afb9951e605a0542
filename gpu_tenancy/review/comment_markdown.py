"""Escaping, tables and the cohort tree for GitHub's Markdown; text of users is never markup."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from gpu_tenancy.base.texts import visible
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.pages.bars import Branch
from gpu_tenancy.pages.tables import Cell, Table
from gpu_tenancy.review.charts import Drawing

TEAMS: Final = 60
"""Teams beyond which the diagram shows only cohorts: Mermaid draws at most 500 edges and
50,000 characters: https://mermaid.js.org/config/schema-docs/config-properties-maxedges.html, `…-maxtextsize.html`."""

_SIGNS: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]~|"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SILENT: Final = "&#8203;"
"""A zero-width space, which keeps GitHub from linking names and issues."""
_CODE: Final = str.maketrans({sign: f"&#{ord(sign)};" for sign in "\\`*_[]~|&<>@#"})


def text(words: str) -> str:
    """Text for a line or cell, escaped: no markup, cell borders, mentions, issue links or emoji."""
    line = visible(" ".join(words.split())).translate(_SIGNS)
    line = re.sub(r"[@#](?=\w)|:(?=[\w+-]+:)", rf"\g<0>{_SILENT}", line)
    return re.sub(r"^(\d+)([.)])(?=\s|$)|^([-+=#])", lambda match: _start(*match.groups()), line)


def _start(number: str | None, point: str | None, sign: str | None) -> str:
    return f"{number}\\{point}" if number else f"\\{sign}"


def code(words: str) -> str:
    """Text as code, in a line or cell."""
    return f"<code>{visible(' '.join(words.split())).translate(_CODE)}</code>" if words.strip() else ""


def table(headings: Iterable[tuple[str, bool]], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Lines of a table.

    Args:
        headings: titles, and whether the column has numbers.
        rows: cells as Markdown.
    """
    listed = list(headings)
    yield _line(text(title) or " " for title, _ in listed)
    yield _line("---:" if number else "---" for _, number in listed)
    for row in rows:
        yield _line(row)


def figures(shown: Table) -> Iterator[str]:
    """A table of the review, with bold row labels and previous values."""
    yield from table(
        ((column.title, column.number) for column in shown.columns),
        (
            (
                cell(shown_, bold=index == 0 or line.sums, new=index == 0 and line.fresh)
                for index, shown_ in enumerate(line.cells)
            )
            for line in shown.rows
        ),
    )


def cell(shown: Cell, *, bold: bool = False, new: bool = False) -> str:
    """A cell with its previous value."""
    value = text(shown.text)
    if value and (bold or shown.tone == "bad"):
        value = f"**{value}**"
    was = f" (was {text(shown.was)})" if shown.was else ""
    return f"{value}{was}{' *new*' if new else ''}"


def _line(cells_: Iterable[str]) -> str:
    return f"| {' | '.join(cells_)} |"


def folded(summary: str, lines: Iterable[str]) -> Iterator[str]:
    """A collapsed section; lines are Markdown, the summary is HTML."""
    yield f"<details><summary>{summary}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def mermaid(outlook: StackOutlook) -> Iterator[str]:
    """Cohorts and teams with guarantees and limits; a dashed edge leads to a team without a guarantee."""
    tree = Drawing(outlook).tree
    yield "```mermaid"
    yield "flowchart LR"
    yield from _branch(tree, "g", teams=tree.count <= TEAMS)
    yield "```"


def _branch(branch: Branch, place: str, *, teams: bool) -> Iterator[str]:
    own = [f"own quota: {branch.nobody}" if branch.depth else f"unassigned: {branch.nobody}"] if branch.nobody else []
    count = [] if teams else [f"{branch.count} {'team' if branch.count == 1 else 'teams'}"]
    bounds = [f"{bar.flavor} {bar.numbers}" for bar in branch.bars]
    yield f'  {place}["{_label(branch.name, *count, *bounds, *own)}"]'
    for index, group in enumerate(branch.groups):
        yield from _branch(group, f"{place}_{index}", teams=teams)
        yield f"  {place} --- {place}_{index}"
    for index, (name, bars) in enumerate(branch.teams if teams else ()):
        edge = "---" if any(not bar.ring for bar in bars) else "-.-"
        yield f'  {place} {edge} {place}_t{index}(["{_label(name, *(f"{bar.flavor} {bar.numbers}" for bar in bars))}"])'


def _label(*lines: str) -> str:
    return "<br/>".join(_escaped(line) for line in lines)


def _escaped(words: str) -> str:
    """Text with special characters as Mermaid's entity codes, `#` number `;`."""
    return "".join(char if char.isalnum() or char in " -.,:'→/" else f"#{ord(char)};" for char in words)
