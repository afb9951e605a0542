"""A month in a terminal."""

from typing import Final

from rich.console import Console
from rich.markup import escape

from gpu_tenancy.base.terminal import table
from gpu_tenancy.cost.statement import Statement
from gpu_tenancy.cost.tables import (
    costs_table,
    headline,
    jobs_table,
    losses_table,
    notes,
    supply_table,
    teams_table,
    users_table,
)
from gpu_tenancy.pages.tables import Table

_MOST: Final = 5
"""Users and jobs on the screen."""


def show(console: Console, statement: Statement) -> None:
    """Prints the tables, those without rows left out."""
    console.print(f"[bold]{escape(headline(statement))}[/]", highlight=False)
    found = [make(statement) for make in (teams_table, costs_table, losses_table, supply_table)]
    for each in (*found, users_table(statement, _MOST), jobs_table(statement, _MOST)):
        if each.rows:
            _print(console, each)
    if len(statement.jobs) > _MOST:
        console.print(f"[dim]{_MOST} of {len(statement.jobs)} jobs; --out has all[/dim]", highlight=False)
    console.print()
    for note in notes(statement):
        console.print(f"[dim]{escape(note)}[/dim]", highlight=False)


def _print(console: Console, shown: Table) -> None:
    heads = [f"{column.title}{'#' if column.number else ''}" for column in shown.columns]
    titles = {column.title for column in shown.columns}
    listed = table(*heads, title=shown.title, drop=[title for title in ("for Volcano", "lent") if title in titles])
    for line in shown.rows:
        listed.add_row(*(cell.text for cell in line.cells))
    console.print()
    console.print(listed, highlight=False)
