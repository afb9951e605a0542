"""HTTP requests to an API server, and when they are repeated."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from gpu_tenancy.base.json import Json

FIELD_MANAGER: Final = "gpu-tenancy"
"""The field manager for our fields."""

HOLDING: Final = "gpu-tenancy-hold"
"""The field manager of `tenancy cluster hold`, whose fields no deployment takes back."""

CONNECTIONS: Final = 8
"""Number of connections that are kept alive, and of parallel requests."""

JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
DISCOVERY: Final = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{JSON}"
"""Requests every group, version and kind in one answer."""

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

_COUNTED: Final = b"Operation cannot be fulfilled on resourcequotas"
"""How a server refuses an object whose quota it could not count, because others were counted at the same time (409)."""
_NOT_CALLED: Final = b"failed calling webhook"
"""How a server refuses an object that it stored nothing of, because a webhook did not answer (500)."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; empty parameters of the query are not sent.

    `once`: it is never repeated, because it only asks whether the server works. `endless`: any time may pass between
    two parts of the answer, as between two lines of a log.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Mapping[str, Json] | Sequence[Mapping[str, Json]] | None = field(default=None, repr=False)
    content_type: str = JSON
    accept: str = JSON
    once: bool = False
    endless: bool = False


def writing(*, dry_run: bool = False, force: bool = False) -> dict[str, str]:
    """Query parameters for write requests: our field manager, and strict field validation."""
    return {
        "fieldManager": FIELD_MANAGER,
        "fieldValidation": "Strict",
        "dryRun": "All" if dry_run else "",
        "force": "true" if force else "",
    }


def partial(kind: str = "PartialObjectMetadata", *, wanted: bool) -> str:
    """The Accept header; if `wanted`, for the metadata of an object or a list only."""
    return f"{JSON};as={kind};g=meta.k8s.io;v=v1" if wanted else JSON


def transient(method: str, status: int, content: bytes = b"") -> bool:
    """Whether a request can succeed a moment later, by the status (0 for none) and the content of its answer."""
    if _FINAL in content:
        return False
    if _COUNTED in content or _NOT_CALLED in content:
        return True
    if method in _REPEATABLE:
        return not status or status in _TRANSIENT
    return status in _NOT_PROCESSED


class RetryBudget:
    """The seconds that all requests of one client together spend on one outage; safe to share between threads.

    An outage begins with the first failure, and ends when a request that had failed succeeds, or after that time
    without a failure. So a thousand objects that a broken webhook rejects take as long as one.
    """

    def __init__(self, seconds: float) -> None:
        """Sets the limit of one outage in seconds; 0 to repeat nothing."""
        self.seconds = seconds
        self._since: float | None = None
        self._last = -math.inf
        """When a request failed last."""
        self._lock = Lock()

    def pause(self, attempt: int, retry_after: str | None = None) -> float | None:
        """Seconds to wait before a failed request is repeated; None if the outage lasts too long.

        `attempt` is how often the same request has failed before, and `retry_after` the header with which the server
        says after how many seconds it may work again.
        """
        now = time.monotonic()
        with self._lock:
            if self._since is None or (not attempt and now - self._last > self.seconds):
                self._since = now
            self._last = now
            left = self._since + self.seconds - now
        if left <= 0:
            return None
        own = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
        return min(max(own, float(retry_after)) if retry_after and retry_after.isdigit() else own, left)

    def over(self) -> None:
        """Notes that a request that had failed succeeded."""
        with self._lock:
            self._since = None
