"""Bounds of input from files and other programs, so that no input takes unbounded time or memory."""

import json
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import Path, Problem, dotted
from gpu_tenancy.base.texts import hidden, shortened

LARGEST: Final = 4 * 2**20  # bytes of a file; a stack with 3,000 teams has about 1.5 MiB
DEEPEST: Final = 50  # levels of mappings and lists inside each other; a stack with Helm values has about 15
MAX_VALUES: Final = 200_000  # values, also those of aliases at each use; a stack with 3,000 teams has about 70,000
LONGEST_KEY: Final = 1024  # characters of an implicit key in YAML: https://yaml.org/spec/1.2.2/#742-flow-mappings.
LARGEST_INTEGER: Final = 2**63 - 1  # as in the Kubernetes API
MOST_DIGITS: Final = 100  # characters of a number; more than any number within the bounds needs


def read_json(text: str) -> Any:
    """The value of a JSON text; raises ValueError for other texts, deep nesting, and numbers unlike JSON's or long."""

    def constant(text: str) -> Any:
        raise ValueError(f"{text} is not a JSON number")

    try:
        return json.loads(text, parse_constant=constant, parse_int=_number(int), parse_float=_number(float))
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _number(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if len(text) > MOST_DIGITS:
            raise ValueError(f"a number has {len(text):,} characters")
        return kind(text)

    return read


def value_problems(data: Any) -> Iterator[Problem]:
    """Problems of single values, of any key: invisible characters, numbers and nesting out of bounds."""
    waiting: list[tuple[Path, Any]] = [((), data)]
    while waiting:  # Not recursive: the data may be nested without a bound.
        path, value = waiting.pop()
        if isinstance(value, dict | list) and len(path) >= DEEPEST:
            yield Problem(path, f"is nested deeper than {DEEPEST} levels", "remove levels")
        elif isinstance(value, dict):
            for key, inner in cast("dict[Any, Any]", value).items():
                if problem := _key_problem(path, key):
                    yield problem
                else:
                    waiting.append(((*path, key), inner))
        elif isinstance(value, list):
            waiting += [((*path, index), inner) for index, inner in enumerate(cast("list[Any]", value))]
        elif rule := _rule(value):
            yield Problem(path, *rule)


def _key_problem(around: Path, key: Any) -> Problem | None:
    if not isinstance(key, str):
        return Problem(around, f"has the key {shortened(repr(key))}, which is not a string", "put it in quotes")
    if len(key) > LONGEST_KEY:
        return Problem((*around, key), f"is a key of {len(key):,} characters", f"use at most {LONGEST_KEY:,}")
    if sign := hidden(key, ""):
        return Problem((*around, key), f"is a key with {_named(sign)}", "remove it")
    return None


def _rule(value: Any) -> tuple[str, str, str | None] | None:
    """Rule, fix and value, as in a problem; None for a value within the bounds."""
    if isinstance(value, str):
        sign = hidden(value)
        return (f"contains {_named(sign)}", "remove it", shortened(value)) if sign else None
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        bits = value.bit_length()
        # Python refuses to write more than 4,300 digits; 3 bits are less than a digit.
        written = str(value) if bits <= 3 * MOST_DIGITS else f"a number of {bits:,} bits"
        return "is a number beyond 64 bits", f"set at most {LARGEST_INTEGER}", written
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number", "set a number", str(value)
    return None


def _named(sign: str) -> str:
    return f"the invisible character U+{ord(sign):04X}"


def check_values(file: pathlib.Path, data: Any) -> None:
    """Checks the data of a file against the bounds of values. Raises ConsoleError for the first value beyond them."""
    if problem := next(value_problems(data), None):
        raise ConsoleError(f"{file}: {dotted(problem.path)}: {problem.rule}", problem.fix)
