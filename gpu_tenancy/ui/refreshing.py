"""Reads the cluster again when a watch reports a change, as long as somebody looks."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from threading import Condition, Event, Thread
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.cluster.reading import KUEUE
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, UNAUTHORIZED, ApiError
from gpu_tenancy.ui.board import Board
from gpu_tenancy.ui.page import sections

_WATCHED: Final = ((KUEUE, "Workload"), (KUEUE, "ClusterQueue"), ("v1", "Pod"), ("v1", "Node"))
"""Kinds whose changes are shown at once; all others within `_LONGEST`."""
_SHORTEST: Final = 1.0
"""Seconds between two reads; more where a read takes long."""
_LONGEST: Final = 30.0
_PART: Final = 3
"""A read is followed by so many times its own length without one."""
_AGAIN: Final = 5.0
"""Seconds until a watch or a read is tried again."""


@dataclass(frozen=True, slots=True)
class Version:
    """What the page shows.

    Attributes:
        number: counts up with each change.
        sections: HTML by id, of the last read that succeeded.
        at: time of that read.
        problem: why the cluster cannot be read now; empty if it can.
    """

    number: int
    sections: dict[str, str]
    at: str
    problem: str = ""


class Refreshing:
    """The current version of the page, kept up to date by threads.

    Args:
        cluster: the API server.
        own: namespace that is watched where the user may not watch all.
        read: reads a board.
    """

    def __init__(self, cluster: Cluster, own: str, read: Callable[[], Board]) -> None:
        self._cluster, self._own, self._read = cluster, own, read
        self._changed, self._ended = Event(), Event()
        self._condition = Condition()
        self._looking = 0
        board = read()
        self._version = Version(1, sections(board), time_text(board.at))

    @property
    def version(self) -> Version:
        """The current version."""
        return self._version

    @property
    def ended(self) -> bool:
        """Whether nothing is refreshed any more."""
        return self._ended.is_set()

    def start(self) -> None:
        """Starts the threads, which end with the process."""
        Thread(target=self._refresh, daemon=True).start()
        for api_version, kind in _WATCHED:
            Thread(target=self._watch, args=(api_version, kind), daemon=True).start()

    def stop(self) -> None:
        """Ends what waits."""
        self._ended.set()
        self._changed.set()
        with self._condition:
            self._condition.notify_all()

    def changed(self) -> None:
        """Notes that something changed, so that the cluster is read again."""
        self._changed.set()

    def look(self, by: int) -> None:
        """Notes that somebody begins (1) or ends (-1) to look."""
        with self._condition:
            self._looking += by
        self._changed.set()

    def after(self, number: int, seconds: float) -> Version | None:
        """The first version after another one; None if there is none within the seconds, or this ends."""
        with self._condition:
            self._condition.wait_for(lambda: self._version.number > number or self._ended.is_set(), seconds)
            return self._version if self._version.number > number and not self._ended.is_set() else None

    def _refresh(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(_AGAIN if self._version.problem else _LONGEST)
            self._changed.clear()
            if not self._looking:
                continue
            began = time.monotonic()
            self._publish()
            lasted = time.monotonic() - began
            self._ended.wait(max(_SHORTEST, _PART * lasted))

    def _publish(self) -> None:
        old = self._version
        try:
            board = self._read()
            new = Version(old.number + 1, sections(board), time_text(board.at))
        except (ApiError, ConsoleError) as error:
            new = Version(old.number + 1, old.sections, old.at, f"Not refreshed since {old.at}: {problem_text(error)}")
        with self._condition:
            self._version = new
            self._condition.notify_all()

    def _watch(self, api_version: str, kind: str) -> None:
        """Notes changes of a kind, in the whole cluster or, where that is forbidden, in the user's own namespace."""
        namespace, since = "", ""
        while not self._ended.is_set():
            try:
                since = since or self._cluster.version(api_version, kind, namespace=namespace)
                for event in self._cluster.watch(api_version, kind, namespace=namespace, since=since, seconds=50):
                    since = text_at(event.object, "metadata", "resourceVersion") or since
                    if event.type != "BOOKMARK":
                        self._changed.set()
            except ApiError as error:
                if error.status == FORBIDDEN and not namespace and self._own and kind not in {"Node", "ClusterQueue"}:
                    namespace = self._own
                    continue
                since = ""
                self._ended.wait(_LONGEST if error.status == FORBIDDEN else _AGAIN)
            except ConsoleError:
                since = ""
                self._changed.set()
                self._ended.wait(_AGAIN)


def time_text(moment: datetime) -> str:
    """When something was read: `12:31:04 CET`."""
    return f"{moment:%H:%M:%S %Z}".strip()


def problem_text(error: ApiError | ConsoleError) -> str:
    """A problem and its fix, in one line."""
    if isinstance(error, ConsoleError):
        return f"{error.what}; {error.fix}"
    fix = "log in again, and start `tenancy ui` again" if error.status == UNAUTHORIZED else "it is tried again"
    return f"API server: {error.message}; {fix}"
