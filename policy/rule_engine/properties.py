"""Properties in the protocol's JSON form, which remedies change."""

from typing import Any, cast

from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2

from rule_engine.reading import SIGNATURE, Path
from rule_engine.resources import Resource, read


def resource_of(type_: str, props: dict[str, Any]) -> Resource:
    """A resource with these properties, for a rule to check."""
    struct = Struct()
    struct.update(props)
    return read(analyzer_pb2.AnalyzeRequest(type=type_, properties=struct))


def value_at(props: dict[str, Any], path: Path) -> Any:
    """The value at a path, to be changed in place; None if there is none.

    Wrappers of secrets and outputs are skipped, and stay around the changed value.
    """
    value: Any = _unwrapped(props)
    for key in path:
        value = _unwrapped(_child(value, key))
        if value is None:
            return None
    return value


def _child(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return cast("list[Any]", value)[int(key)]
    return value.get(key)


def _unwrapped(value: Any) -> Any:
    inner = value
    while _is_wrapped(inner):
        inner = inner["value"]
    return inner


def _is_wrapped(value: object) -> bool:
    return isinstance(value, dict) and SIGNATURE in value and "value" in value
