"""YAML: files of users within bounds and with the line of each place, and tables of this program.

Plain scalars have the types that Pulumi gives them: `yes`, `on`, dates and `10:30` of YAML 1.1 stay strings.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, TypeAlias, TypeVar, cast

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.reader import ReaderError
from yaml.resolver import Resolver

from gpu_tenancy.base.bounds import DEEPEST, LARGEST, LONGEST_KEY, MAX_VALUES, MOST_DIGITS
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import ANY, Path, Problem, dotted
from gpu_tenancy.base.texts import shortened, visible
from gpu_tenancy.model.names import UNREAD

Data: TypeAlias = dict[str, Any]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Written:
    """The content of a file."""

    data: Any  # root; None if the file is empty
    lines: Mapping[Path, int]  # line of each key and list entry, counted from 1
    unread: tuple[Path, ...]  # places of encrypted values (`secure:`); their value is `UNREAD`
    problems: tuple[Problem, ...]  # duplicate keys, and values without a type; their value is None


class UnreadableError(Exception):
    """A file that cannot be read, with the broken rule and the fix; `line` is counted from 1, None without one line."""

    def __init__(self, line: int | None, rule: str, fix: str) -> None:
        self.line, self.rule, self.fix = line, rule, fix
        super().__init__(f"{rule}; {fix}")

    def at(self, file: FilePath) -> ConsoleError:
        """The error for a command that reads this file of its user."""
        return ConsoleError(f"{file}{f':{self.line}' if self.line else ''}: {self.rule}", self.fix)


def read_yaml(file: FilePath, shown: str, *, instead: str) -> Written:
    """Reads a file of a user, and the line of each place, within the bounds of `gpu_tenancy/base/bounds.py`.

    Problems name the file as `shown`; `instead` is the fix if it cannot be opened, such as `specify a file of steps`.
    Raises UnreadableError: the file cannot be opened, is too large, is not valid UTF-8, or is invalid YAML.
    """
    reader = _Reader(shown)
    root = compose(_text(file, instead))
    data = reader.value(root, ()) if root else None
    return Written(data, reader.lines, tuple(reader.unread), tuple(reader.problems))


def read_documents(file: FilePath, shown: str, *, instead: str) -> list[Any]:
    """The documents of a file of Kubernetes objects, within the same bounds; `secure` is a key like others.

    Raises UnreadableError as `read_yaml`, or a key is a duplicate, or a value does not have the type of its tag.
    """
    reader = _Reader(shown, encrypted="")
    text = _text(file, instead)
    roots = _loaded(text, lambda loader: list(yaml.compose_all(text, loader)))
    documents = [reader.value(root, ()) for root in roots]
    for problem in reader.problems:
        raise UnreadableError(problem.line, f"{dotted(problem.path)}: {problem.rule}", problem.fix)
    return documents


def read_table(file: FilePath) -> Any:
    """Plain data of a YAML file of this program, unchecked. Raises OSError, or UnreadableError if it is not YAML."""
    return parse(file.read_bytes())


def read_mapping(file: FilePath, example: str) -> Data:
    """The mapping of a user's file, unchecked; raises ConsoleError if it is not YAML, or another value."""
    try:
        found = read_table(file)
    except UnreadableError as error:
        raise error.at(file) from error
    if not isinstance(found, dict):
        raise ConsoleError(f"{file}: expected a mapping such as {example}", "change it")
    return cast("Data", found)


def parse(content: str | bytes) -> Any:
    """The plain data of a YAML text of any size; the last of several equal keys has the value.

    Raises UnreadableError: not YAML, nested too deeply, or an alias inside the value of its anchor.
    """
    text = content if isinstance(content, str) else _decoded(content)
    return _loaded(text, lambda loader: yaml.load(text, loader))  # noqa: S506 - a safe loader


def parse_all(content: str | bytes) -> Iterator[Any]:
    """Lazily yields the plain data of each document of such a text, without empty ones. Raises as `parse`."""
    text = content if isinstance(content, str) else _decoded(content)
    try:
        yield from (document for document in yaml.load_all(text, _FAST) if document is not None)
    except yaml.YAMLError as error:
        raise _unreadable(text, error) from error


def compose(text: str) -> yaml.Node | None:
    """The root of a YAML text, with the place of each value; None for an empty text. Raises as `parse`."""
    return _loaded(text, lambda loader: yaml.compose(text, loader))


def _text(file: FilePath, instead: str) -> str:
    try:
        if file.stat().st_size > LARGEST:
            rule = f"is larger than {LARGEST // 2**20} MiB"
            raise UnreadableError(None, rule, "split it, or remove what is not used")
        return _decoded(file.read_bytes())
    except OSError as error:
        raise UnreadableError(None, f"cannot read the file: {error.strerror}", instead) from error


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(None, "is not valid UTF-8", "save the file as UTF-8") from error


def _loaded(text: str, load: Callable[[Any], _T]) -> _T:
    """Reads by libyaml, ten times as fast; PyYAML's own parser has the better errors."""
    with suppress(yaml.YAMLError, ValueError):
        return load(_FAST)
    try:
        return load(_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(text, error) from error


def _unreadable(text: str, error: Exception) -> UnreadableError:
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        return UnreadableError(line, f"contains the invisible character U+{code:04X}", "remove it")
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else error
    rule = f"invalid YAML: {visible(str(problem))}"
    return UnreadableError(mark.line + 1 if mark else None, rule, "fix the YAML syntax on this line")


class _Bounded(Composer):
    """Reads nesting up to a bound, because PyYAML recurses, and no alias of a value that contains it."""

    _around: list[str | None]
    """Anchors of the values that are being read, outermost first."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = cast("Any", self).peek_event()  # the stub does not type the result
        line = int(event.start_mark.line) + 1
        anchor: str | None = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent) and anchor in self._around:
            name = shortened(str(anchor))
            raise UnreadableError(line, f"alias *{name} is inside the value of its anchor &{name}", "remove the alias")
        _check_depth(len(self._around), line)
        self._around.append(anchor)
        node = super().compose_node(parent, index)
        self._around.pop()
        return node


class _Loader(_Bounded, yaml.SafeLoader):
    def __init__(self, stream: str) -> None:
        yaml.SafeLoader.__init__(self, stream)
        self._around = []


def _by_libyaml() -> Any:
    """The same loader on the parser of libyaml; PyYAML can be built without it."""
    if not yaml.__with_libyaml__:
        return _Loader
    parser: Any = importlib.import_module("yaml.cyaml").CParser

    class Fast(_Bounded, parser, SafeConstructor, Resolver):
        def __init__(self, stream: str) -> None:
            parser.__init__(self, stream)
            Composer.__init__(self)
            self._around = []
            SafeConstructor.__init__(self)
            Resolver.__init__(self)

    return Fast


_FLOAT: Final = r"[-+]?([0-9][0-9_]*\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
_PLAIN: Final = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)", tuple("-+0123456789")),
    ("float", _FLOAT, tuple("-+0123456789.")),
    ("merge", r"<<", ("<",)),
)
_RESOLVERS: Final = {
    first: [
        (f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{text})$")) for tag, text, firsts in _PLAIN if first in firsts
    ]
    for first in {first for _, _, firsts in _PLAIN for first in firsts}
}
_FAST: Final = _by_libyaml()
for _loader in (_Loader, _FAST):
    setattr(_loader, "yaml_implicit_resolvers", _RESOLVERS)  # noqa: B010 - the stub declares it of the instance


def _check_depth(levels: int, line: int) -> None:
    if levels > DEEPEST:
        raise UnreadableError(line, f"is nested deeper than {DEEPEST} levels", "remove levels")


_NUMBERS: Final = {"tag:yaml.org,2002:int": "an integer", "tag:yaml.org,2002:float": "a number"}
_TYPED: Final = {**_NUMBERS, "tag:yaml.org,2002:bool": "true or false", "tag:yaml.org,2002:null": "null"}
_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"


class _Reader:
    """Turns YAML nodes into plain data and records their lines."""

    def __init__(self, file: str, *, encrypted: str = "secure") -> None:
        """Args: the file's name in problems, and the only key of a mapping with an encrypted value."""
        self._file, self._encrypted = file, encrypted
        self.lines: dict[Path, int] = {}
        self.unread: list[Path] = []
        self.problems: list[Problem] = []
        self._scalars = _Loader("")
        self._merged: dict[yaml.Node, dict[str, tuple[yaml.Node, yaml.Node]]] = {}
        self._size = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        _check_depth(len(path), line)  # Here again, because a value of an alias may have an alias in it.
        self._count(1, line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(entry, (*path, index)) for index, entry in enumerate(node.value)]
        # Text counts too: an alias of a long text is cheap here, but not where the data is written.
        self._count(len(node.value) // 100, line)
        return self._scalar(node, path)

    def _count(self, values: int, line: int) -> None:
        self._size += values
        if self._size > MAX_VALUES:
            rule = f"has more than {MAX_VALUES:,} values with those of aliases"
            raise UnreadableError(line, rule, "use fewer aliases")

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        fix = "remove the tag"
        if node.tag in _NUMBERS and len(node.value) > MOST_DIGITS:
            rule, fix = f"is a number of {len(node.value):,} characters", f"use at most {MOST_DIGITS}"
        elif node.tag not in _TYPED and node.tag != _TEXT:
            rule = f"has the tag {shortened(node.tag)}, which is not supported"
        else:
            try:
                return cast("Any", self._scalars).construct_object(node)  # the stub does not type the result
            except (ValueError, LookupError):  # A tag that the text does not match, such as `!!int many`.
                rule = f"is not {_TYPED.get(node.tag, 'a string')}, as its tag says"
        line = node.start_mark.line + 1
        self.problems.append(Problem(path, rule, fix, shortened(node.value), file=self._file, line=line))
        return None

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Any:
        self._report_duplicates(node, path)
        pairs = self._pairs(node)
        if list(pairs) == [self._encrypted]:
            self.unread.append(path)
            return UNREAD
        data: Data = {}
        for name, (key, value) in pairs.items():
            here = (*path, name)
            self.lines[here] = key.start_mark.line + 1
            data[name] = self.value(value, here)
        return data

    def _pairs(self, node: yaml.MappingNode, levels: int = 0) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Key and value nodes by key, with merged keys (`<<`) first, so that this mapping's own keys override them.

        https://yaml.org/type/merge.html. Each mapping is merged only once.
        """
        if node in self._merged:
            return self._merged[node]
        _check_depth(levels, node.start_mark.line + 1)
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for _, value in (pair for pair in node.value if pair[0].tag == _MERGE):
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for source in reversed(sources):  # The first of several overrides the others.
                if not isinstance(source, yaml.MappingNode):
                    line = source.start_mark.line + 1
                    raise UnreadableError(line, "<< merges a value that is not a mapping", "merge a mapping")
                merged = self._pairs(source, levels + 1)
                self._count(len(merged), source.start_mark.line + 1)
                pairs |= merged
        pairs |= {_name(key): (key, value) for key, value in node.value if key.tag != _MERGE}
        self._merged[node] = pairs
        return pairs

    def _report_duplicates(self, node: yaml.MappingNode, path: Path) -> None:
        first: dict[str, int] = {}
        for key, _ in node.value:
            name, line = _name(key), key.start_mark.line + 1
            if name in first:
                rule = f"duplicate key, first set on line {first[name]} (YAML keeps the last)"
                self.problems.append(Problem((*path, name), rule, "remove one of them", file=self._file, line=line))
            first.setdefault(name, line)


def _name(key: yaml.Node) -> str:
    line = key.start_mark.line + 1
    if not isinstance(key, yaml.ScalarNode):
        raise UnreadableError(line, "has a key that is a mapping or a list", "use a string as key")
    name = str(key.value)
    if len(name) > LONGEST_KEY:
        raise UnreadableError(line, f"has a key of {len(name):,} characters", f"use at most {LONGEST_KEY:,}")
    return name


class Places:
    """A set of places that answers in constant time: a file can have tens of thousands of invalid ones."""

    def __init__(self, places: Iterable[Path] = ()) -> None:
        self._places = set[Path]()
        self._around = set[Path]()  # the places and all that they are in
        self._wild: list[Path] = []  # places with `ANY`
        self.update(places)

    def update(self, places: Iterable[Path]) -> None:
        """Adds places."""
        for place in places:
            if place in self._places:
                continue
            self._places.add(place)
            self._around.update(place[:length] for length in range(len(place) + 1))
            if ANY in place:
                self._wild.append(place)

    def touch(self, place: Path) -> bool:
        """Whether one of them is the place, contains it or is within it; `ANY` matches each key."""
        if place in self._around or any(place[:length] in self._places for length in range(len(place))):
            return True
        others = self._places if ANY in place else self._wild
        return any(_match(place, other) for other in others)


def _match(one: Path, other: Path) -> bool:
    return all(a == b or ANY in {a, b} for a, b in zip(one, other, strict=False))
