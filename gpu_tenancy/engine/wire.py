"""Decodes Pulumi's wire format, in which values are in a protobuf Struct."""

from dataclasses import dataclass, field
from sys import intern
from typing import Final

from google.protobuf.struct_pb2 import Struct, Value

from gpu_tenancy.base.json import Json, Path

# Published constants of Pulumi's protocol (sdk/go/common/resource/properties.go).
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a marker of the protocol, not a credential
_RESOURCE = "5cf8f73096256a8f31e491e813e4eb8e"

_SHORT: Final = 64
"""Characters of texts that many resources share, such as labels."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The properties of one resource as plain JSON.

    Secrets are unwrapped and listed in `secret_paths`. Unknown values are the string `UNKNOWN` and listed in
    `unknown_paths`. Keys are sorted, so that equal properties have equal text.
    """

    properties: dict[str, Json] = field(repr=False)
    secret_paths: tuple[Path, ...] = ()
    unknown_paths: tuple[Path, ...] = ()


class _Decoder:
    """Decodes one Struct and collects the paths of secret and unknown values."""

    def __init__(self) -> None:
        self.secrets: list[Path] = []
        self.unknowns: list[Path] = []

    def fields(self, struct: Struct, at: Path) -> dict[str, Json]:
        fields = struct.fields
        # Each message has its own copy of a key.
        return {intern(key): self.value(fields[key], (*at, key)) for key in sorted(fields)}

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
        return intern(text) if len(text) <= _SHORT else text

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
    """Decodes the properties of a resource.

    A reference to another resource becomes its URN. Whole numbers become `int`, because a Struct has only floats and an
    API server rejects `8.0` replicas.
    """
    decoder = _Decoder()
    properties = decoder.fields(struct, ())
    return Decoded(properties, tuple(decoder.secrets), tuple(decoder.unknowns))
