"""The command `tenancy`: everything that is not the Pulumi program."""

import sys

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.cli.commands import (
    charts,
    demo,
    doctor,
    facts,
    live,
    people,
    platform,
    previewing,
    render,
    simulate,
    stacks,
    starting,
    whatif,
    workers,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Preview, deploy and inspect GPU platforms that several teams share on Kubernetes.",
)
for group in (
    starting,
    previewing,
    stacks,
    doctor,
    charts,
    whatif,
    demo,
    live,
    people,
    workers,
    platform,
    render,
    facts,
    simulate,
):
    group.register(app)


def main() -> None:
    """Runs the command; an unexpected error prints its traceback for a bug report and exits with code 3."""
    try:
        app()
    except Exception:  # noqa: BLE001 - the last place that can report it
        terminal.err.print_exception(max_frames=20)
        sys.exit(terminal.INTERNAL)
