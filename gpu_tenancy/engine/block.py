"""YAML text of plain data: block style, with the same bytes as PyYAML and ten times as fast.

PyYAML turns each value into events and analyzes each character in Python. The objects of a stack have few kinds of
values, so most texts are written without it: `test_engine_files.py` compares both. Everything else is left to PyYAML.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, cast

import yaml

from gpu_tenancy.base.json import Json

_RARE_LINE_BREAK = re.compile(r"[\r\x85\u2028\u2029]")
_NUMBER_ELSEWHERE = re.compile(r"[-+]?(0o[0-7_]+|\.?[0-9][0-9_.]*([eE][-+]?[0-9]+)?)")
_SIMPLE: Final = re.compile(r"[A-Za-z0-9_/](?: ?[A-Za-z0-9_./,()=+-]|:(?=[A-Za-z0-9_./-]))*")
"""Texts that need at most quotes: no indicator of YAML at a place where it would count."""

_BEGIN_OF_LINE: Final = re.compile(r"(?<=\n)(?=[^\n])")
_KEY_LENGTH: Final = 100
"""Characters up to which a text can be a key on one line; PyYAML allows 128."""

_WIDTH: Final = 2**16
"""Characters after which PyYAML breaks lines."""

_TEXT_LENGTH: Final = _WIDTH // 2


class _Dumper(yaml.SafeDumper):
    """Writes YAML that every parser reads the same: block text, no anchors, quoted strings that look like numbers."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class gives the signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Indents lists under their key, as kubectl and most formatters do."""
        super().increase_indent(flow, indentless=False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _RARE_LINE_BREAK.search(text):
        style = '"'  # other styles do not escape these line breaks, and parsers normalize them
    elif "\n" in text:
        style = "|"
    elif _NUMBER_ELSEWHERE.fullmatch(text):
        # PyYAML follows YAML 1.1 and does not quote 1e3 and 0o17, which are numbers in YAML 1.2.
        style = "'"
    # The stub has no type for a scalar's value.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _represent_text)


class _NotSimpleError(Exception):
    """A value has a text that only PyYAML writes."""


def as_yaml(content: Mapping[str, Json]) -> str:
    """Returns plain data as YAML that every parser reads the same."""
    if not content:
        return "{}\n"
    parts: list[str] = []
    try:
        _write_mapping(content, "", parts)
    except _NotSimpleError:
        return by_pyyaml(content)
    return "".join(parts)


def by_pyyaml(content: Mapping[str, Json]) -> str:
    """Returns what `as_yaml` returns, written by PyYAML alone."""
    return yaml.dump(
        dict(content),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=_WIDTH,
        default_flow_style=False,
    )


def _write_mapping(content: Mapping[str, Json], indent: str, parts: list[str]) -> None:
    """Writes the lines of an object; the first one has no indent, because it can follow the hyphen of a list."""
    inside = f"{indent}  "
    before = ""
    for key, value in content.items():
        parts.append(f"{before}{_key(key)}:")
        if isinstance(value, dict) and value:
            parts.append(f"\n{inside}")
            _write_mapping(value, inside, parts)
        elif isinstance(value, list) and value:
            parts.append(f"\n{inside}")
            _write_sequence(value, inside, parts)
        else:
            parts.append(f" {_scalar(value, indent)}\n")
        before = indent


def _write_sequence(items: list[Json], indent: str, parts: list[str]) -> None:
    inside = f"{indent}  "
    before = ""
    for item in items:
        parts.append(f"{before}- ")
        if isinstance(item, dict) and item:
            _write_mapping(item, inside, parts)
        elif isinstance(item, list) and item:
            _write_sequence(item, inside, parts)
        else:
            parts.append(f"{_scalar(item, indent)}\n")
        before = indent


def _scalar(value: Json, indent: str) -> str:
    """A value on the line of its key or hyphen; lines that follow have two spaces more than `indent`."""
    if isinstance(value, str):
        text = _text(value)
        return text if "\n" not in text else _BEGIN_OF_LINE.sub(indent, text)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, float):
        raise _NotSimpleError
    return "[]" if isinstance(value, list) else "{}"


@lru_cache(maxsize=1024)
def _key(text: str) -> str:
    """A key as YAML.

    Raises:
        _NotSimpleError: it needs more than quotes.
    """
    if not _SIMPLE.fullmatch(text) or len(text) > _KEY_LENGTH:
        raise _NotSimpleError
    return _text(text)


@lru_cache(maxsize=4096)
def _text(text: str) -> str:
    """A value as YAML, in quotes if it would be a number, a date or another type without them.

    Lines after the first have the indent of an object at the top.
    """
    if len(text) > _TEXT_LENGTH:
        raise _NotSimpleError
    if _SIMPLE.fullmatch(text):
        return f"'{text}'" if _NUMBER_ELSEWHERE.fullmatch(text) or _has_type(text) else text
    written = by_pyyaml({"k": text})
    if written.endswith("\n...\n"):  # blank lines at the end of a block: a mark follows where the document ends too
        raise _NotSimpleError
    return written.removeprefix("k: ").removesuffix("\n")


def _has_type(text: str) -> bool:
    """Whether YAML 1.1 reads the text without quotes as another type than a string."""
    resolvers = cast("dict[str, list[tuple[str, re.Pattern[str]]]]", yaml.SafeDumper.yaml_implicit_resolvers)
    return any(pattern.match(text) for _, pattern in resolvers.get(text[0], ()))
