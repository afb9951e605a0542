"""A month as a self-contained HTML page."""

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
from gpu_tenancy.pages.templating import FOLD, environment, policy


def page(statement: Statement) -> str:
    """The whole page: no external resources, no scripts, light and dark; deterministic."""
    makers = (teams_table, costs_table, losses_table, users_table, jobs_table, supply_table)
    found = [make(statement) for make in makers]
    return (
        environment("gpu_tenancy.cost")
        .get_template("cost.html.j2")
        .render(
            statement=statement,
            headline=headline(statement),
            notes=list(notes(statement)),
            tables=[table for table in found if table.rows],
            fold=FOLD,
            policy=policy(),
        )
    )
