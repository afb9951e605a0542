"""What all commands of `tenancy` share: where they print, how they end, and how errors read."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from console.errors import ConsoleError
from model.problems import StackError

FINE: Final = 0
STACK_WRONG: Final = 1
PROMISE_BROKEN: Final = 2
INTERNAL: Final = 3

# Into a file or another program, lines are as long as what they say: nothing is cut for a terminal that is not there.
out: Final = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 240)
err: Final = Console(stderr=True, soft_wrap=True)

StackName = Annotated[str, typer.Argument(help="A stack: stacks/Pulumi.<stack>.yaml")]
ProjectFolder = Annotated[
    Path | None, typer.Option(help="Folder of Pulumi.yaml, the program and stacks/, in place of this project's own.")
]


def report(line: str) -> None:
    """A line of progress, beside what the command prints."""
    err.print(f"[dim]· {line}[/dim]", highlight=False)


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

    from console.project import RenderError  # noqa: PLC0415 - as above
    from console.show import problems  # noqa: PLC0415 - as above

    try:
        yield
    except StackError as error:
        problems(err, error.problems, f"stack {stack}")
        raise typer.Exit(STACK_WRONG) from error
    except RenderError as error:
        problems(err, error.problems, f"what stack {stack} declares")
        raise typer.Exit(INTERNAL) from error
    # RunError: the program itself says what it lacks. OSError: a file of the user's own is in the way.
    except (ConsoleError, RunError, FileExistsError, NotADirectoryError, PermissionError) as error:
        err.print(f"[red]error[/red] {escape(str(error))}", highlight=False)
        raise typer.Exit(STACK_WRONG) from error
