"""AWS by its CLI, Azure Resource Manager by `az rest`, Google's REST APIs by gcloud's token, with the user's login."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from gpu_tenancy.base.errors import ConsoleError

_SECONDS: Final = 120

Done: TypeAlias = "subprocess.CompletedProcess[str]"
Run: TypeAlias = Callable[[tuple[str, ...]], Done]

# Program, how to install it, and the login, by cloud.
PROGRAMS: Final[Mapping[str, tuple[str, str, str]]] = {
    "aws": ("aws", "https://docs.aws.amazon.com/cli/", "aws sso login, or set AWS_PROFILE"),
    "gcp": ("gcloud", "https://cloud.google.com/sdk/docs/install", "gcloud auth login"),
    "azure": ("az", "https://learn.microsoft.com/cli/azure/install-azure-cli", "az login"),
}


def run(arguments: tuple[str, ...]) -> Done:
    """Runs a cloud's program; raises ConsoleError if it is not installed, or does not end."""
    program = shutil.which(arguments[0])
    if program is None:
        name, page, _ = next(row for row in PROGRAMS.values() if row[0] == arguments[0])
        raise ConsoleError(f"{name} is not on the PATH", f"install it ({page}), and log in")
    try:
        return subprocess.run(
            [program, *arguments[1:]],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        what = f"{' '.join(arguments[:3])} did not answer within {_SECONDS} s"
        raise ConsoleError(what, "check the network, then run it yourself") from error


def _not_logged_in(cloud: str, message: str) -> ConsoleError:
    program, _, login = PROGRAMS[cloud]
    first = next((line for line in message.strip().splitlines() if line.strip()), "no message")
    return ConsoleError(f"{program} is not logged in: {first.strip()}", f"run {login}")


class DeniedError(Exception):
    """The caller may not ask; the message is the missing right."""


class NoAnswerError(Exception):
    """The cloud rejected a request for another reason; the message is the cloud's."""


class NotFoundError(NoAnswerError):
    """The requested object does not exist."""


_AWS_DENIED: Final = re.compile(r"not authorized to perform: (\S+)")
_CODE: Final = re.compile(r"An error occurred \((\w+)\)")
_AWS_LOGIN: Final = (
    "Unable to locate credentials",
    "ExpiredToken",
    "sso session",
    "SSO session",
    "InvalidClientTokenId",
)


@dataclass(frozen=True)
class AwsCli:
    """The AWS CLI in one region."""

    run: Run
    region: str

    def ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Runs one operation; raises DeniedError, NoAnswerError, or ConsoleError without a program or a login."""
        given = ("--cli-input-json", json.dumps(parameters)) if parameters else ()
        done = self.run(("aws", service, operation, *given, "--region", self.region, "--output", "json"))
        if done.returncode == 0:
            return json.loads(done.stdout or "{}")
        message = " ".join(done.stderr.split())
        if any(word in message for word in _AWS_LOGIN):
            raise _not_logged_in("aws", message)
        code = _CODE.search(message)
        if code and code[1] in {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}:
            right = _AWS_DENIED.search(message)
            raise DeniedError(right[1] if right else f"{service}:{operation.title().replace('-', '')}")
        missing = code and code[1] in {"NoSuchResourceException", "ResourceNotFoundException"}
        raise (NotFoundError if missing else NoAnswerError)(f"{code[1]}: {message}" if code else message)


MANAGEMENT: Final = "https://management.azure.com"
_AZURE_LOGIN: Final = ("az login", "AADSTS", "No subscription found")
_AZURE_DENIED: Final = re.compile(r"perform action '([^']+)'")


@dataclass(frozen=True)
class Arm:
    """Azure Resource Manager with the login of the Azure CLI."""

    run: Run

    def get(self, path: str, version: str, **query: str) -> dict[str, Any]:
        """A resource, or one page of a list, whose next path is a complete URL; raises the errors of `AwsCli.ask`."""
        parameters = urllib.parse.urlencode({"api-version": version, **query}, safe="$'")
        url = path if path.startswith("https:") else f"{MANAGEMENT}{path}?{parameters}"
        done = self.run(("az", "rest", "--method", "get", "--url", url, "--output", "json", "--only-show-errors"))
        if done.returncode == 0:
            return json.loads(done.stdout or "{}")
        message = " ".join(done.stderr.split())
        if any(word in message for word in _AZURE_LOGIN):
            raise _not_logged_in("azure", message)
        if "AuthorizationFailed" in message:
            right = _AZURE_DENIED.search(message)
            raise DeniedError(right[1] if right else "the role Reader")
        raise (NotFoundError if "NotFound" in message else NoAnswerError)(message)

    def pages(self, path: str, version: str, **query: str) -> Iterator[dict[str, Any]]:
        """All items of a list."""
        answer = self.get(path, version, **query)
        yield from answer.get("value", [])
        while following := answer.get("nextLink"):
            answer = self.get(str(following), version)
            yield from answer.get("value", [])


COMPUTE: Final = "https://compute.googleapis.com/compute/v1"
CONTAINER: Final = "https://container.googleapis.com/v1"
PROJECTS: Final = "https://cloudresourcemanager.googleapis.com/v1"
SERVICES: Final = "https://serviceusage.googleapis.com/v1"
_ANSWER_SECONDS: Final = 10
# Sends a request (method, URL, token, body); returns status and text.
Send: TypeAlias = Callable[[str, str, str, bytes | None], tuple[int, str]]


def send(method: str, url: str, token: str, body: bytes | None) -> tuple[int, str]:
    """Sends a request to a Google API; raises NoAnswerError if it is unreachable, ConsoleError after a timeout."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310 - constant https addresses
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 - as above
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        host = url.split("/")[2]
        if isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError):
            what = f"{host} does not answer within {_ANSWER_SECONDS} s"
            raise ConsoleError(what, "check the network and the proxy, then run it again") from error
        raise NoAnswerError(f"{host} cannot be reached: {error}") from error


@dataclass(frozen=True)
class Google:
    """Google's APIs with the token of gcloud."""

    run: Run
    send: Send = send

    @cached_property
    def token(self) -> str:
        """The token of gcloud's active account; raises ConsoleError without a program or a login."""
        done = self.run(("gcloud", "auth", "print-access-token"))
        if done.returncode:
            raise _not_logged_in("gcp", done.stderr)
        return done.stdout.strip()

    def get(self, url: str, right: str, **query: str | list[str]) -> dict[str, Any]:
        """A resource; raises DeniedError without `right` (empty: none needed), NoAnswerError if the API rejects it."""
        return self._ask("GET", f"{url}?{urllib.parse.urlencode(query, doseq=True)}" if query else url, right, None)

    def tested(self, url: str, rights: list[str]) -> list[str]:
        """The caller's rights on a resource, of `rights`; `testIamPermissions` changes nothing and needs no right."""
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
