"""JSON values: their type, and access by a path of keys."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gpu_tenancy.base.grouping import grouped

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Path: TypeAlias = tuple[str | int, ...]  # keys of objects and indices of lists


def replaced(value: Json, paths: Sequence[Path], text: str) -> Json:
    """Returns a copy of `value` in which the values at `paths` are `text`."""
    if not paths:
        return value
    if any(path == () for path in paths):
        return text
    below = grouped((head, tuple(rest)) for head, *rest in paths)
    if isinstance(value, dict):
        return {key: replaced(item, below.get(key, ()), text) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, below.get(index, ()), text) for index, item in enumerate(value)]
    return value


def at(properties: Mapping[str, Json], *keys: str) -> Json:
    """The value at a path of keys; None if it does not exist."""
    value: Json = properties if isinstance(properties, dict) else dict(properties)
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return dict(value) if isinstance(value, dict) else value


def text_at(properties: Mapping[str, Json], *keys: str) -> str:
    """The string at a path of keys; the empty string if there is none."""
    value = at(properties, *keys)
    return value if isinstance(value, str) else ""


def maps_at(properties: Mapping[str, Json], *keys: str) -> list[dict[str, Json]]:
    """The objects in the list at a path of keys; the empty list if there are none."""
    value = at(properties, *keys)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def map_at(properties: Mapping[str, Json], *keys: str) -> dict[str, Json]:
    """The object at a path of keys; an empty one if there is none."""
    value = at(properties, *keys)
    return value if isinstance(value, dict) else {}


def texts_at(properties: Mapping[str, Json], *keys: str) -> dict[str, str]:
    """The object at a path of keys, such as labels, with its values as strings; an empty one if there is none."""
    return {key: str(value) for key, value in map_at(properties, *keys).items()}


def list_at(properties: Mapping[str, Json], *keys: str) -> list[str]:
    """The list at a path of keys, with its items as strings; the empty list if there is none."""
    value = at(properties, *keys)
    return [str(item) for item in value] if isinstance(value, list) else []


def int_at(properties: Mapping[str, Json], *keys: str, otherwise: int = 0) -> int:
    """The whole number at a path of keys; `otherwise` if there is none."""
    value = at(properties, *keys)
    return value if isinstance(value, int) else otherwise
