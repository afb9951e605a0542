"""The command `tenancy`: everything except the Pulumi program."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from gpu_tenancy.base import terminal
from gpu_tenancy.cli.commands import (
    access,
    catalogue,
    cluster,
    cost,
    jobs,
    local,
    notebook,
    preview,
    stack,
    submit,
    up,
    usage,
    whatif,
)
from gpu_tenancy.cli.commands.options import with_place

_EVERY_DAY: Final = (
    preview.preview, up.up, up.destroy, usage.usage, submit.submit, usage.queue, jobs.claims, jobs.logs, jobs.top,
    jobs.cancel, jobs.requeue, usage.why, usage.fit, usage.ui, whatif.whatif, whatif.replay, cost.cost,
)  # fmt: skip
_GROUPS: Final[Mapping[str, tuple[str, Sequence[Callable[..., None]]]]] = {
    "notebook": (
        "JupyterLab in the queue of a team.",
        (notebook.start, notebook.open_, notebook.stop),
    ),
    "stack": (
        "Stack files: create a project, check, explain and publish them.",
        (
            stack.init, stack.validate, stack.explain, stack.render, stack.changed, stack.comment,
            up.repair,
        ),
    ),
    "cluster": (
        "Inspect or adopt a running cluster, whoever made it, and hold parts of it; checks before a deployment.",
        (
            cluster.inspect, cluster.adopt, cluster.hold, cluster.release, cluster.doctor, cluster.migrate,
            preview.snapshot,
        ),
    ),
    "access": (
        "Who may do what; kubeconfigs.",
        (access.who_can, access.kubeconfig, access.worker_kubeconfig),
    ),
    "local": (
        "The embedded platform: a stack on this machine, with simulated GPU nodes.",
        (local.up, local.down, local.status, whatif.demo, local.metrics),
    ),
    "catalogue": (
        "What a stack can use: machine types, keys, policy packs.",
        (catalogue.machines, catalogue.schema, catalogue.packs),
    ),
}  # fmt: skip


class _Command(TyperCommand):
    """A command whose help has no type for options without a value."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments; pydantic's start of a message is left out."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; errors that users can fix have no traceback, whatever the command reads or writes."""
        with terminal.errors():
            return super().invoke(ctx)


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads `--json`, of all commands, as `--output=json`."""
        return super().parse_args(ctx, ["--output=json" if word == "--json" else word for word in args])


def _without_types(params: Any) -> Any:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Preview, deploy and inspect GPU platforms that several teams share on Kubernetes.",
    epilog="Exit codes: 0 OK, 1 error, 2 wrong usage, 3 Blocked or does not fit, 130 interrupted.",
)
for command in _EVERY_DAY:
    app.command(cls=_Command, rich_help_panel="Every day")(with_place(command))
for group, (summary, commands) in _GROUPS.items():
    commands_of = typer.Typer(cls=_Group, no_args_is_help=True, rich_markup_mode="rich", help=summary)
    for command in commands:
        commands_of.command(command.__name__.strip("_").replace("_", "-"), cls=_Command)(with_place(command))
    app.add_typer(commands_of, name=group, rich_help_panel="Groups of commands")


def _print_version(asked: bool) -> None:  # noqa: FBT001 - Typer calls it
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - other commands do not need it

        typer.echo(f"tenancy {version('gpu-tenancy')}")
        raise typer.Exit


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction]
    *,
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None: ...


def main() -> None:
    """Runs the command; an unexpected error prints its traceback for a bug report."""
    try:
        app()
    except Exception as error:  # noqa: BLE001 - the last place that can report it
        if isinstance(error, ModuleNotFoundError):
            from gpu_tenancy.base.installing import missing  # noqa: PLC0415 - only for this error

            if problem := missing(error, "this command"):
                terminal.error_line(str(problem))
                sys.exit(terminal.ExitCode.ERROR)
        trace = error.__traceback__
        while trace and trace.tb_frame.f_globals.get("__name__") != "__main__":
            trace = trace.tb_next
        error.__traceback__ = trace or error.__traceback__  # of a project's program, only its own frames
        terminal.err.print_exception(max_frames=20)
        sys.exit(terminal.ExitCode.ERROR)
