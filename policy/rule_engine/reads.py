"""What rules read of a patch: the fields that it sets, and those that it leaves to the object that it patches.

A patch (`NamespacePatch`) has a part of an object. What a rule concludes from a field that the patch sets is true of
the object too; what it concludes from a field that the patch does not set is not known.
"""

from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Final, TypeAlias, TypeVar

from typing_extensions import override

T = TypeVar("T")
Path: TypeAlias = tuple[str, ...]

_IDENTITY: Final = frozenset(
    {("apiVersion",), ("kind",), ("metadata", "generateName"), ("metadata", "name"), ("metadata", "namespace")}
)
"""Fields by which the API server finds the object; they are the same in object and patch."""
_MERGED: Final = frozenset({"containers", "env", "ephemeralContainers", "initContainers", "volumes", "matchConditions"})
"""Lists that server-side apply merges by `name`. Most other lists are replaced as a whole:
https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy."""


class Reads:
    """The fields of a patch that were read.

    Attributes:
        present: paths of fields that it sets, in the order of reading.
        absent: paths of fields that it does not set, so that the object's are not known.
    """

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
        """What was noted until now, which is forgotten here."""
        taken = Reads(dict(self.present), dict(self.absent))
        self.present.clear()
        self.absent.clear()
        return taken

    def add(self, other: "Reads") -> None:
        """Notes what another one noted."""
        self.present.update(other.present)
        self.absent.update(other.absent)

    def of_whole(self) -> "Reads":
        """For a value that the patch has as a whole: what is missing in it is known too."""
        return Reads(self.present, self.present)

    def of_part(self) -> "Reads":
        """For a map of which rules know that it is a part: what is missing in it is not noted."""
        return Reads(self.present)


def is_whole(field: str, *, is_list: bool) -> bool:
    """Whether server-side apply replaces a field's list or map as a whole, so that a patch which sets it has all of it.

    Maps are merged, except selectors and references: `+structType=atomic` in the API's types.
    """
    if is_list:
        return field not in _MERGED
    return field.lower().endswith(("selector", "ref"))


class Entries(dict[str, T]):
    """The entries of a map of a patch, which note their keys as they are read.

    Args:
        entries: the entries.
        note: called with a key that is read and its entry, None if there is none.
    """

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
