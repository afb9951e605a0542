"""The command `tenancy`: everything that is not the Pulumi program."""

import sys

import typer
from rich.console import Console

from gpu_tenancy.console import terminal
from gpu_tenancy.console.commands import facts, live, platform, previewing, render, simulate, stacks, starting, whatif

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="GPU platforms that teams share: previews without any credential, and a platform of your own to try them on.",
)
for group in (starting, previewing, stacks, whatif, live, platform, render, facts, simulate):
    group.register(app)


def main() -> None:
    """Runs the command; an error that nobody foresaw is 3, with its trace of calls for a bug report."""
    try:
        app()
    except Exception:  # noqa: BLE001 - the last place that could say it
        Console(stderr=True).print_exception(max_frames=20)
        sys.exit(terminal.INTERNAL)
