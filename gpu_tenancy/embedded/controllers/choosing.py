"""Which controllers a stack needs on the embedded platform, and their programs: named by the user, else built."""

import os
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import CONTROL_PLANE, build, built
from gpu_tenancy.embedded.controllers.launching import Wanted
from gpu_tenancy.embedded.controllers.table import RENDERER, Row, module_of, read_rows
from gpu_tenancy.embedded.processes import alone
from gpu_tenancy.model.checks.operators import places
from gpu_tenancy.model.plan.operators import ReleasePlan, running
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack

FOLDER: Final = "GPU_TENANCY_CONTROLLERS"
"""Environment variable: a folder with programs of controllers, by their names in the table; used first."""


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


def present(program: str, source: str, cache: Path) -> Path | None:
    """A program that is on this machine; None if it must be built.

    Raises:
        ConsoleError: `GPU_TENANCY_CONTROLLERS` is not a folder.
    """
    named = os.environ.get(FOLDER)
    if named and not Path(named).is_dir():
        raise ConsoleError(f"{FOLDER}: {named} is not a folder", "set it to a folder with programs, or unset it")
    if named and (given := Path(named) / program).is_file():
        return given
    return file if (file := built(cache, program, source)).is_file() else None


def prepared(rows: Mapping[str, Row], cache: Path) -> bool:
    """Whether all programs of these rows are on this machine."""
    return all(present(program, source, cache) for program, source, _ in _needed(rows))


def find(rows: Mapping[str, Row], cache: Path, report: Report) -> tuple[Mapping[str, Path], Mapping[str, str]]:
    """The programs of these rows and the renderer of charts; missing ones are built into the cache.

    Returns:
        The path of each program, and the reason for each program that is not available.

    Raises:
        ConsoleError: the renderer, which needs only public modules of Kubernetes, cannot be built.
    """
    needed = sorted(_needed(rows), key=lambda item: item[1])
    unavailable: dict[str, str] = {}
    for source, items in groupby(needed, key=lambda item: item[1]):
        packages = {program: package for program, _, package in items}
        try:
            what = ", ".join(f"{name} {module_of(row).version}" for name, row in rows.items() if row.source == source)
            _build_missing(source, packages, what or "the renderer of charts", cache, report)
        except ConsoleError as error:
            if source == CONTROL_PLANE:
                raise
            unavailable |= {p: error.what for p in packages if not present(p, source, cache)}
    found = {program: path for program, source, _ in needed if (path := present(program, source, cache))}
    return found, unavailable


def _needed(rows: Mapping[str, Row]) -> Iterable[tuple[str, str, str]]:
    """Program, source and package."""
    yield RENDERER, CONTROL_PLANE, f"./{RENDERER}"
    for row in rows.values():
        for program in row.programs.values():
            yield program.program, row.source, program.package


def _build_missing(source: str, packages: Mapping[str, str], what: str, cache: Path, report: Report) -> None:
    def missing() -> dict[str, str]:
        return {program: package for program, package in packages.items() if not present(program, source, cache)}

    if not missing():
        return
    with alone(cache / "programs.lock", report, "downloading or building programs"):
        if left := missing():
            build(cache, report, left, source=source, what=what)
