"""What all commands of `tenancy` share: where they print, how they end, and how errors read."""

import errno
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.progress import Advance, Report
from gpu_tenancy.model.problems import StackError

FINE: Final = 0
STACK_WRONG: Final = 1
PROMISE_BROKEN: Final = 2
INTERNAL: Final = 3
INTERRUPTED: Final = 130
"""As shells count a program that ctrl-C ended."""

# Into a file or another program, lines are as long as what they say: nothing is cut for a terminal that is not there.
out: Final = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 240)
err: Final = Console(stderr=True, soft_wrap=True)

StackName = Annotated[str, typer.Argument(help="A stack: stacks/Pulumi.<stack>.yaml")]
ProjectFolder = Annotated[
    Path | None, typer.Option(help="Folder of Pulumi.yaml, the program and stacks/, in place of this project's own.")
]


class Lines:
    """Lines of progress, beside what the command prints."""

    def __call__(self, line: str) -> None:
        """Prints a line."""
        err.print(f"[dim]· {escape(line)}[/dim]", highlight=False)


class Drawn(Lines):
    """The same on a terminal, where a bar can be drawn."""

    @contextmanager
    def bar(self, what: str, total: int, unit: str) -> Generator[Advance]:
        """A bar with the amount and the time that is left; it disappears at the end."""
        columns = (
            TextColumn("[dim]·[/dim] {task.description}"),
            BarColumn(),
            TextColumn(f"{{task.completed:,.0f}} of {{task.total:,.0f}} {unit}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=err, transient=True) as shown:
            task = shown.add_task(what, total=total)
            yield lambda done: shown.update(task, completed=done)


report: Final[Report] = Drawn() if err.is_terminal else Lines()
"""Takes a line of progress; it can draw bars on a terminal."""


def progress(line: str) -> None:
    """The same of a command whose errors alone belong there: only for somebody who looks at a terminal."""
    if err.is_terminal:
        report(line)


@contextmanager
def errors(stack: str = "") -> Generator[None]:
    """Turns what may go wrong into sentences and exit codes.

    Args:
        stack: whose mistakes they are, where a command is about one.
    """
    from pulumi import RunError  # noqa: PLC0415 - `--help` can do without Pulumi's SDK

    from gpu_tenancy.console.project import RenderError  # noqa: PLC0415 - as above
    from gpu_tenancy.console.show import problems  # noqa: PLC0415 - as above

    try:
        yield
    except StackError as error:
        problems(err, error.problems, f"stack {stack}")
        raise typer.Exit(STACK_WRONG) from error
    except RenderError as error:
        problems(err, error.problems, f"what stack {stack} declares")
        raise typer.Exit(INTERNAL) from error
    except (ConsoleError, RunError) as error:  # RunError: the program itself says what it lacks.
        _error(str(error))
        raise typer.Exit(STACK_WRONG) from error
    except OSError as error:
        if (words := _said(error)) is None:
            raise
        _error(words)
        raise typer.Exit(STACK_WRONG) from error
    except KeyboardInterrupt as error:
        err.print("interrupted; run the same command again to continue", highlight=False)
        raise typer.Exit(INTERRUPTED) from error


WRITABLE: Final = "make it writable, or set HOME (or XDG_CACHE_HOME and XDG_STATE_HOME) to a folder that is"
SPACE: Final = "free disk space, then run the same command again"
_FIXES: Final = {
    errno.EACCES: WRITABLE,
    errno.EPERM: WRITABLE,
    errno.EROFS: WRITABLE,
    errno.ENOSPC: SPACE,
    errno.EDQUOT: SPACE,
    errno.EEXIST: "remove it, or name another folder",
    errno.ENOTDIR: "remove the file that is in the way, or name another folder",
}
"""What to do where the user's own files or disk are in the way; any other error is a mistake in this program."""


def _said(error: OSError) -> str | None:
    """What is in the way, and what to do; None where it is nothing of the user's."""
    if isinstance(error, FileExistsError) and error.errno is None:
        return str(error)  # raised by this program, in words of its own
    if error.errno not in _FIXES:
        return None
    return f"{error.filename or 'a file'}: {error.strerror}; {_FIXES[error.errno]}"


def _error(words: str) -> None:
    err.print(f"[red]error[/red] {escape(words)}", highlight=False)
