"""What a killed run of the Pulumi CLI leaves in a backend of files on this machine: its lock, and half of a file."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

import psutil


@dataclass(frozen=True, slots=True)
class FileBackend:
    """A backend of files, as `pulumi login file://FOLDER` selects it.

    Attributes:
        folder: with the folder `.pulumi`.
    """

    folder: Path

    @classmethod
    def of(cls, url: str) -> Self | None:
        """The backend of an address; None if it is elsewhere."""
        parts = urlsplit(url)
        if parts.scheme != "file":
            return None
        return cls(Path(unquote(parts.netloc + parts.path)).expanduser())

    def abandoned(self, stack: str = "") -> bool:
        """Whether a process of this machine that no longer runs has locked a stack, or any stack."""
        return any(
            holder.get("hostname", socket.gethostname()) == socket.gethostname()
            and not psutil.pid_exists(int(holder["pid"]))
            for holder in self._holders(stack)
        )

    def _holders(self, stack: str) -> Iterator[dict[str, str]]:
        for lock in (self.folder / ".pulumi" / "locks").rglob("*.json"):
            if not stack or lock.parent.name == stack:
                yield json.loads(lock.read_text(encoding="utf-8"))

    def remove_torn(self) -> None:
        """Removes attributes of state files that a killed run left incomplete.

        The file backend writes a state atomically, but not the file with its content type beside it, with which it does
        not read the state: "failed to load checkpoint: EOF". It does without that file.
        """
        for attributes in (self.folder / ".pulumi").rglob("*.attrs"):
            try:
                json.loads(attributes.read_text(encoding="utf-8"))
            except ValueError:
                attributes.unlink()
