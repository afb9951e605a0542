"""Properties as they go over the wire, for remedies: found at the places where rules read them."""

from typing import Any, cast

from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2

from judge.reading import SIGNATURE, Path
from judge.resources import Resource, read


def resource_of(type_: str, props: dict[str, Any]) -> Resource:
    """The resource that these properties are, for a rule to judge."""
    struct = Struct()
    struct.update(props)
    return read(analyzer_pb2.AnalyzeRequest(type=type_, properties=struct))


def found_at(props: dict[str, Any], path: Path) -> Any:
    """What is at a place, to be changed; None where nothing is.

    Marks of secrets and of outputs are looked through, and stay around what is changed in them.
    """
    found: Any = _unmarked(props)
    for key in path:
        found = _unmarked(_below(found, key))
        if found is None:
            return None
    return found


def _below(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return cast("list[Any]", value)[int(key)]
    return value.get(key)


def _unmarked(value: Any) -> Any:
    found = value
    while _is_marked(found):
        found = found["value"]
    return found


def _is_marked(value: object) -> bool:
    return isinstance(value, dict) and SIGNATURE in value and "value" in value
