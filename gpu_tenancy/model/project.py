"""A Pulumi project and its stacks, as their files declare them."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.texts import shortened
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source, read_file
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.yaml import read_mapping

_FILE: Final = "Pulumi.yaml"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def project_folder(given: Path | None = None) -> Path:
    """The folder of `Pulumi.yaml`: `given`, or the nearest one upwards. Raises ConsoleError without a project."""
    if given:
        if not (given / _FILE).is_file():
            fix = "specify the folder of a Pulumi project with --project"
            raise ConsoleError(f"{given}: no {_FILE} in this folder", fix)
        return given
    if folder := _nearest():
        return folder
    raise ConsoleError(
        f"{Path.cwd()}: no {_FILE} in this folder or its parents",
        "change to a Pulumi project, specify one with --project, or create one with `tenancy stack init FOLDER`",
    )


def in_project() -> bool:
    """Whether the working directory is in a Pulumi project."""
    return _nearest() is not None


def _nearest() -> Path | None:
    working = Path.cwd()
    return next((folder for folder in (working, *working.parents) if (folder / _FILE).is_file()), None)


def stack_names(project: Path | None = None) -> list[str]:
    """The names of a project's stacks, by their files in `stacks`, sorted. Raises ConsoleError if there are none."""
    project = project_folder(project)
    names = existing_stacks(project)
    if not names:
        raise ConsoleError(f"{project / 'stacks'}: no stack files", "add a file stacks/Pulumi.NAME.yaml")
    return names


def existing_stacks(project: Path) -> list[str]:
    """Like `stack_names`, but of a project that may have no stacks. Raises ConsoleError for an invalid name."""
    names = sorted(file.stem.removeprefix("Pulumi.") for file in (project / "stacks").glob("Pulumi.*.yaml"))
    for name in names:
        check_name(name)
    return names


def check_name(name: str) -> None:
    """Raises ConsoleError for a forbidden name: https://www.pulumi.com/docs/iac/concepts/stacks/#create-stack."""
    if not _NAME.fullmatch(name):
        fix = "use at most 100 letters, digits, '-', '_' and '.'; start with a letter, digit or '_'"
        raise ConsoleError(f"stack {shortened(name)} is not a valid name", fix)


def project_name(project: Path | None = None) -> str:
    """The name in a project's `Pulumi.yaml`. Raises ConsoleError if the project does not exist, or has no name."""
    file = project_folder(project) / _FILE
    name = read_mapping(file, "{name: my-platform, runtime: python}").get("name")
    if not isinstance(name, str):
        raise ConsoleError(f"{file}: the project has no name", "add name: my-platform")
    return name


def stack_file(project: Path, name: str) -> Path:
    """Path of a stack's file, whether or not it exists."""
    return project / "stacks" / f"Pulumi.{name}.yaml"


def read_stack(name: str, project: Path | None = None) -> Source:
    """The source of a stack. Raises ConsoleError if it is missing or misnamed, StackError for bad YAML or no config."""
    project = project_folder(project)
    check_name(name)
    file = stack_file(project, name)
    if not file.is_file():
        known = nearest(name, existing_stacks(project))
        raise ConsoleError(f"stack {name} does not exist", f"{known}; or add stacks/{file.name}")
    return read_file(file, f"stacks/{file.name}")


@dataclass(frozen=True, slots=True)
class Declared:
    """A valid stack that is not rendered yet, with the folder and the name of its project."""

    name: str
    project: Path
    project_name: str
    source: Source
    stack: Stack


def declared(name: str, project: Path | None = None) -> Declared:
    """Reads and validates a stack of a project, by default the nearest one from the working directory up.

    Raises ConsoleError without the project or the stack, StackError with every problem of the file.
    """
    project = project_folder(project)
    named, source = project_name(project), read_stack(name, project)
    return Declared(name, project, named, source, load(source))
