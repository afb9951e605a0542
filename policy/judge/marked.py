"""Properties in the protocol's JSON form, for remedies: found by the paths that rules use."""

from typing import Any, cast

from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2

from judge.reading import SIGNATURE, Path
from judge.resources import Resource, read


def resource_of(type_: str, props: dict[str, Any]) -> Resource:
    """A resource with these properties, for a rule to check."""
    struct = Struct()
    struct.update(props)
    return read(analyzer_pb2.AnalyzeRequest(type=type_, properties=struct))


def found_at(props: dict[str, Any], path: Path) -> Any:
    """The value at a path, to be changed in place; None if there is none.

    Wrappers of secrets and outputs are skipped, and stay around the changed value.
    """
    value: Any = _unmarked(props)
    for key in path:
        value = _unmarked(_below(value, key))
        if value is None:
            return None
    return value


def _below(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return cast("list[Any]", value)[int(key)]
    return value.get(key)


def _unmarked(value: Any) -> Any:
    inner = value
    while _is_marked(inner):
        inner = inner["value"]
    return inner


def _is_marked(value: object) -> bool:
    return isinstance(value, dict) and SIGNATURE in value and "value" in value
