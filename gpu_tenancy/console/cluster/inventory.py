"""What we applied to a cluster: a file by which the next run knows what it may skip and what it must prune."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from gpu_tenancy.console.cluster.live import digest
from gpu_tenancy.console.cluster.references import Reference
from gpu_tenancy.console.errors import ConsoleError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from gpu_tenancy.console.cluster.live import Live
    from gpu_tenancy.console.cluster.references import Key
    from gpu_tenancy.console.offline.wire import Json

SCHEMA: Final = 1
"""Version of the file's form."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object that we applied, or were about to.

    Attributes:
        reference: which object, in the version in which it was applied.
        wave: in which wave it was applied; what came later is pruned earlier.
        uid: its identity; empty until the apply succeeded.
        digest: of the manifest.
        mark: what the apply left of us on the object, see `Live.mark`.
    """

    reference: Reference
    wave: int
    uid: str = ""
    digest: str = ""
    mark: str = ""

    def current(self, live: Live, manifest: Mapping[str, Json]) -> bool:
        """Whether the object still has what this very manifest last gave it, so that there is nothing to do.

        Whoever gives another value to a field takes it out of our mark. A resourceVersion would tell less: every
        status that a controller writes moves it.
        """
        return (self.uid, self.digest, self.mark) == (live.uid, digest(manifest), live.mark)


class Inventory:
    """The entries of one file, the latest state of which `save` writes.

    An object is entered before it is applied: a run that is killed leaves no object that its successor does
    not know of. The file holds no manifest, only digests, and is readable by its owner alone, since a digest
    lets a short secret be guessed.
    """

    def __init__(self, path: Path, entries: Collection[Entry] = ()) -> None:
        self._path = path
        self._entries: dict[Key, Entry] = {one.reference.key: one for one in entries}
        self._saved = True

    @classmethod
    def load(cls, path: Path) -> Inventory:
        """Reads a file; one that is not there is an empty inventory.

        Raises:
            ConsoleError: the file is damaged, or was written by a later version.
        """
        try:
            content = cast("Json", json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError) as error:
            raise _unusable(path, str(error)) from error
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise _unusable(path, f"its schema is not {SCHEMA}")
        try:
            return cls(path, [_entry(row) for row in cast("list[dict[str, str]]", content["objects"])])
        except (KeyError, TypeError, ValueError) as error:
            raise _unusable(path, f"an object in it is damaged: {error}") from error

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Entry | None:
        """The entry of an object."""
        return self._entries.get(key)

    def put(self, entry: Entry) -> None:
        """Enters an object, or replaces its entry."""
        if self._entries.get(entry.reference.key) != entry:
            self._entries[entry.reference.key] = entry
            self._saved = False

    def remove(self, key: Key) -> None:
        """Takes an object out."""
        if self._entries.pop(key, None):
            self._saved = False

    def others(self, keys: Collection[Key]) -> tuple[Entry, ...]:
        """The entries of all objects but the given ones, the last applied first."""
        found = [entry for key, entry in self._entries.items() if key not in keys]
        return tuple(sorted(found, key=lambda entry: entry.wave, reverse=True))

    def save(self) -> None:
        """Writes the file, whole or not at all; does nothing where nothing changed."""
        if self._saved:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {"schema": SCHEMA, "objects": [_row(one) for one in self._entries.values()]}
        unfinished = self._path.with_name(f"{self._path.name}.new")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
        unfinished.replace(self._path)
        self._saved = True


def _row(entry: Entry) -> dict[str, Json]:
    return {
        **entry.reference._asdict(),
        "wave": entry.wave,
        "uid": entry.uid,
        "digest": entry.digest,
        "mark": entry.mark,
    }


def _entry(row: Mapping[str, str]) -> Entry:
    reference = Reference(row["api_version"], row["kind"], row["name"], row["namespace"])
    return Entry(reference, int(row["wave"]), row["uid"], row["digest"], row["mark"])


def _unusable(path: Path, reason: str) -> ConsoleError:
    return ConsoleError(
        f"the inventory {path} cannot be used: {reason}",
        "remove it where what it lists may stay in the cluster; else restore it",
    )
