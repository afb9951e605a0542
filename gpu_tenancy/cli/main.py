"""The command `tenancy`: everything that is not the Pulumi program."""

import sys

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.cli.commands import (
    doctor,
    facts,
    live,
    people,
    platform,
    previewing,
    render,
    simulating,
    stacks,
    starting,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Preview, deploy and inspect GPU platforms that several teams share on Kubernetes.",
)
for command in (
    starting.init,
    starting.pack,
    previewing.preview,
    stacks.validate,
    stacks.explain,
    stacks.diff,
    doctor.doctor,
    doctor.charts,
    simulating.whatif,
    simulating.demo,
    live.usage,
    live.fit,
    live.why,
    people.who_can,
    people.can,
    people.kubeconfig_of,
    people.login_check,
    people.worker_kubeconfig,
    platform.up,
    platform.down,
    platform.status,
    render.render,
    render.changed,
    render.comment,
    facts.clouds,
    facts.machines,
    facts.schema,
    simulating.simulate,
):
    app.command("kubeconfig" if command is people.kubeconfig_of else None)(command)


def main() -> None:
    """Runs the command; an unexpected error prints its traceback for a bug report and exits with code 3."""
    try:
        app()
    except Exception:  # noqa: BLE001 - the last place that can report it
        terminal.err.print_exception(max_frames=20)
        sys.exit(terminal.INTERNAL)
