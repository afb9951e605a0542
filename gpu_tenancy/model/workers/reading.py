"""The stacks of MultiKueue workers, read from the files beside the manager's."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, TypeAlias, cast

from pydantic import ValidationError

from gpu_tenancy.base.problems import Path, Problem, StackError
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source, read_file
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.multikueue import MultiKueue

Data: TypeAlias = dict[str, Any]
Read: TypeAlias = Callable[[Source], Stack]
"""Reads and checks one stack."""
SECTION: Final = "multikueue"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as its file has it; `place` is where the manager names it."""

    name: str
    place: Path
    source: Source
    tree: Tree

    def section(self, key: str) -> Data:
        """A section of its file, as written."""
        return cast("Data", self.source.sections.get(key) or {})


def section_of(source: Source) -> MultiKueue | None:
    """The section; None where there is none, or where it is invalid, which `load` reports."""
    raw = source.sections.get(SECTION)
    try:
        return None if raw is None else MultiKueue.model_validate(raw)
    except ValidationError:
        return None


def own_name(source: Source) -> str:
    """The name of a stack by its file; empty without a file."""
    return FilePath(source.file).stem.removeprefix("Pulumi.")


def first_of(error: StackError) -> str:
    """The first problem of another stack, and how many more it has."""
    more = len(error.problems) - 1
    return f"{error.problems[0]}" + (f" (and {more} more)" if more else "")


def read_beside(source: Source, stack: str) -> Source:
    """The file of another stack, beside this one.

    Raises:
        StackError: it is missing or invalid YAML, or there are no files of stacks.
    """
    name = f"Pulumi.{stack}.yaml"
    if source.folder is None:
        rule = "is another stack, but stacks are files of a project, which a component does not have"
        raise StackError([Problem((SECTION,), rule, "deploy it as a stack of a project", stack)])
    shown = str(FilePath(source.file).with_name(name)) if source.file else name
    if not (source.folder / name).is_file():
        raise StackError([Problem((SECTION,), "is not a stack of this project", f"add {shown}", stack)])
    return read_file(source.folder / name, shown)


def read_workers(source: Source, found: MultiKueue, read: Read) -> tuple[list[Worker], list[Problem]]:
    """The workers of a manager, and what is wrong with those that cannot be read."""
    workers: list[Worker] = []
    problems: list[Problem] = []
    own = own_name(source)
    for index, worker in enumerate(found.workers):
        place = (SECTION, "workers", index, "stack")
        try:
            file = read_beside(source, worker.stack)
            stack = read(file)
        except StackError as error:
            rule = f"cannot be read: {first_of(error)}"
            problems.append(Problem(place, rule, f"run `tenancy stack validate {worker.stack}`", worker.stack))
            continue
        manager = stack.multikueue.manager if stack.multikueue else None
        if manager is None or (own and manager != own):
            fix = f"set multikueue: {{manager: {own or 'this stack'}}} in {file.file}"
            rule = f"has the manager {manager}" if manager else "has no manager, so nobody has rights in its cluster"
            problems.append(Problem(place, rule, fix, worker.stack))
            continue
        workers.append(Worker(worker.name, place[:-1], file, Tree(stack)))
    return workers, problems
