"""Output of `tenancy doctor`: a table, the fixes and a count; JSON for programs."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.terminal import Column, table
from gpu_tenancy.doctor.results import Row, Verdict

_COLUMNS: Final[tuple[Column, ...]] = (
    ("check", "left"),
    ("of", "left"),
    ("needed", "left"),
    ("available", "left"),
    ("result", "left"),
)
_STYLES: Final[dict[Verdict, str]] = {"OK": "green", "missing": "red", "unknown": "yellow"}


def conclude(rows: Sequence[Row], *, as_json: bool) -> None:
    """Prints the rows of a command, as a table or as JSON.

    Raises:
        typer.Exit: something is missing.
    """
    if as_json:
        sys.stdout.write(to_json(rows))
    else:
        show(terminal.out, rows)
    if any(row.verdict == "missing" for row in rows):
        raise typer.Exit(terminal.PROMISE_BROKEN)


def show(console: Console, rows: Sequence[Row]) -> None:
    """Prints all rows, the fixes of those that are not OK, and how many there are of each."""
    listed = table(_COLUMNS)
    for row in rows:
        cells = (row.check, row.subject, row.needed, row.available)
        listed.add_row(*cells, Text(row.verdict, style=_STYLES[row.verdict]))
    console.print(listed, highlight=False)
    fixes = [row for row in rows if row.fix]
    if fixes:
        console.print()
    for row in fixes:
        console.print(escape(f"{row.check} {row.subject}: {row.available}; {row.fix}"), highlight=False)
    console.print(f"\n{counts(rows)}", highlight=False)


def counts(rows: Sequence[Row]) -> str:
    """`12 OK, 1 missing, 2 unknown`."""
    verdicts = [row.verdict for row in rows]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in _STYLES)


def to_json(rows: Sequence[Row]) -> str:
    """The rows for programs."""
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False) + "\n"
