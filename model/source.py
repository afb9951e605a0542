"""A stack's file as data with positions, so that each error can name its line."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final, TypeAlias, cast

import yaml

from model.problems import Path, Problem, StackError
from model.spec import NAMESPACE
from model.spec.base import UNREAD

Data: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """What a stack says, before anyone judged it.

    Attributes:
        sections: the project's config by key, without the namespace.
        file: the file as the reader would type it; empty where there is none.
        lines: line of each key and list entry, counted from 1.
        unread: places of encrypted values, which hold `UNREAD`.
    """

    sections: Data
    file: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict[Path, int])
    unread: tuple[Path, ...] = ()

    def line(self, path: Path) -> int | None:
        """The line of a place, or of the nearest one around it that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read_file(file: FilePath, shown: str | None = None) -> Source:
    """Reads `stacks/Pulumi.<stack>.yaml` without Pulumi; `secure:` values stay unread.

    Raises:
        StackError: the file is missing, is no YAML, says a key twice, or has no config.
    """
    name = shown or str(file)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise StackError(
            [_of_file(name, None, f"cannot be read: {error.strerror}", "name a stack that has a file")]
        ) from error
    except UnicodeDecodeError as error:
        raise StackError([_of_file(name, None, "is no text in UTF-8", "save it as UTF-8")]) from error
    reader = _Reader(name)
    try:
        root = yaml.compose(text, _Loader)
        config = _config_of(reader.value(root, ())) if root else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        problem = _of_file(name, line, f"is no YAML: {error.problem}", "mend the syntax at this line")
        raise StackError([problem]) from error
    except yaml.YAMLError as error:  # A character that no YAML may hold, at no line.
        raise StackError(
            [_of_file(name, None, "is no YAML: it holds unprintable characters", "remove them")]
        ) from error
    if config is None:
        raise StackError(
            [_of_file(name, None, "has no config", f"write the sections under config, as {NAMESPACE}:teams")]
        )
    if reader.problems:
        raise StackError(reader.problems)
    return _own_sections(config, reader)


def read_config(config: Mapping[str, str], beside: Source | None = None) -> Source:
    """What the Pulumi engine hands to a program: full keys to text, JSON where the value is structured.

    Args:
        config: keys such as `gpu-tenancy:pools`.
        beside: the stack's own file, where it is at hand, for the lines of errors.
    """
    sections = {
        key.removeprefix(f"{NAMESPACE}:"): _from_text(text)
        for key, text in config.items()
        if key.startswith(f"{NAMESPACE}:")
    }
    if beside is None:
        return Source(sections)
    # The engine decrypts; where it has not, as in an offline preview, the value is as unread as it is in the file.
    unread = tuple(path for path in beside.unread if _holds(sections, path, UNREAD))
    return Source(sections, beside.file, beside.lines, unread)


def to_config(source: Source) -> dict[str, str]:
    """The reverse of `read_config`: what the engine would hand to the program for this source."""
    return {
        f"{NAMESPACE}:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in source.sections.items()
    }


def _config_of(content: Any) -> Data | None:
    config = cast("Data", content).get("config") if isinstance(content, dict) else None
    return cast("Data", config) if isinstance(config, dict) else None


def _holds(data: Any, path: Path, value: str) -> bool:
    for part in path:
        try:
            data = data[part]
        except (LookupError, TypeError):
            return False
    return data == value


def _from_text(text: str) -> Any:
    if not text.startswith(("{", "[")):
        return text  # `123` may be the name of an environment.
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _of_file(file: str, line: int | None, rule: str, mend: str) -> Problem:
    return Problem(("config",), rule, mend, file=file, line=line)


def _own_sections(config: Data, reader: "_Reader") -> Source:
    prefix = f"{NAMESPACE}:"
    sections = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}

    def own(path: Path) -> Path | None:
        if len(path) < 2 or path[0] != "config" or not str(path[1]).startswith(prefix):  # noqa: PLR2004 - config, key
            return None
        return (str(path[1]).removeprefix(prefix), *path[2:])

    lines = {mine: line for path, line in reader.lines.items() if (mine := own(path))}
    return Source(sections, reader.file, lines, tuple(mine for path in reader.unread if (mine := own(path))))


class _Loader(yaml.SafeLoader):
    """Plain scalars as Pulumi's own reader takes them: without YAML 1.1's `yes` and `on`, dates, and `10:30`."""


_FLOAT: Final = r"[-+]?([0-9][0-9_]*\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
_PLAIN: Final = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)", tuple("-+0123456789")),
    ("float", _FLOAT, tuple("-+0123456789.")),
    ("merge", r"<<", ("<",)),
)
setattr(  # noqa: B010 - its stub takes the class's own table for an instance's
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
    """Turns YAML nodes into plain data, noting where each stands."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Path, int] = {}
        self.unread: list[Path] = []
        self.problems: list[Problem] = []
        self._scalars = _Loader("")

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*path, index)) for index, each in enumerate(node.value)]
        return cast("Any", self._scalars).construct_object(node)  # its stub leaves the result open

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Any:
        self._twice(node, path)
        # What is merged in comes first, so what is written here goes before it.
        self._scalars.flatten_mapping(node)
        keys = [key.value for key, _ in node.value]
        if keys == ["secure"]:
            self.unread.append(path)
            return UNREAD
        found: Data = {}
        for key, value in node.value:
            here = (*path, str(key.value))
            self.lines[here] = key.start_mark.line + 1
            found[here[-1]] = self.value(value, here)
        return found

    def _twice(self, node: yaml.MappingNode, path: Path) -> None:
        first: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in first:
                rule = f"is written twice, first in line {first[name]}, and YAML keeps the last"
                place = _shown((*path, name))
                self.problems.append(Problem(place, rule, "keep one of them", file=self.file, line=line))
            first.setdefault(name, line)


def _shown(path: Path) -> Path:
    """A place of the whole file as a stack's author knows it: without `config` and the namespace."""
    if len(path) > 1 and path[0] == "config":
        return (str(path[1]).removeprefix(f"{NAMESPACE}:"), *path[2:])
    return path
