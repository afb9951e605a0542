"""Google's REST APIs, asked with the token of gcloud."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.clouds.programs import DeniedError, NoAnswerError, NotFoundError, Run, not_logged_in

COMPUTE: Final = "https://compute.googleapis.com/compute/v1"
CONTAINER: Final = "https://container.googleapis.com/v1"
PROJECTS: Final = "https://cloudresourcemanager.googleapis.com/v1"
SECRETS: Final = "https://secretmanager.googleapis.com/v1"
STORAGE: Final = "https://storage.googleapis.com/storage/v1"
SERVICES: Final = "https://serviceusage.googleapis.com/v1"
_SECONDS: Final = 10
Send: TypeAlias = Callable[[str, str, str, bytes | None], tuple[int, str]]
"""Sends a request (method, URL, token, body); returns status and text."""


def send(method: str, url: str, token: str, body: bytes | None) -> tuple[int, str]:
    """Sends a request to a Google API.

    Raises:
        NoAnswerError: the API cannot be reached.
        ConsoleError: it does not answer, so that other questions would wait in vain, too.
    """
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310 - constant https addresses
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - as above
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        host = url.split("/")[2]
        if isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError):
            raise ConsoleError(
                f"{host} does not answer within {_SECONDS} s", "check the network and the proxy, then run it again"
            ) from error
        raise NoAnswerError(f"{host} cannot be reached: {error}") from error


@dataclass(frozen=True)
class Google:
    """Google's APIs with the token of gcloud."""

    run: Run
    send: Send = send
    _tokens: list[str] = field(default_factory=list[str], repr=False)

    @property
    def token(self) -> str:
        """The token of gcloud's active account, asked for once.

        Raises:
            ConsoleError: there is no program or no login.
        """
        if not self._tokens:
            done = self.run(("gcloud", "auth", "print-access-token"))
            if done.code:
                raise not_logged_in("gcp", done.stderr)
            self._tokens.append(done.stdout.strip())
        return self._tokens[0]

    def get(self, url: str, right: str, **query: str | list[str]) -> dict[str, Any]:
        """A resource.

        Args:
            url: of the resource.
            right: that the caller needs; empty for none.
            query: parameters.

        Raises:
            DeniedError: the caller may not read it.
            NoAnswerError: the API rejected the request.
        """
        return self._ask("GET", f"{url}?{urllib.parse.urlencode(query, doseq=True)}" if query else url, right, None)

    def allowed(self, project: str, rights: list[str]) -> list[str]:
        """Those of some rights in a project that the caller has."""
        return self.tested(f"{PROJECTS}/projects/{project}", rights)

    def tested(self, url: str, rights: list[str]) -> list[str]:
        """Those of some rights on a resource that the caller has.

        `testIamPermissions` is a POST request that changes nothing, and needs no right.
        """
        body = json.dumps({"permissions": rights}).encode()
        return self._ask("POST", f"{url}:testIamPermissions", "", body).get("permissions", [])

    def _ask(self, method: str, url: str, right: str, body: bytes | None) -> dict[str, Any]:
        status, text = self.send(method, url, self.token, body)
        if status == 200:  # noqa: PLR2004 - HTTP's OK
            return json.loads(text or "{}")
        try:
            message = str(json.loads(text)["error"]["message"])
        except (ValueError, KeyError, TypeError):
            message = f"HTTP {status}"
        if status == 403 and right and "has not been used" not in message:  # noqa: PLR2004 - HTTP's Forbidden
            raise DeniedError(right)
        raise (NotFoundError if status == 404 else NoAnswerError)(f"HTTP {status}: {message}")  # noqa: PLR2004 - HTTP's
