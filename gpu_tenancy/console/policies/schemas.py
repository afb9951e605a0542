"""Values held against JSON schemas, as far as policies' settings use them."""

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


def wrong(schema: Mapping[str, Any], value: Any, at: str = "") -> list[str]:
    """What of a value a schema does not allow, each with its place; empty where all is well.

    Knows types, bounds, lengths, patterns, choices, items, properties and `anyOf`, which is what SDKs make of settings;
    any other keyword is left to the pack itself.
    """
    place = at or "it"
    types = schema.get("type", [])
    listed = [types] if isinstance(types, str) else list(types)
    if listed and not any(_TYPES[each](value) for each in listed):
        return [f"{place} is {value!r}, and must be of type {' or '.join(listed)}"]
    found: list[str] = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place} is {value!r}, and must be one of {', '.join(str(each) for each in schema['enum'])}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{place} is {value!r}, and must be {schema['const']!r}")
    choices = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    if choices and all(wrong(each, value, at) for each in choices):
        found.append(f"{place} is {value!r}, which none of its kinds allows")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        found += _number(schema, value, place)
    elif isinstance(value, str):
        found += _text(schema, value, place)
    elif isinstance(value, list):
        found += _items(schema, cast("list[Any]", value), at)
    elif isinstance(value, dict):
        found += _properties(schema, cast("dict[str, Any]", value), at)
    return found


def _number(schema: Mapping[str, Any], value: float, place: str) -> Iterator[str]:
    bounds: tuple[tuple[str, Callable[[float, float], bool], str], ...] = (
        ("minimum", lambda number, bound: number >= bound, "at least"),
        ("maximum", lambda number, bound: number <= bound, "at most"),
        ("exclusiveMinimum", lambda number, bound: number > bound, "more than"),
        ("exclusiveMaximum", lambda number, bound: number < bound, "less than"),
    )
    for key, holds, words in bounds:
        if key in schema and not holds(value, schema[key]):
            yield f"{place} is {value:g}, and must be {words} {schema[key]:g}"


def _text(schema: Mapping[str, Any], value: str, place: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
        yield f"{place} is {value!r}, which is too short or too long"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{place} is {value!r}, and must match {schema['pattern']}"


def _items(schema: Mapping[str, Any], value: list[Any], at: str) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0) or len(value) > schema.get("maxItems", len(value)):
        yield f"{at or 'it'} has {len(value)} items, which are too few or too many"
    if isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from wrong(schema["items"], item, f"{at}.{index}" if at else str(index))


def _properties(schema: Mapping[str, Any], value: dict[str, Any], at: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key in schema.get("required", []):
        if key not in value:
            yield f"{f'{at}.{key}' if at else key} is required"
    for key, item in value.items():
        place = f"{at}.{key}" if at else key
        if key in known:
            yield from wrong(known[key], item, place)
        elif others is False:
            yield f"{place} is not known"
        elif isinstance(others, dict):
            yield from wrong(cast("dict[str, Any]", others), item, place)
