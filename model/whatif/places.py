"""A YAML file's data with the line of each place, so that each mistake in it names its line."""

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any, cast

import yaml

from model.problems import Path, Problem
from model.source import Data, Source


class UnreadableError(Exception):
    """A file of which nothing can be read, in a sentence."""


def read_places(file: FilePath) -> tuple[Source, list[Problem]]:
    """Reads a file whose root is a mapping; with the keys that it says twice.

    Raises:
        UnreadableError: it is missing, is no text, is no YAML, or is no mapping.
    """
    try:
        text = file.read_text(encoding="utf-8")
        root = yaml.compose(text, yaml.SafeLoader)
        data: Any = yaml.safe_load(text)
    except OSError as error:
        msg = f"{file}: cannot be read: {error.strerror}; name a file of steps"
        raise UnreadableError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{file}: is no text in UTF-8; save it as UTF-8"
        raise UnreadableError(msg) from error
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        msg = f"{file}{line}: is no YAML: {error.problem}; mend the syntax at this line"
        raise UnreadableError(msg) from error
    except (yaml.YAMLError, ValueError) as error:  # An unprintable character, or a date that is none.
        msg = f"{file}: is no YAML: {error}; write steps, each with submit and finish"
        raise UnreadableError(msg) from error
    if root is None or not isinstance(data, dict):
        msg = f"{file}: is no mapping of keys; write steps, each with submit and finish"
        raise UnreadableError(msg)
    lines: dict[Path, int] = {}
    twice: list[Problem] = []
    for path, line in _places(root, (), set()):
        if path in lines:
            rule = f"is written twice, first in line {lines[path]}, and YAML keeps the last"
            twice.append(Problem(path, rule, "keep one of them", file=str(file), line=line))
        lines.setdefault(path, line)
    return Source(cast("Data", data), str(file), lines), twice


def _places(node: yaml.Node, path: Path, seen: set[int]) -> Iterator[tuple[Path, int]]:
    if id(node) in seen:  # What an anchor stands for has its place where it is written.
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            yield here, key.start_mark.line + 1
            yield from _places(value, here, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, each in enumerate(node.value):
            yield (*path, index), each.start_mark.line + 1
            yield from _places(each, (*path, index), seen)
