"""Which controllers a stack needs on the embedded platform."""

from collections.abc import Mapping
from pathlib import Path

from gpu_tenancy.console.embedded.controllers.charts import RENDERER
from gpu_tenancy.console.embedded.controllers.launching import Wanted
from gpu_tenancy.console.embedded.controllers.table import Row, read_rows
from gpu_tenancy.model.plan.operators import running
from gpu_tenancy.model.spec import Stack


def rows_of(stack: Stack) -> Mapping[str, Row]:
    """The rows of the table whose operators run in the stack's cluster."""
    operators = running(stack)
    return {name: row for name, row in read_rows().items() if row.operator in operators}


def wanted(stack: Stack, programs: Mapping[str, Path]) -> tuple[Wanted, ...]:
    """The charts whose programs are all available, with the values that the stack gives them."""
    releases = {name: plans[-1] for name, plans in running(stack).items()}
    return tuple(
        Wanted(name, row, releases[row.operator], _own(row, programs))
        for name, row in rows_of(stack).items()
        if all(program.program in programs for program in row.programs.values())
    )


def _own(row: Row, programs: Mapping[str, Path]) -> Mapping[str, Path]:
    names = (RENDERER, *(program.program for program in row.programs.values()))
    return {name: programs[name] for name in names}
