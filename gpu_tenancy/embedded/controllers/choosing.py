"""Which controllers a stack needs on the embedded platform."""

from collections.abc import Mapping
from pathlib import Path

from gpu_tenancy.embedded.controllers.charts import RENDERER, module_of
from gpu_tenancy.embedded.controllers.launching import Wanted
from gpu_tenancy.embedded.controllers.table import Row, read_rows
from gpu_tenancy.model.checks.providers import places
from gpu_tenancy.model.plan.operators import ReleasePlan, running
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack


def rows_of(tree: Tree) -> Mapping[str, Row]:
    """The rows of the table whose operators run in a stack's cluster, or that the stack needs there."""
    operators = running(tree)
    return {
        name: row
        for name, row in read_rows().items()
        if (row.operator in operators if row.operator else any(places(tree, row.need)))
    }


def wanted(stack: Stack, programs: Mapping[str, Path]) -> tuple[Wanted, ...]:
    """The charts whose programs are all available, with the values that the stack gives them."""
    tree = Tree(stack)
    releases = {name: plans[-1] for name, plans in running(tree).items()}
    return tuple(
        Wanted(name, row, releases[row.operator] if row.operator else _release(name, row), _own(row, programs))
        for name, row in rows_of(tree).items()
        if all(program.program in programs for program in row.programs.values())
    )


def _release(name: str, row: Row) -> ReleasePlan:
    """The release of what a cluster has anyway, with the chart's own values."""
    return ReleasePlan(name, row.chart, None, module_of(row).version, row.namespace, values={}, serves=())


def _own(row: Row, programs: Mapping[str, Path]) -> Mapping[str, Path]:
    names = (RENDERER, *(program.program for program in row.programs.values()))
    return {name: programs[name] for name in names}
