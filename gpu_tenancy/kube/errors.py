"""Errors of requests to an API server."""

import json
from dataclasses import dataclass
from typing import Final, cast

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, maps_at, text_at

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403  # also for an object that admission rejects
NOT_FOUND: Final = 404  # also for a kind that is not served
SIMULATED: Final = "dial tcp :10250"  # an API server finds no kubelet: simulated nodes have no address
NO_CONTAINERS: Final = "simulated nodes run no containers"  # message instead
_MAX_BODY: Final = 500
_REACH: Final = "check that it is running and that the kubeconfig is correct, then run the same command again"


@dataclass(frozen=True, slots=True)
class Cause:
    """One item of `details.causes` in the `Status` of a rejected request."""

    field: str
    reason: str
    message: str


class ApiError(Exception):
    """An API server rejected a request; `reason` is machine-readable, such as `NotFound`."""

    def __init__(self, status: int, reason: str, message: str, causes: tuple[Cause, ...] = ()) -> None:
        self.status, self.reason, self.message, self.causes = status, reason, message, causes
        super().__init__(f"{message} ({status} {reason})")

    @property
    def denied(self) -> bool:
        """Whether an admission policy or webhook rejected the request, and not a missing right."""
        return self.status == FORBIDDEN and "denied request" in str(self)


class UnknownKindError(ApiError):
    """The API server does not serve the kind, even after a new discovery."""

    def __init__(self, api_version: str, kind: str) -> None:
        super().__init__(NOT_FOUND, "UnknownKind", f'no matches for kind "{kind}" in version "{api_version}"')


class UnreachableError(ConsoleError):
    """The API server did not answer."""

    def __init__(self, server: str, cause: str, fix: str = _REACH) -> None:
        super().__init__(f"the API server at {server} is not reachable: {cause}", fix)


class WaitTimeoutError(ConsoleError):
    """A condition was not met within its timeout."""


def api_error(status: int, phrase: str, body: bytes) -> ApiError:
    """Reads the body of an error response: a `Status` object, or any text from a proxy."""
    try:
        answer = cast("Json", json.loads(body))
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        return ApiError(status, phrase, body.decode(errors="replace").strip()[:_MAX_BODY] or phrase)
    keys = ("field", "reason", "message")
    causes = [Cause(*(text_at(cause, key) for key in keys)) for cause in maps_at(answer, "details", "causes")]
    reason, message = (text_at(answer, key) or phrase for key in ("reason", "message"))
    return ApiError(status, reason, message, tuple(causes))
