"""Azure Resource Manager, asked with `az rest`."""

import json
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from gpu_tenancy.clouds.programs import DeniedError, NoAnswerError, NotFoundError, Run, not_logged_in

MANAGEMENT: Final = "https://management.azure.com"
_LOGIN: Final = ("az login", "AADSTS", "No subscription found")
_DENIED: Final = re.compile(r"perform action '([^']+)'")


@dataclass(frozen=True)
class Arm:
    """Azure Resource Manager with the login of the Azure CLI."""

    run: Run

    def get(self, path: str, version: str, **query: str) -> dict[str, Any]:
        """A resource, or one page of a list; the path of a next page is a complete URL.

        Raises:
            DeniedError: the caller may not read it.
            NoAnswerError: Azure rejected the request.
            ConsoleError: there is no program or no login.
        """
        parameters = urllib.parse.urlencode({"api-version": version, **query}, safe="$'")
        url = path if path.startswith("https:") else f"{MANAGEMENT}{path}?{parameters}"
        done = self.run(("az", "rest", "--method", "get", "--url", url, "--output", "json", "--only-show-errors"))
        if done.code == 0:
            return json.loads(done.stdout or "{}")
        message = " ".join(done.stderr.split())
        if any(word in message for word in _LOGIN):
            raise not_logged_in("azure", message)
        if "AuthorizationFailed" in message:
            right = _DENIED.search(message)
            raise DeniedError(right[1] if right else "the role Reader")
        raise (NotFoundError if "NotFound" in message else NoAnswerError)(message)

    def pages(self, path: str, version: str, **query: str) -> Iterator[dict[str, Any]]:
        """All items of a list."""
        answer = self.get(path, version, **query)
        yield from answer.get("value", [])
        while following := answer.get("nextLink"):
            answer = self.get(str(following), version)
            yield from answer.get("value", [])
