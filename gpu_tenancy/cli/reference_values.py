"""Values of the stack reference: units of keys, defaults, and YAML on one line."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias, cast, get_args

import yaml
from pydantic import BeforeValidator

from gpu_tenancy.base.quantity import format_bytes, format_cpu, format_duration
from gpu_tenancy.model.fields import Bytes, Cpu, Seconds, Section

Schema: TypeAlias = Mapping[str, Any]


def default_text(schema: Schema, unit: str) -> str:
    """The default of a key with its unit, or `none`."""
    default = _filled(schema.get("default"))
    if default in (None, {}, [], ""):
        return "none"
    formats = {"cpu": format_cpu, "bytes": format_bytes, "seconds": format_duration}
    text = str(formats[unit](default)) if unit in formats else flow(_readable(default))
    return f"`{text}`"


def _filled(value: Any) -> Any:
    """A default without the keys that have none themselves."""
    if not isinstance(value, dict):
        return value
    filled = {key: _filled(entry) for key, entry in cast("dict[str, Any]", value).items()}
    return {key: entry for key, entry in filled.items() if entry not in (None, {}, [])}


def _readable(value: Any, key: str = "") -> Any:
    """A default with amounts as a stack writes them: inside sections they are millicores and bytes."""
    if isinstance(value, dict):
        return {key: _readable(entry, key) for key, entry in cast("dict[str, Any]", value).items()}
    formats = {"cpu": format_cpu, "memory": format_bytes, "size": format_bytes}
    return _number(formats[key](value)) if key in formats and isinstance(value, int) else value


def _number(text: str) -> str | int:
    return int(text) if text.isdigit() else text


@cache
def _units() -> Mapping[tuple[str, str], str]:
    """The unit of each key that has one, by section and key: the schema has one form for CPUs and for bytes."""
    return {(kind.__name__, key): unit for kind in _sections(Section) for key, unit in _units_of(kind)}


def _sections(kind: type[Section]) -> Iterator[type[Section]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _sections(inner)


def _units_of(kind: type[Section]) -> Iterator[tuple[str, str]]:
    kinds = {"cpu": Cpu, "bytes": Bytes, "seconds": Seconds}
    for field in kind.model_fields.values():
        # What marks a type lies in the field itself, or within an optional one.
        marks = [*field.metadata, *_marks(field.annotation)]
        for unit, alias in kinds.items():
            if any(mark in marks for mark in get_args(alias) if isinstance(mark, BeforeValidator)):
                yield field.alias or "", unit


def _marks(annotation: Any) -> Iterator[Any]:
    for argument in get_args(annotation):
        yield from get_args(argument)[1:]


def unit_of(section: str, key: str) -> str:
    """`cpu`, `bytes`, `seconds`, or empty for a key without a unit."""
    return _units().get((section, key), "")


class _Dumper(yaml.SafeDumper):
    """Writes `off` without quotes, since a stack has no such word for false."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class has it
        first: [(tag, form) for tag, form in resolvers if first in "tTfF" or not tag.endswith(":bool")]
        for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    text = text.removesuffix("\n").removesuffix("\n...")
    # At the top a pair needs no braces.
    return text[1:-1] if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1 else text
