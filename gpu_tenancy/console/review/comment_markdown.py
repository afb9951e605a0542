"""Words as GitHub's Markdown: what users wrote stays what they wrote, whatever signs are in it."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from gpu_tenancy.console.review.figures import Cell, Table

_SIGNS: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]~|"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SILENT: Final = "&#8203;"
"""A space of no width, by which GitHub sees neither a name nor an issue."""
_CODE: Final = str.maketrans({sign: f"&#{ord(sign)};" for sign in "\\`*_[]~|&<>@#"})


def text(words: str) -> str:
    """Words in a line or a cell: no markup or table's border, and no person, issue or emoji by @, # or colons."""
    line = " ".join(words.translate(_SIGNS).split())
    line = re.sub(r"[@#](?=\w)|:(?=[\w+-]+:)", rf"\g<0>{_SILENT}", line)
    return re.sub(r"^(\d+)([.)])(?=\s|$)|^([-+=#])", lambda found: _start(*found.groups()), line)


def _start(number: str | None, point: str | None, sign: str | None) -> str:
    return f"{number}\\{point}" if number else f"\\{sign}"


def code(words: str) -> str:
    """Words as they are, in a line or a cell."""
    return f"<code>{' '.join(words.split()).translate(_CODE)}</code>" if words.strip() else ""


def table(headings: Iterable[tuple[str, bool]], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A table's lines.

    Args:
        headings: titles, and whether numbers are under them.
        rows: cells that are Markdown already.
    """
    listed = list(headings)
    yield _line(text(title) or " " for title, _ in listed)
    yield _line("---:" if number else "---" for _, number in listed)
    for row in rows:
        yield _line(row)


def figures(shown: Table) -> Iterator[str]:
    """A table of the report, its first cells in bold, with what was."""
    yield from table(
        ((column.title, column.number) for column in shown.columns),
        (
            (
                cell(each, bold=index == 0 or line.sums, new=index == 0 and line.fresh)
                for index, each in enumerate(line.cells)
            )
            for line in shown.rows
        ),
    )


def cell(shown: Cell, *, bold: bool = False, new: bool = False) -> str:
    """A cell with what it was before."""
    words = text(shown.text)
    said = f"**{words}**" if words and (bold or shown.tone == "bad") else words
    was = f" (was {text(shown.was)})" if shown.was else ""
    return f"{said}{was}{' *new*' if new else ''}"


def _line(cells_: Iterable[str]) -> str:
    return f"| {' | '.join(cells_)} |"


def folded(summary: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines behind a summary; both are Markdown, the summary only words."""
    yield f"<details><summary>{summary}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"
