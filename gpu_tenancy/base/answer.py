"""How a command prints its answer: for a person, or in one of kubectl's other forms for programs."""

import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, TypeAlias, cast

import typer
import yaml
from rich.console import Group, RenderableType

from gpu_tenancy.base import terminal
from gpu_tenancy.base.output import PlainTable


class Form(StrEnum):
    """A form of an answer, as the values of kubectl's `-o`."""

    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    WIDE = "wide"


Output: TypeAlias = Annotated[
    Form | None,
    typer.Option(
        "--output",
        "-o",
        help="json, yaml, name (one name per line) or wide (all columns, also if the terminal is narrower).",
        show_default=False,
    ),
]
"""The option of a command that prints a table."""


def is_for_programs(form: Form | None) -> bool:
    """Whether standard output must have the answer only; sets whether tables are wide otherwise."""
    terminal.out.wide = form is Form.WIDE
    return form not in {None, Form.WIDE}


def answer(form: Form | None, data: object, *shown: RenderableType, names: Iterable[str] | None = None) -> None:
    """Prints the answer of a command: `data`, which JSON can express, for programs, and `shown` for a person.

    The form `name` prints `names`; without them, the first column of the first table of `shown`.
    """
    if is_for_programs(form):
        for_programs(form, data, _names(shown) if names is None else names)
        return
    for part in shown:
        terminal.out.print(part, highlight=False)


def for_programs(form: Form | None, data: object, names: Iterable[str]) -> None:
    """Prints an answer as JSON, as YAML, or as names."""
    short = isinstance(data, list) and all(isinstance(item, str) for item in cast("list[object]", data))
    # A list of names is one line, for the variable of a pipeline.
    text = json.dumps(data, indent=None if short else 2, ensure_ascii=False)
    match form:
        case Form.NAME:
            sys.stdout.write("".join(f"{name}\n" for name in names))
        case Form.YAML:
            # What JSON does not have, such as tuples, is as in JSON.
            sys.stdout.write(yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True))
        case _:
            sys.stdout.write(f"{text}\n")


def _names(shown: Iterable[RenderableType]) -> list[str]:
    for part in shown:
        if isinstance(part, PlainTable):
            return part.names
        if isinstance(part, Group) and (names := _names(part.renderables)):
            return names
    return []
