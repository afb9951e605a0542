"""HTTP requests to an API server, and their retries."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from gpu_tenancy.base.json import Json

FIELD_MANAGER: Final = "gpu-tenancy"

HOLDING: Final = "gpu-tenancy-hold"  # of `tenancy cluster hold`; no deployment reverts its fields

CONNECTIONS: Final = 8  # connections that are kept alive, and parallel requests

JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
# All groups, versions and kinds in one answer.
DISCOVERY: Final = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{JSON}"

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 3.0
# Too many requests; a webhook that cannot be called (500, `InternalError`); no leader, no backend, no answer.
_TRANSIENT: Final = frozenset({429, 500, 502, 503, 504})
_NOT_PROCESSED: Final = frozenset({429})  # even a request that creates an object can be repeated
# Not POST: a request without an answer can have created its object.
_REPEATABLE: Final = frozenset({"GET", "PATCH", "DELETE"})
_FINAL: Final = b"failed to create typed patch object"  # status 500, for an object that its schema does not allow

# Status 409, since the quota of other objects was counted at the same time.
_COUNTED: Final = b"Operation cannot be fulfilled on resourcequotas"
_NOT_CALLED: Final = b"failed calling webhook"  # status 500, webhook did not answer; nothing was stored


@dataclass(frozen=True, slots=True)
class Request:
    """One request; empty query parameters are not sent."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Mapping[str, Json] | Sequence[Mapping[str, Json]] | None = field(default=None, repr=False)
    content_type: str = JSON
    accept: str = JSON
    once: bool = False  # never repeated, since it only asks whether the server works
    endless: bool = False  # any time may pass between two parts of the answer, as between lines of a log


def writing(*, dry_run: bool = False, force: bool = False) -> dict[str, str]:
    """Query parameters of writes: our field manager and strict field validation."""
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
    """Whether a retry can succeed, by the status (0 for no answer) and the content of the answer."""
    if _FINAL in content:
        return False
    if _COUNTED in content or _NOT_CALLED in content:
        return True
    if method in _REPEATABLE:
        return not status or status in _TRANSIENT
    return status in _NOT_PROCESSED


class RetryBudget:
    """Seconds that all requests of one client together spend on one outage; safe to share between threads.

    An outage begins with the first failure, and ends when a failed request succeeds, or after that time without a
    failure. So a thousand objects that a broken webhook rejects take as long as one.
    """

    def __init__(self, seconds: float) -> None:
        """Sets the limit of one outage in seconds; 0 for no retries."""
        self.seconds = seconds
        self._since: float | None = None
        self._last = -math.inf  # time of the last failure
        self._lock = Lock()

    def pause(self, attempt: int, retry_after: str | None = None) -> float | None:
        """Seconds to wait before a retry; None if the outage lasts too long.

        `attempt`: earlier failures of the same request. `retry_after`: the header of the answer, in seconds.
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
        """Ends the outage, since a failed request succeeded."""
        with self._lock:
            self._since = None
