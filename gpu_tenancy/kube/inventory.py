"""File with the applied objects of a cluster; the next run skips unchanged objects and prunes others."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, cast

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.output import write_private
from gpu_tenancy.kube.live import Live, digest
from gpu_tenancy.kube.references import Key, Reference

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One object that was applied, or was about to be."""

    reference: Reference
    wave: int  # later waves are pruned first
    uid: str = ""  # empty until the apply succeeded
    digest: str = ""  # of the manifest
    mark: str = ""  # of our entry in `managedFields`, see `Live.mark`

    def current(self, live: Live, manifest: Mapping[str, Json]) -> bool:
        """Whether the live object still has the fields of this manifest, so that no apply is needed.

        Another client's change of a field removes it from our mark; each status update changes the resourceVersion.
        """
        return (self.uid, self.digest, self.mark) == (live.uid, digest(manifest), live.mark)


class Inventory:
    """The entries of one inventory file; `save` writes them.

    An object is entered before it is applied, so that the next run knows it if this run is killed. The file has
    digests, no manifests. Only its owner can read it, since a short secret could be guessed from a digest.
    """

    def __init__(self, path: Path, entries: Collection[Entry] = ()) -> None:
        self._path = path
        self._entries: dict[Key, Entry] = {entry.reference.key: entry for entry in entries}
        self._saved = True

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file, empty if missing; raises ConsoleError if it is damaged, or was written by a later version."""

        def unusable(reason: str) -> ConsoleError:
            fix = "restore the file, or delete it if the objects that it lists can stay in the cluster"
            return ConsoleError(f"{path}: the inventory of applied objects cannot be used: {reason}", fix)

        try:
            content = cast("Json", json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError) as error:
            raise unusable(str(error)) from error
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise unusable(f"schema must be {SCHEMA}")
        entries: list[Entry] = []
        try:
            for row in cast("list[dict[str, str]]", content["objects"]):
                reference = Reference(row["api_version"], row["kind"], row["name"], row["namespace"])
                entries.append(Entry(reference, int(row["wave"]), row["uid"], row["digest"], row["mark"]))
        except (KeyError, TypeError, ValueError) as error:
            raise unusable(f"invalid entry: {error}") from error
        return cls(path, entries)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Entry | None:
        """The entry of an object."""
        return self._entries.get(key)

    def put(self, entry: Entry) -> None:
        """Adds or replaces the entry of an object."""
        if self._entries.get(entry.reference.key) != entry:
            self._entries[entry.reference.key] = entry
            self._saved = False

    def remove(self, key: Key) -> None:
        """Removes the entry of an object."""
        if self._entries.pop(key, None):
            self._saved = False

    def others(self, keys: Collection[Key]) -> tuple[Entry, ...]:
        """Entries of all objects except `keys`, the last wave first."""
        others = [entry for key, entry in self._entries.items() if key not in keys]
        return tuple(sorted(others, key=lambda entry: entry.wave, reverse=True))

    def save(self) -> None:
        """Writes the file atomically, if anything changed."""
        if self._saved:
            return
        objects = [
            {**one.reference._asdict(), "wave": one.wave, "uid": one.uid, "digest": one.digest, "mark": one.mark}
            for one in self._entries.values()
        ]
        content = {"schema": SCHEMA, "objects": objects}
        write_private(self._path, f"{json.dumps(content, indent=1)}\n")
        self._saved = True


def ours(entry: Entry | None, live: Live) -> bool:
    """Whether an object is the one that we applied, and not another with the same name.

    A killed run leaves entries without a uid. Such objects are ours if they have our field manager, or no field
    manager, as a plain Namespace, whose manifest sets no field.
    """
    if live.applied is not None:
        return True
    if entry is None:
        return False
    return entry.uid == live.uid if entry.uid else not live.managers
