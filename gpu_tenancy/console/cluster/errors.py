"""What can go wrong between this program and an API server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.offline.wire import at, text_at

if TYPE_CHECKING:
    from gpu_tenancy.console.offline.wire import Json

_MOST_OF_A_PAGE = 500


@dataclass(frozen=True, slots=True)
class Cause:
    """One of the reasons why an API server refused, as its `Status` gives them in `details.causes`.

    Attributes:
        field: path of the field, such as `spec.template`; empty where the reason is about the whole object.
        reason: for programs, such as `FieldValueInvalid`.
        message: for people.
    """

    field: str
    reason: str
    message: str


class ApiError(Exception):
    """An API server refused a request.

    Attributes:
        status: the HTTP status.
        reason: the server's reason in one word, such as `NotFound`.
        message: the server's own message.
        causes: what the message is made of, field by field, where the server tells.
    """

    def __init__(self, status: int, reason: str, message: str, causes: tuple[Cause, ...] = ()) -> None:
        self.status, self.reason, self.message, self.causes = status, reason, message, causes
        super().__init__(f"{message} ({status} {reason})")


class UnknownKindError(ApiError):
    """The API server serves no such kind, even by a discovery that is fresh."""

    def __init__(self, api_version: str, kind: str) -> None:
        super().__init__(404, "UnknownKind", f"the API server has no kind {kind} in {api_version}")


class UnreachableError(ConsoleError):
    """No answer came from the API server."""

    def __init__(self, server: str, cause: Exception) -> None:
        super().__init__(
            f"the API server at {server} does not answer: {cause}",
            "see that it runs and that the kubeconfig is its own",
        )


class WaitTimeoutError(ConsoleError):
    """What was waited for did not come in time."""


def api_error(status: int, phrase: str, body: bytes) -> ApiError:
    """Reads a refusal: a `Status` object, or whatever a proxy on the way answered instead."""
    try:
        answer = cast("Json", json.loads(body))
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        return ApiError(status, phrase, body.decode(errors="replace").strip()[:_MOST_OF_A_PAGE] or phrase)
    causes = at(answer, "details", "causes")
    return ApiError(
        status,
        text_at(answer, "reason") or phrase,
        text_at(answer, "message") or phrase,
        tuple(
            Cause(text_at(cause, "field"), text_at(cause, "reason"), text_at(cause, "message"))
            for cause in (causes if isinstance(causes, list) else ())
            if isinstance(cause, dict)
        ),
    )
