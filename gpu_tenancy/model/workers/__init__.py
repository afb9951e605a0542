"""MultiKueue between stacks: the manager's flavors, teams and quotas from the stacks of its workers.

They agree by construction: what both clusters must have is written once, in the stacks of the workers.
"""

from collections.abc import Iterator
from dataclasses import replace

from gpu_tenancy.base.problems import Problem, StackError
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.workers import reading
from gpu_tenancy.model.workers.reading import (
    SECTION,
    Data,
    Read,
    differences,
    first_of,
    own_name,
    own_problems,
    read_beside,
    read_workers,
    section_of,
)


def with_workers(source: Source, read: Read) -> Source:
    """The source of a manager with what it has from its workers; any other source as it is.

    Args:
        source: of a stack.
        read: reads and checks the stack of a worker.

    Raises:
        StackError: a worker is missing or invalid, the workers differ, or the file has what its workers define.
    """
    found = section_of(source)
    if found is None or not found.workers:
        return source  # An invalid section is reported by whoever checks the stack.
    workers, problems = read_workers(source, found, read)
    problems += own_problems(source, workers)
    problems += [problem for first in workers[:1] for other in workers[1:] for problem in differences(first, other)]
    if problems:
        raise StackError(replace(one, file=source.file, line=source.line(one.path)) for one in problems)
    placed = reading.pools(workers)
    first = workers[0]
    made: Data = {
        "pools": {},
        "people": first.section("people"),
        "fairness": first.source.sections.get("fairness") or "hierarchical",
        "priorities": first.section("priorities"),
        "cohorts": reading.cohorts(workers),
        **source.sections,
        "teams": reading.teams(workers, source.sections.get("teams") or {}),
        SECTION: {**source.sections[SECTION], "pools": {name: pool for name, (_, pool) in placed.items()}},
    }
    places = {("pools", pool): worker.place for pool, (worker, _) in placed.items()}
    lines = {place: line for place, named in places.items() if (line := source.line(named))}
    return replace(source, sections=made, lines={**source.lines, **lines})


def manager_problems(source: Source, stack: Stack, read: Read) -> Iterator[Problem]:
    """Problems of a worker with its manager, whose preview would have them too.

    Args:
        source: of the worker.
        stack: the same, valid.
        read: reads and checks the stack of the manager, with its workers.
    """
    manager = stack.multikueue.manager if stack.multikueue else None
    if manager is None or source.folder is None or not source.file:
        return
    place, own = (SECTION, "manager"), own_name(source)
    try:
        managing = read_beside(source, manager)
        section = section_of(managing)
        if section is None or own not in {worker.stack for worker in section.workers}:
            fix = (
                f"add {{name: …, stack: {own}, secret: …}} to multikueue.workers in {managing.file}, or remove this key"
            )
            yield Problem(place, f"does not name {own} as a worker", fix, manager)
            return
        read(managing)
    except StackError as error:
        rule = f"is not valid with this worker: {first_of(error)}"
        yield Problem(place, rule, "change one of the two stacks", manager)
