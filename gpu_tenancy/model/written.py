"""YAML source: a file as data with the line of each place, so that errors can show the line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, TypeAlias, cast

import yaml

from gpu_tenancy.model.problems import Path, Problem
from gpu_tenancy.model.spec.base import UNREAD

Data: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """The content of a file.

    Attributes:
        data: its root; None where the file is empty.
        lines: line of each key and list entry, counted from 1.
        unread: places of encrypted values (`secure:`); their value is `UNREAD`.
        problems: duplicate keys.
    """

    data: Any
    lines: Mapping[Path, int]
    unread: tuple[Path, ...]
    problems: tuple[Problem, ...]


class UnreadableError(Exception):
    """A file that cannot be read at all.

    Attributes:
        line: counted from 1; None where the problem is not in one line.
        rule: what is wrong.
        fix: what to do, in the imperative.
    """

    def __init__(self, line: int | None, rule: str, fix: str) -> None:
        self.line, self.rule, self.fix = line, rule, fix
        super().__init__(f"{rule}; {fix}")


def read_yaml(file: FilePath, shown: str, *, instead: str) -> Written:
    """Reads a file, with plain scalars typed as Pulumi types them.

    Args:
        file: to read.
        shown: its name in problems.
        instead: the fix where it cannot be opened, such as `specify a file of steps`.

    Raises:
        UnreadableError: the file cannot be opened, is not valid UTF-8, or is invalid YAML.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadableError(None, f"cannot read the file: {error.strerror}", instead) from error
    except UnicodeDecodeError as error:
        raise UnreadableError(None, "is not valid UTF-8", "save the file as UTF-8") from error
    reader = _Reader(shown)
    try:
        root = yaml.compose(text, _Loader)
        data = reader.value(root, ()) if root else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise UnreadableError(line, f"invalid YAML: {error.problem}", "fix the YAML syntax on this line") from error
    except yaml.YAMLError as error:  # Raised for characters that YAML forbids, without a line.
        raise UnreadableError(None, "invalid YAML: unprintable characters", "remove them") from error
    return Written(data, reader.lines, tuple(reader.unread), tuple(reader.problems))


class _Loader(yaml.SafeLoader):
    """Types plain scalars as Pulumi's reader does: `yes`, `on`, dates and `10:30` of YAML 1.1 stay strings."""


_FLOAT: Final = r"[-+]?([0-9][0-9_]*\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
_PLAIN: Final = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)", tuple("-+0123456789")),
    ("float", _FLOAT, tuple("-+0123456789.")),
    ("merge", r"<<", ("<",)),
)
setattr(  # noqa: B010 - the stub declares this class attribute as one of the instance
    _Loader,
    "yaml_implicit_resolvers",
    {
        first: [
            (f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{text})$")) for tag, text, firsts in _PLAIN if first in firsts
        ]
        for first in {first for _, _, firsts in _PLAIN for first in firsts}
    },
)


class _Reader:
    """Turns YAML nodes into plain data and records their lines."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.lines: dict[Path, int] = {}
        self.unread: list[Path] = []
        self.problems: list[Problem] = []
        self._scalars = _Loader("")

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(entry, (*path, index)) for index, entry in enumerate(node.value)]
        return cast("Any", self._scalars).construct_object(node)  # the stub does not type the result

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Any:
        self._report_duplicates(node, path)
        # Merged keys (`<<`) come first, so that this mapping's own keys override them.
        self._scalars.flatten_mapping(node)
        keys = [key.value for key, _ in node.value]
        if keys == ["secure"]:
            self.unread.append(path)
            return UNREAD
        data: Data = {}
        for key, value in node.value:
            here = (*path, str(key.value))
            self.lines[here] = key.start_mark.line + 1
            data[here[-1]] = self.value(value, here)
        return data

    def _report_duplicates(self, node: yaml.MappingNode, path: Path) -> None:
        first: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in first:
                rule = f"duplicate key, first set on line {first[name]} (YAML keeps the last)"
                self.problems.append(Problem((*path, name), rule, "remove one of them", file=self._file, line=line))
            first.setdefault(name, line)
