"""Validates values by JSON schemas, as far as policies' settings use them."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
_ROOT: Final = "value"
"""Place of a value that has no key."""


def wrong(schema: Mapping[str, Any], value: Any, at: str = "") -> list[str]:
    """The violations of a schema by a value, each with its place; empty if the value is valid.

    Supports types, bounds, lengths, patterns, enums, items, properties and `anyOf`, which the SDKs generate; the pack
    itself checks any other keyword.
    """
    place = at or _ROOT
    types = schema.get("type", [])
    listed = [types] if isinstance(types, str) else list(types)
    if listed and not any(_TYPES[name](value) for name in listed):
        return [f"{place}: {value!r} must be of type {' or '.join(listed)}"]
    problems: list[str] = []
    if "enum" in schema and value not in schema["enum"]:
        problems.append(f"{place}: {value!r} must be one of {', '.join(str(choice) for choice in schema['enum'])}")
    if "const" in schema and value != schema["const"]:
        problems.append(f"{place}: {value!r} must be {schema['const']!r}")
    choices = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    if choices and all(wrong(choice, value, at) for choice in choices):
        problems.append(f"{place}: {value!r} matches none of the allowed types")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        problems += _number(schema, value, place)
    elif isinstance(value, str):
        problems += _text(schema, value, place)
    elif isinstance(value, list):
        problems += _items(schema, cast("list[Any]", value), at)
    elif isinstance(value, dict):
        problems += _properties(schema, cast("dict[str, Any]", value), at)
    return problems


def _number(schema: Mapping[str, Any], value: float, place: str) -> Iterator[str]:
    bounds: tuple[tuple[str, Callable[[float, float], bool], str], ...] = (
        ("minimum", lambda number, bound: number >= bound, "at least"),
        ("maximum", lambda number, bound: number <= bound, "at most"),
        ("exclusiveMinimum", lambda number, bound: number > bound, "more than"),
        ("exclusiveMaximum", lambda number, bound: number < bound, "less than"),
    )
    for key, satisfies, comparison in bounds:
        if key in schema and not satisfies(value, schema[key]):
            yield f"{place}: {value:g} must be {comparison} {schema[key]:g}"


def _text(schema: Mapping[str, Any], value: str, place: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
        yield f"{place}: {value!r} is too short or too long"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{place}: {value!r} must match {schema['pattern']}"


def _items(schema: Mapping[str, Any], value: list[Any], at: str) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0) or len(value) > schema.get("maxItems", len(value)):
        yield f"{at or _ROOT}: {len(value)} items are too few or too many"
    if isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from wrong(schema["items"], item, f"{at}.{index}" if at else str(index))


def _properties(schema: Mapping[str, Any], value: dict[str, Any], at: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key in schema.get("required", []):
        if key not in value:
            yield f"{f'{at}.{key}' if at else key}: required setting is missing"
    for key, item in value.items():
        place = f"{at}.{key}" if at else key
        if key in known:
            yield from wrong(known[key], item, place)
        elif others is False:
            yield f"{place}: unknown setting"
        elif isinstance(others, dict):
            yield from wrong(cast("dict[str, Any]", others), item, place)
