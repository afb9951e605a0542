"""Pulumi's wire format made plain: the one place that knows how values travel in a protobuf Struct."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf.struct_pb2 import Struct, Value

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Path: TypeAlias = tuple[str | int, ...]
"""Where a value sits in its resource's inputs: keys of objects and indices of lists."""

# Published constants of Pulumi's protocol (sdk/go/common/resource/properties.go).
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a marker of the protocol, not a credential
_RESOURCE = "5cf8f73096256a8f31e491e813e4eb8e"


@dataclass(frozen=True, slots=True)
class Decoded:
    """The properties of one resource as plain JSON.

    Secrets are unwrapped and their places remembered; a value that only a cloud can tell stays the string
    `UNKNOWN`, and its place is remembered too. Keys are sorted, so that equal properties have equal text.
    """

    properties: dict[str, Json] = field(repr=False)
    secret_paths: tuple[Path, ...] = ()
    unknown_paths: tuple[Path, ...] = ()


class _Decoder:
    """One pass over a Struct; collects the places of secrets and unknowns on its way."""

    def __init__(self) -> None:
        self.secrets: list[Path] = []
        self.unknowns: list[Path] = []

    def fields(self, struct: Struct, at: Path) -> dict[str, Json]:
        fields = struct.fields
        return {key: self.value(fields[key], (*at, key)) for key in sorted(fields)}

    def value(self, value: Value, at: Path) -> Json:
        match value.WhichOneof("kind"):
            case "string_value":
                return self._text(value.string_value, at)
            case "number_value":
                number = value.number_value
                return int(number) if number.is_integer() else number
            case "bool_value":
                return value.bool_value
            case "struct_value":
                return self._struct(value.struct_value, at)
            case "list_value":
                return [self.value(item, (*at, index)) for index, item in enumerate(value.list_value.values)]
            case _:
                return None

    def _text(self, text: str, at: Path) -> str:
        if text == UNKNOWN:
            self.unknowns.append(at)
        return text

    def _struct(self, struct: Struct, at: Path) -> Json:
        fields = struct.fields
        signature = fields[SIGNATURE].string_value if SIGNATURE in fields else ""
        if signature == SECRET:
            self.secrets.append(at)
            return self.value(fields["value"], at)
        if signature == _RESOURCE:
            return fields["urn"].string_value
        return self.fields(struct, at)


def decode(struct: Struct) -> Decoded:
    """Reads a resource's properties off the wire.

    A reference to another resource becomes its URN. Whole numbers become `int`: a Struct has floats alone,
    and an API server refuses `8.0` replicas.
    """
    decoder = _Decoder()
    properties = decoder.fields(struct, ())
    return Decoded(properties, tuple(decoder.secrets), tuple(decoder.unknowns))


def replaced(value: Json, paths: Sequence[Path], text: str) -> Json:
    """Returns a copy of `value` in which whatever sits at one of `paths` is `text`."""
    if not paths:
        return value
    if any(path == () for path in paths):
        return text
    below: dict[str | int, list[Path]] = {}
    for head, *rest in paths:
        below.setdefault(head, []).append(tuple(rest))
    if isinstance(value, dict):
        return {key: replaced(item, below.get(key, ()), text) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, below.get(index, ()), text) for index, item in enumerate(value)]
    return value


def at(properties: Mapping[str, Json], *keys: str) -> Json:
    """The value under a chain of keys, or None where the chain breaks off."""
    here: Json | Mapping[str, Json] = properties
    for key in keys:
        if not isinstance(here, Mapping):
            return None
        here = here.get(key)
    return here if not isinstance(here, Mapping) else dict(here)


def text_at(properties: Mapping[str, Json], *keys: str) -> str:
    """The string under a chain of keys; anything else counts as absent, the empty string."""
    value = at(properties, *keys)
    return value if isinstance(value, str) else ""


def maps_at(properties: Mapping[str, Json], *keys: str) -> list[dict[str, Json]]:
    """The objects in the list under a chain of keys; anything else counts as absent, the empty list."""
    value = at(properties, *keys)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
