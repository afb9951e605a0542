"""How long requests are repeated while an API server, or a webhook that it calls, does not work."""

from __future__ import annotations

import time
from threading import Lock
from typing import Final

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 3.0

_TRANSIENT: Final = frozenset({429, 500, 502, 503, 504})
"""Too many requests; a webhook that cannot be called (500, `InternalError`); no leader, no backend, no answer."""

_NOT_PROCESSED: Final = frozenset({429})
"""Answers after which even a request that creates an object can be repeated."""

_REPEATABLE: Final = frozenset({"GET", "PATCH", "DELETE"})
"""Not POST, because a request whose answer is lost can have created its object."""


_FINAL: Final = b"failed to create typed patch object"
"""What a server says with status 500 of an object that its schema does not allow."""


def transient(method: str, status: int, content: bytes = b"") -> bool:
    """Whether the same request can succeed a moment later.

    Args:
        method: of the request.
        status: of the answer; 0 if there was none.
        content: of the answer.
    """
    if _FINAL in content:
        return False
    if method in _REPEATABLE:
        return not status or status in _TRANSIENT
    return status in _NOT_PROCESSED


class Patience:
    """The seconds that all requests of one client together spend on one outage; safe to share between threads.

    An outage begins with the first failure, and ends when a request that had failed succeeds. So a thousand objects
    that a broken webhook rejects take as long as one.
    """

    def __init__(self, seconds: float) -> None:
        """Sets the limit of one outage in seconds; 0 to repeat nothing."""
        self.seconds = seconds
        self._since: float | None = None
        self._lock = Lock()

    def pause(self, attempt: int, asked: str | None = None) -> float | None:
        """Seconds to wait before a failed request is repeated; None if the outage lasts too long.

        Args:
            attempt: number of earlier attempts.
            asked: the header `Retry-After`, in seconds.
        """
        now = time.monotonic()
        with self._lock:
            since = self._since = now if self._since is None else self._since
        left = since + self.seconds - now
        if left <= 0:
            return None
        own = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
        return min(max(own, float(asked)) if asked and asked.isdigit() else own, left)

    def over(self) -> None:
        """Notes that a request that had failed succeeded."""
        with self._lock:
            self._since = None
