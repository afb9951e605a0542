"""Typed pieces of the SDK inside custom resources, whose specs the SDK passes on as they are."""

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic.alias_generators import to_camel

_OWN_KEYS: Final = frozenset({"annotations", "labels", "limits", "match_labels", "node_selector", "requests"})
"""Maps from names that are no field's."""


def wire(piece: Any) -> Any:
    """A typed piece (snake_case keys, as the SDK's `…ArgsDict`) as the API takes it: camelCase keys.

    Keys that are the user's own, such as a label's, come through as they are.
    """
    if isinstance(piece, Mapping):
        found = cast("Mapping[str, Any]", piece)
        return {_key(key): dict(value) if key in _OWN_KEYS else wire(value) for key, value in found.items()}
    if isinstance(piece, list):
        return [wire(each) for each in cast("list[Any]", piece)]
    return piece


def _key(key: str) -> str:
    return to_camel(key.removesuffix("_"))
