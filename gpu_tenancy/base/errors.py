"""Errors that the `tenancy` command prints as one message, without a traceback."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SPACE: Final = "free disk space, then run the same command again"  # the fix for a full disk


class ConsoleError(Exception):
    """A problem outside this program, such as in a file or a cluster: `what`, and its `fix` in the imperative."""

    def __init__(self, what: str, fix: str) -> None:
        self.what, self.fix = what, fix
        super().__init__(f"{what}; {fix}")


class UsageError(ConsoleError):
    """Options that are missing or contradict each other; the exit code is that of an unknown option."""


@contextmanager
def naming(file: Path) -> Generator[None]:
    """Names the file in an `OSError` of a failed write, which has no name, or that of an unfinished copy."""
    try:
        yield
    except OSError as error:
        error.filename = str(error.filename or file).removesuffix(".new")
        raise


class RenderError(Exception):
    """The rendered resources cannot be deployed: a bug of this program. Each problem has object, value, rule, fix."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))
