"""A resource's properties as rules read them: plain values with their paths, unknown values, and fields of patches.

Of a patch (`NamespacePatch`), a conclusion from a set field is true of the patched object too; one from a field that is
not set is unknown, because the patch leaves it to the object.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf.struct_pb2 import Struct, Value
from pulumi_policy import proxy
from typing_extensions import override

from rule_engine.values import Secrets, format_float, quantity

T = TypeVar("T")
Path: TypeAlias = tuple[str, ...]

_IDENTITY: Final = frozenset(  # fields by which the API server finds the object, equal in object and patch
    {("apiVersion",), ("kind",), ("metadata", "generateName"), ("metadata", "name"), ("metadata", "namespace")}
)
_MERGED: Final = frozenset({"containers", "env", "ephemeralContainers", "initContainers", "volumes", "matchConditions"})
"""Lists that server-side apply merges by `name`. Most other lists are replaced as a whole:
https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy."""


@dataclass(slots=True)
class Reads:
    """The fields of a patch that were read: `present` ones in the order of reading, and `absent` ones."""

    present: dict[Path, None] = field(default_factory=dict[Path, None])
    absent: dict[Path, None] = field(default_factory=dict[Path, None])

    def note(self, path: Path, *, present: bool) -> None:
        """Notes that a field was read."""
        is_key = path[-1] == "name" and not _MERGED.isdisjoint(path[-3:-2])
        if not is_key and path not in _IDENTITY and path[0] != "status":
            (self.present if present else self.absent)[path] = None

    def take(self) -> "Reads":
        """Returns the noted fields, and forgets them here."""
        taken = Reads(dict(self.present), dict(self.absent))
        self.present.clear()
        self.absent.clear()
        return taken

    def add(self, other: "Reads") -> None:
        """Adds the fields that another one noted."""
        self.present.update(other.present)
        self.absent.update(other.absent)


def is_whole(field: str, *, is_list: bool) -> bool:
    """Whether server-side apply replaces a field's list or map as a whole, so that a patch has all of it.

    Maps are merged, except selectors and references: `+structType=atomic` in the API's types.
    """
    if is_list:
        return field not in _MERGED
    return field.lower().endswith(("selector", "ref"))


class Entries(Mapping[str, T]):
    """The entries of a map of a patch; `note` is called with each key that is read, and its entry or None."""

    def __init__(self, entries: Mapping[str, T], note: Callable[[str, T | None], None]) -> None:
        self._entries, self._note = entries, note

    @override
    def __getitem__(self, key: str) -> T:
        self._note(key, self._entries.get(key))
        return self._entries[key]

    @override
    def __iter__(self) -> Iterator[str]:
        for key in self._entries:
            self._note(key, self._entries[key])
            yield key

    @override
    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that exists but cannot be read; messages put the reason after the path."""

    why: str = "is unknown until deployment"


class UnknownValueError(Exception):
    """A rule needs an unknown value, or one without the type that its API requires; `why` never has the value.

    All that reads properties raises it, so docstrings of packs name it only where there are other reasons.
    """

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{'.'.join(path)} {why}")


class UnknownValues:
    """Collects unknown values and raises them at the end, so that they hide no known value."""

    def __init__(self) -> None:
        self.errors: list[UnknownValueError] = []

    @contextmanager
    def collected(self) -> Generator[None]:
        """Keeps an `UnknownValueError` of the block, which ends the block."""
        try:
            yield
        except UnknownValueError as error:
            self.errors.append(error)

    def raise_first(self) -> None:
        """Raises the first of the errors, if there is one."""
        if self.errors:
            raise self.errors[0]


Plain: TypeAlias = "bool | float | str | list[Plain] | dict[str, Plain] | Unknown | None"

# Published constants of Pulumi's protocol: sdk/go/common/resource/properties.go in pulumi/pulumi.
SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a marker of the protocol, not a credential
_OUTPUT: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
_UNKNOWN: Final = Unknown()
_FILE: Final = Unknown("is a file, an archive or a resource reference, which policies cannot read")
UNKNOWNS: Final = frozenset(
    {
        proxy.UNKNOWN_ARCHIVE_VALUE,
        proxy.UNKNOWN_ARRAY_VALUE,
        proxy.UNKNOWN_ASSET_VALUE,
        proxy.UNKNOWN_BOOLEAN_VALUE,
        proxy.UNKNOWN_NUMBER_VALUE,
        proxy.UNKNOWN_OBJECT_VALUE,
        proxy.UNKNOWN_STRING_VALUE,
    }
)

_Pending: TypeAlias = "list[tuple[Any, dict[str, Plain] | list[Plain]]]"  # each Struct or list, with the map to fill


def read_struct(struct: Struct, secrets: Secrets) -> dict[str, Plain]:
    """The plain properties of a Struct: unknown values become `Unknown`, secrets their value, which `secrets` collects.

    Without recursion, so that no depth of nesting ends the evaluation.
    """
    properties: dict[str, Plain] = {}
    pending: _Pending = [(struct, properties)]
    secret: list[Plain] = []
    while pending:
        message, plain = pending.pop()
        if isinstance(plain, dict):
            for key, value in message.fields.items():
                plain[key] = _plain(value, pending, secret)
        else:
            for value in message.values:
                plain.append(_plain(value, pending, secret))
    for value in secret:
        secrets.keep(value)
    return properties


def _plain(value: Value, pending: "_Pending", secret: list[Plain]) -> Plain:
    """A value; a map or a list is empty at first, and `pending` until it is filled."""
    # Most frequent kinds first: a pack spends most of its time here.
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        text = value.string_value
        return _UNKNOWN if text in UNKNOWNS else text
    if kind == "struct_value":
        return _map(value.struct_value, pending, secret)
    if kind == "number_value":
        return value.number_value
    if kind == "list_value":
        items: list[Plain] = []
        pending.append((value.list_value, items))
        return items
    return value.bool_value if kind == "bool_value" else None


def _map(struct: Struct, pending: "_Pending", secret: list[Plain]) -> Plain:
    """A map, or the value that the protocol wraps in one: a secret, an output, a file."""
    is_secret = False
    while SIGNATURE in struct.fields:
        fields = struct.fields
        signature = fields[SIGNATURE].string_value
        if signature not in {SECRET, _OUTPUT}:
            return _FILE
        is_secret = is_secret or signature == SECRET or ("secret" in fields and fields["secret"].bool_value)
        if "value" not in fields:
            return _UNKNOWN
        if fields["value"].WhichOneof("kind") != "struct_value":
            inner = _plain(fields["value"], pending, secret)
            break
        struct = fields["value"].struct_value
    else:
        properties: dict[str, Plain] = {}
        pending.append((struct, properties))
        inner = properties
    if is_secret:
        secret.append(inner)
    return inner


class View:
    """One value and its path. Missing values read as empty; unknown values raise.

    All methods take the keys of the path below this value, and raise `UnknownValueError` if a value on that path is
    unknown or has another type. A view of a patch notes the fields that are read.

    Example:
        >>> View({"spec": {"replicas": 3.0}}).number("spec", "replicas")
        Decimal('3')
    """

    __slots__ = ("path", "reads", "value")

    def __init__(self, value: Plain, path: Path = (), reads: Reads | None = None) -> None:
        self.value = value
        self.path = path
        self.reads = reads

    def at(self, *keys: str) -> "View":
        """The value under these keys; a view of None if one of them is missing."""
        value, path, reads = self.value, self.path, self.reads
        for key in keys:
            value, path = _mapping(value, path).get(key), (*path, key)
            if reads is not None and (isinstance(value, Unknown) or _is_whole(value, path)):
                reads.note(path, present=True)
                # The patch sets all of it, so missing fields are known too.
                reads = Reads(reads.present, reads.present)
        if reads is not None and not isinstance(value, (dict, list)):
            reads.note(path, present=value is not None)
        if isinstance(value, Unknown):
            raise UnknownValueError(path, value.why)
        return View(value, path, reads)

    def as_part(self) -> "View":
        """The same value, known to be a part: missing fields are not noted."""
        return self if self.reads is None else View(self.value, self.path, Reads(self.reads.present))

    def has(self, *keys: str) -> bool:
        """Whether a value exists, known or unknown."""
        if not keys:
            return self.value is not None
        above = self.at(*keys[:-1])
        value = _mapping(above.value, above.path).get(keys[-1])
        if above.reads is not None:
            above.reads.note((*above.path, keys[-1]), present=value is not None)
        return value is not None

    def text(self, *keys: str, default: str = "") -> str:
        """A string; numbers and booleans are converted."""
        view = self.at(*keys)
        match view.value:
            case None:
                return default
            case str():
                return view.value
            case bool():
                return str(view.value).lower()
            case float() | int():
                return format_float(view.value)
            case _:
                raise UnknownValueError(view.path, "is not a string")

    def flag(self, *keys: str, default: bool = False) -> bool:
        """A boolean; the strings `true` and `false` are accepted too."""
        view = self.at(*keys)
        match view.value:
            case None:
                return default
            case bool():
                return view.value
            case "true" | "True":
                return True
            case "false" | "False":
                return False
            case _:
                raise UnknownValueError(view.path, "is not a boolean")

    def number(self, *keys: str) -> Decimal | None:
        """A number or a Kubernetes quantity (`500m`, `2Ti`), in its base unit; None if it is missing."""
        view = self.at(*keys)
        if view.value is None:
            return None
        number = quantity(self.text(*keys)) if isinstance(view.value, (str, float, int)) else None
        if number is None:
            raise UnknownValueError(view.path, "is not a number")
        return number

    def items(self, *keys: str) -> list["View"]:
        """The items of a list."""
        view = self.at(*keys)
        match view.value:
            case None:
                return []
            case list():
                return [View(item, (*view.path, str(index)), view.reads) for index, item in enumerate(view.value)]
            case _:
                raise UnknownValueError(view.path, "is not a list")

    def texts(self, *keys: str) -> list[str]:
        """The items of a list of strings."""
        return [item.text() for item in self.items(*keys)]

    def entries(self, *keys: str) -> Mapping[str, "View"]:
        """The entries of a map, sorted by key because the protocol keeps no order; single entries may be unknown."""
        view = self.at(*keys)
        values = sorted(_mapping(view.value, view.path).items())
        entries = {key: View(item, (*view.path, key), view.reads) for key, item in values}
        reads = view.reads
        if reads is None:
            return entries

        def note(key: str, entry: View | None) -> None:
            # Maps and lists in it are noted as their own fields are.
            if entry is None or not isinstance(entry.value, (dict, list)) or _is_whole(entry.value, entry.path):
                reads.note((*view.path, key), present=entry is not None)

        return Entries(entries, note)

    def string_map(self, *keys: str) -> dict[str, str]:
        """The entries of a map of strings, such as labels."""
        return {key: item.text() for key, item in self.entries(*keys).items()}


def _is_whole(value: Plain, path: Path) -> bool:
    return isinstance(value, (dict, list)) and is_whole(path[-1], is_list=isinstance(value, list))


def _mapping(value: Plain, path: Path) -> Mapping[str, Plain]:
    match value:
        case None:
            return {}
        case dict():
            return value
        case Unknown():
            raise UnknownValueError(path, value.why)
        case _:
            raise UnknownValueError(path, "is not a map")
