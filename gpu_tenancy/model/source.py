"""The source of a stack: its file or the Pulumi engine's config, as data with lines for errors."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path as FilePath
from typing import Any, Final, cast

from gpu_tenancy.base.bounds import read_json
from gpu_tenancy.base.problems import Path, Problem, StackError
from gpu_tenancy.model.spec import NAMESPACE
from gpu_tenancy.model.spec.secrets import CONFIG
from gpu_tenancy.model.yaml import UNREAD, Data, UnreadableError, read_yaml

SHARED_SECTIONS: Final = ("people", "teams")
"""Sections that can be in separate files: for several stacks, or because they are long."""
_SHARED_FILE: Final = re.compile(r"(?!Pulumi\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.yaml")


@dataclass(frozen=True)
class Source:
    """The content of a stack, not checked yet."""

    sections: Data  # the project's config by key, without the namespace
    file: str = ""  # the file as the reader would type it; empty without one
    lines: Mapping[Path, int] = field(default_factory=dict[Path, int])  # of each key and list entry, counted from 1
    unread: tuple[Path, ...] = ()  # places of encrypted values; their value is `UNREAD`
    secrets: tuple[Path, ...] = ()  # places of values that the engine decrypted
    files: Mapping[str, str] = field(default_factory=dict[str, str])  # by section, as the reader would type them
    folder: FilePath | None = None  # folder of other stacks' files; None without one, as in a component

    def file_of(self, path: Path) -> str:
        """The file that contains a place."""
        return self.files.get(str(path[0]), self.file) if path else self.file

    def line(self, path: Path) -> int | None:
        """The line of a place, or of the nearest section around it that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read_file(file: FilePath, shown: str | None = None) -> Source:
    """Reads `stacks/Pulumi.<stack>.yaml` without Pulumi; `secure:` values are not decrypted.

    Raises StackError: the file is missing or invalid YAML, or has duplicate keys or no config.
    """
    name = shown or str(file)
    try:
        content = read_yaml(file, name, instead="specify a stack that has a file")
    except UnreadableError as error:
        raise StackError([Problem(("config",), error.rule, error.fix, file=name, line=error.line)]) from error
    config: Any = value_at(content.data, ("config",))
    if not isinstance(config, dict):
        there = config is not None or not isinstance(content.data, dict | None)
        rule = "is not a mapping" if there else "required key is missing"
        fix = f"add the sections under config, such as {NAMESPACE}:teams"
        raise StackError([Problem(("config",), rule, fix, file=name)])
    if content.problems:
        raise StackError(replace(problem, path=_shown(problem.path)) for problem in content.problems)
    prefix = f"{NAMESPACE}:"
    own = ((key, value) for key, value in cast("Data", config).items() if key.startswith(prefix))
    sections = {key.removeprefix(prefix): value for key, value in own}
    within = (path for path in content.lines if len(path) > 1 and path[0] == "config")
    places = {path for path in within if str(path[1]).startswith(prefix)}
    lines = {_shown(path): line for path, line in content.lines.items() if path in places}
    unread = tuple(_shown(path) for path in content.unread if path in places)
    return with_files(Source(sections, name, lines, unread), file.parent)


def with_files(source: Source, folder: FilePath) -> Source:
    """The source with sections of separate files beside it, such as `people: people.yaml`.

    Raises StackError: such a file does not exist, is invalid YAML or has encrypted values.
    """
    hidden = {*source.unread, *source.secrets}
    for section in SHARED_SECTIONS:
        if isinstance(name := source.sections.get(section), str) and (section,) not in hidden:
            source = _with_file(source, section, name, folder)
    return replace(source, folder=folder)


def _with_file(source: Source, section: str, name: str, folder: FilePath) -> Source:
    if not _SHARED_FILE.fullmatch(name):
        rule = "is not a file beside the stack's file"
        fix = f"write the name of a file such as {section}.yaml, or a mapping"
        raise StackError([Problem((section,), rule, fix, name, file=source.file, line=source.line((section,)))])
    shown = str(FilePath(source.file).with_name(name)) if source.file else name
    try:
        content = read_yaml(folder / name, shown, instead=f"add the file, or write {section} as a mapping in the stack")
    except UnreadableError as error:
        raise StackError([Problem((section,), error.rule, error.fix, file=shown, line=error.line)]) from error
    lines = {(section, *path): line for path, line in content.lines.items()}
    problems = [replace(problem, path=(section, *problem.path)) for problem in content.problems]
    rule, fix = "is encrypted, which Pulumi decrypts only in a stack's file", f"write {section} in the stack's file"
    problems += [Problem((section, *path), rule, fix, file=shown, line=content.lines[path]) for path in content.unread]
    if problems:
        raise StackError(problems)
    return replace(
        source,
        sections={**source.sections, section: {} if content.data is None else content.data},
        lines={**source.lines, **lines},
        files={**source.files, section: shown},
    )


def read_config(config: Mapping[str, str], beside: Source | None = None) -> Source:
    """Config of the Pulumi engine: strings by full key, JSON for structured values.

    `beside`: the stack's file, for the order of keys and the lines of errors. Raises StackError: JSON with numbers or
    nesting that no stack has.
    """
    file = beside.file if beside else ""
    sections = {
        (section := key.removeprefix(f"{NAMESPACE}:")): _from_text(section, text, file)
        for key, text in config.items()
        if key.startswith(f"{NAMESPACE}:")
    }
    if beside is None:
        return Source(sections)
    # The engine decrypts secrets; where it did not, as in an offline preview, the value is unread as in the file.
    unread = tuple(path for path in beside.unread if value_at(sections, path) == UNREAD)
    secrets = tuple(path for path in beside.unread if value_at(sections, path) not in (None, UNREAD))
    return Source(_in_order(sections, beside.sections), beside.file, beside.lines, unread, secrets, beside.files)


def _in_order(value: Any, written: Any) -> Any:
    """The engine's value with its keys in the order of the file: the engine sorts them."""
    if isinstance(value, dict) and isinstance(written, dict):
        own, order = cast("Data", value), cast("Data", written)
        keys = dict.fromkeys([*(key for key in order if key in own), *own])
        return {key: _in_order(own[key], order.get(key)) for key in keys}
    if isinstance(value, list) and isinstance(written, list):
        entries = cast("list[Any]", value)
        others = cast("list[Any]", written)[: len(entries)]
        return [_in_order(entry, other) for entry, other in zip_longest(entries, others)]
    return cast("Any", value)


def to_config(source: Source) -> dict[str, str]:
    """The reverse of `read_config`: the engine's config for this source, with `UNREAD` for values of Secrets."""
    sections = {
        f"{NAMESPACE}:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in source.sections.items()
    }
    return {**sections, **{f"{CONFIG}:{name}": UNREAD for name in sorted(_config_names(source.sections.get("teams")))}}


def _config_names(teams: Any) -> Iterator[str]:
    """The values of Secrets that teams have from the Pulumi config, as far as the sections are valid."""
    for team in _mappings(teams):
        for secret in _mappings(team.get("secrets")):
            config = secret.get("config")
            names = cast("Data", config).values() if isinstance(config, dict) else ()
            yield from (name for name in names if isinstance(name, str))


def _mappings(around: Any) -> Iterator[Data]:
    values = cast("Data", around).values() if isinstance(around, dict) else ()
    return (cast("Data", value) for value in values if isinstance(value, dict))


def value_at(data: Any, path: Path, missing: object = None) -> Any:
    """The value at a place; `missing` without one."""
    for part in path:
        try:
            data = data[part]
        except (LookupError, TypeError):
            return missing
    return data


def _from_text(key: str, text: str, file: str) -> Any:
    if not text.startswith(("{", "[")):
        return text  # Not parsed: `123` may be the name of an environment.
    try:
        return read_json(text)
    except json.JSONDecodeError:
        return text
    except ValueError as error:
        raise StackError([Problem((key,), f"is not valid: {error}", "change it", file=file)]) from error


def _shown(path: Path) -> Path:
    """A place in the file as errors show it: without `config` and the namespace."""
    if len(path) > 1 and path[0] == "config":
        return (str(path[1]).removeprefix(f"{NAMESPACE}:"), *path[2:])
    return path
