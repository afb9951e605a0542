"""Typed arguments of the SDK inside custom resources, whose specs the SDK does not convert."""

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic.alias_generators import to_camel

_OWN_KEYS: Final = frozenset({"annotations", "labels", "limits", "match_labels", "node_selector", "requests"})
"""Fields whose value is a map with keys of the user's choice."""


def wire(piece: Any) -> Any:
    """Converts the snake_case keys of an SDK's `…ArgsDict` to the API's camelCase.

    Keys of the user's choice, such as label keys, are unchanged.
    """
    if isinstance(piece, Mapping):
        found = cast("Mapping[str, Any]", piece)
        return {_key(key): dict(value) if key in _OWN_KEYS else wire(value) for key, value in found.items()}
    if isinstance(piece, list):
        return [wire(item) for item in cast("list[Any]", piece)]
    return piece


def _key(key: str) -> str:
    return to_camel(key.removesuffix("_"))
