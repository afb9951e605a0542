"""The fields of a patch (`NamespacePatch`) that rules read, and the fields that it leaves to the patched object.

A conclusion from a set field is true of the object too; a conclusion from a field that is not set is unknown.
"""

from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Final, TypeAlias, TypeVar

from typing_extensions import override

T = TypeVar("T")
Path: TypeAlias = tuple[str, ...]

_IDENTITY: Final = frozenset(  # fields by which the API server finds the object, equal in object and patch
    {("apiVersion",), ("kind",), ("metadata", "generateName"), ("metadata", "name"), ("metadata", "namespace")}
)
_MERGED: Final = frozenset({"containers", "env", "ephemeralContainers", "initContainers", "volumes", "matchConditions"})
"""Lists that server-side apply merges by `name`. Most other lists are replaced as a whole:
https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy."""


class Reads:
    """The fields of a patch that were read: `present` ones in the order of reading, and `absent` ones."""

    __slots__ = ("absent", "present")

    def __init__(self, present: dict[Path, None] | None = None, absent: dict[Path, None] | None = None) -> None:
        self.present: dict[Path, None] = {} if present is None else present
        self.absent: dict[Path, None] = {} if absent is None else absent

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

    def of_whole(self) -> "Reads":
        """For a value that the patch sets as a whole: missing fields are known too."""
        return Reads(self.present, self.present)

    def of_part(self) -> "Reads":
        """For a map that rules know to be a part: missing fields are not noted."""
        return Reads(self.present)


def is_whole(field: str, *, is_list: bool) -> bool:
    """Whether server-side apply replaces a field's list or map as a whole, so that a patch has all of it.

    Maps are merged, except selectors and references: `+structType=atomic` in the API's types.
    """
    if is_list:
        return field not in _MERGED
    return field.lower().endswith(("selector", "ref"))


class Entries(dict[str, T]):
    """The entries of a map of a patch; `note` is called with each key that is read, and its entry or None."""

    def __init__(self, entries: dict[str, T], note: Callable[[str, T | None], None]) -> None:
        super().__init__(entries)
        self._note_entry = note

    def _note(self, key: str) -> None:
        self._note_entry(key, super().get(key))

    @override
    def __contains__(self, key: object) -> bool:
        self._note(str(key))
        return super().__contains__(key)

    @override
    def __getitem__(self, key: str) -> T:
        self._note(key)
        return super().__getitem__(key)

    @override
    def get(self, key: str, default: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - as a dict's
        self._note(key)
        return super().get(key, default)

    @override
    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self._note(key)
            yield key

    @override
    def __len__(self) -> int:
        for key in super().__iter__():
            self._note(key)
        return super().__len__()

    @override
    def keys(self) -> KeysView[str]:  # pyright: ignore[reportIncompatibleMethodOverride] - as a dict's
        return KeysView(self)

    @override
    def items(self) -> ItemsView[str, T]:  # pyright: ignore[reportIncompatibleMethodOverride] - as a dict's
        return ItemsView(self)

    @override
    def values(self) -> ValuesView[T]:  # pyright: ignore[reportIncompatibleMethodOverride] - as a dict's
        return ValuesView(self)
