"""The applied objects of a cluster, in a file that tells the next run what to skip and what to prune."""

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
"""Version of the file format."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object that was applied, or was about to be, in its API version; later waves are pruned first.

    Its uid is empty until the apply succeeded; `digest` is that of the manifest, and `mark` that of our entry in
    `managedFields`, see `Live.mark`.
    """

    reference: Reference
    wave: int
    uid: str = ""
    digest: str = ""
    mark: str = ""

    def current(self, live: Live, manifest: Mapping[str, Json]) -> bool:
        """Whether the live object still has the fields of this manifest, so that it need not be applied.

        Another client that changes a field removes it from our mark. The resourceVersion is not used, because every
        status update changes it.
        """
        return (self.uid, self.digest, self.mark) == (live.uid, digest(manifest), live.mark)


class Inventory:
    """The entries of one inventory file; `save` writes them.

    An object is entered before it is applied, so that a killed run leaves no object that the next run does not know.
    The file has digests and no manifests. Only its owner can read it, because a short secret could be guessed from a
    digest.
    """

    def __init__(self, path: Path, entries: Collection[Entry] = ()) -> None:
        self._path = path
        self._entries: dict[Key, Entry] = {entry.reference.key: entry for entry in entries}
        self._saved = True

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a file; a missing file is an empty inventory.

        Raises:
            ConsoleError: the file is damaged, or was written by a later version.
        """

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
        """The entries of all objects except the given ones, the last wave first."""
        others = [entry for key, entry in self._entries.items() if key not in keys]
        return tuple(sorted(others, key=lambda entry: entry.wave, reverse=True))

    def save(self) -> None:
        """Writes the file atomically; does nothing if nothing changed."""
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

    A killed run leaves objects without a uid in the inventory. They have our field manager, except objects whose
    manifest sets no field, such as a plain Namespace. Those are ours if they are in the inventory and have no other
    field manager.
    """
    if live.applied is not None:
        return True
    if entry is None:
        return False
    return entry.uid == live.uid if entry.uid else not live.managers
