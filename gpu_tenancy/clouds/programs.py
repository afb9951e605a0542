"""The clouds' own command-line programs, which ask with the user's login."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from gpu_tenancy.base.errors import ConsoleError

_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Done:
    """What a program printed, and its exit code."""

    stdout: str
    stderr: str
    code: int


Run: TypeAlias = Callable[[tuple[str, ...]], Done]
"""Runs a program with arguments."""

PROGRAMS: Final[Mapping[str, tuple[str, str, str]]] = {
    "aws": ("aws", "https://docs.aws.amazon.com/cli/", "aws sso login, or set AWS_PROFILE"),
    "gcp": ("gcloud", "https://cloud.google.com/sdk/docs/install", "gcloud auth login"),
    "azure": ("az", "https://learn.microsoft.com/cli/azure/install-azure-cli", "az login"),
}
"""Program, how to install it, and the login, by cloud."""


def run(arguments: tuple[str, ...]) -> Done:
    """Runs a program of a cloud.

    Raises:
        ConsoleError: it is not installed, or does not end.
    """
    program = shutil.which(arguments[0])
    if program is None:
        name, page, _ = next(row for row in PROGRAMS.values() if row[0] == arguments[0])
        raise ConsoleError(f"{name} is not on the PATH", f"install it ({page}), and log in")
    try:
        done = subprocess.run(
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
        raise ConsoleError(
            f"{' '.join(arguments[:3])} did not answer within {_SECONDS} s", "check the network, then run it yourself"
        ) from error
    return Done(done.stdout, done.stderr, done.returncode)


def not_logged_in(cloud: str, message: str) -> ConsoleError:
    """The error for a caller without a login."""
    program, _, login = PROGRAMS[cloud]
    first = next((line for line in message.strip().splitlines() if line.strip()), "no message")
    return ConsoleError(f"{program} is not logged in: {first.strip()}", f"run {login}")


class DeniedError(Exception):
    """The caller may not ask; the message is the right that is missing."""


class NoAnswerError(Exception):
    """The cloud rejected a question for another reason; the message is the cloud's."""


class NotFoundError(NoAnswerError):
    """What was asked for does not exist."""
