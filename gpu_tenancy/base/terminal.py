"""Shared by all commands of `tenancy`: output streams, exit codes, error messages and common options."""

import errno
import os
import shutil
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.markup import escape

from gpu_tenancy.base.errors import SPACE, ConsoleError, RenderError, UsageError
from gpu_tenancy.base.output import Output, PlainTable
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.base.progress import Advance, Report
from gpu_tenancy.base.texts import plural


class ExitCode(IntEnum):
    """Exit codes of all commands; `cli/reference_commands.md` describes them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    BLOCKED = 3
    INTERRUPTED = 130


SLOW_AFTER: Final = 2.0  # seconds after which a command reports its task

# Trees and boxes elsewhere than on a terminal have the width of a wide one.
out: Final = Output(width=None if sys.stdout.isatty() else 240)
err: Final = Output(stderr=True)

StackName = Annotated[str, typer.Argument(help="Stack name, for the file stacks/Pulumi.<stack>.yaml.")]
ProjectFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the Pulumi project. Default: the working directory or its nearest parent with Pulumi.yaml."
    ),
]


class Place(NamedTuple):
    """Kubeconfig and context of the cluster that the user names; without them, kubectl's choice."""

    kubeconfig: Path | None = None
    context: str | None = None
    embedded: bool = False


table: Final = PlainTable


class Lines:
    """Progress lines on standard error."""

    def __call__(self, line: str) -> None:
        """Prints one progress line."""
        err.print(f"[dim]· {escape(line)}[/dim]", highlight=False)


class Drawn(Lines):
    """Progress lines and bars on a terminal."""

    @contextmanager
    def bar(self, what: str, total: int, unit: str) -> Generator[Advance]:
        """A bar with the number of units and the remaining time; it is removed at the end."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - slow to import

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


def program() -> str:
    """The command to run this program in the user's shell: `uv run` adds the program's folder to its own PATH only."""
    own = Path(sys.executable).with_name("tenancy")
    found = shutil.which("tenancy")
    if not own.is_file() or (found and own.samefile(found) and "UV_RUN_RECURSION_DEPTH" not in os.environ):
        return "tenancy"
    return str(own.relative_to(Path.cwd())) if own.is_relative_to(Path.cwd()) else str(own)


def progress(line: str) -> None:
    """Prints a progress line on a terminal only, for commands whose standard error should have errors alone."""
    if err.is_terminal:
        report(line)


@contextmanager
def reported_if_slow(doing: str) -> Generator[None]:
    """Reports the task if it takes longer than `SLOW_AFTER`."""
    timer = threading.Timer(SLOW_AFTER, report, [doing])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def errors(stack: str = "") -> Generator[None]:
    """Turns expected errors into messages and exit codes; `stack` is named in messages about a stack file."""
    try:
        yield
    except (StackError, RenderError) as error:
        problems(error.problems, f"{'the resources of ' if isinstance(error, RenderError) else ''}stack {stack}")
        raise typer.Exit(ExitCode.ERROR) from error
    except (ConsoleError, *_pulumi_errors()) as error:
        error_line(str(error))
        raise typer.Exit(ExitCode.USAGE if isinstance(error, UsageError) else ExitCode.ERROR) from error
    except OSError as error:
        if isinstance(error, FileExistsError) and error.errno is None:
            message = str(error)  # raised by this program with a complete message
        elif error.filename or error.errno in _FIXES:
            fix = _FIXES.get(error.errno or 0, "specify another one")
            message = f"{error.filename or 'a file'}: {error.strerror}; {fix}"
        else:
            raise  # a bug in this program
        error_line(message)
        raise typer.Exit(ExitCode.ERROR) from error
    except KeyboardInterrupt as error:
        err.print("interrupted; run the same command again to continue", highlight=False)
        raise typer.Exit(ExitCode.INTERRUPTED) from error


def _pulumi_errors() -> tuple[type[Exception], ...]:
    """Pulumi's RunError, which a program raises with its own message; empty if nothing imported Pulumi."""
    pulumi = sys.modules.get("pulumi")
    return (pulumi.RunError,) if pulumi else ()


def problems(problems: Iterable[object], where: str) -> None:
    """Prints problems, each in a line that starts with its place, so that an editor can open it."""
    # Without the escape, Rich would drop a value such as [cpu] as markup.
    listed = [escape(str(problem)) for problem in problems]
    for line in listed:
        place, separator, rest = line.partition(": ")
        err.print(f"[bold]{place}[/bold]{separator}{rest}" if separator else line, highlight=False)
    err.print(f"[red]{plural(len(listed), 'problem')}[/red] in {escape(where)}; nothing was changed")


WRITABLE: Final = "make it writable, or set HOME (or XDG_CACHE_HOME and XDG_STATE_HOME) to a folder that is"
_FIXES: Final = {
    errno.EACCES: WRITABLE,
    errno.EPERM: WRITABLE,
    errno.EROFS: WRITABLE,
    errno.ENOSPC: SPACE,
    errno.EDQUOT: SPACE,
    errno.EEXIST: "remove it, or specify another folder",
}


def error_line(message: str) -> None:
    """Prints an error message on standard error, after `error: ` as other command-line tools do."""
    err.print(f"[red]error:[/red] {escape(message)}", highlight=False)
