"""Commands about the embedded platform: a stack on it, its parts, its end."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_tenancy.console import terminal
from gpu_tenancy.console.terminal import ProjectFolder, StackName

if TYPE_CHECKING:
    from gpu_tenancy.console.project import Preview


def register(app: typer.Typer) -> None:
    """Adds these commands."""
    app.command()(up)
    app.command()(down)
    app.command()(status)


def up(
    stack: StackName = "local",
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("out"),
    project: ProjectFolder = None,
) -> None:
    """A stack on the embedded platform: a real API server and scheduler, with nodes that carry the pools' GPUs.

    By `pulumi up` where the CLI is on the PATH, else by server-side apply of the preview's objects.

    [dim]tenancy up local[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.console import show  # noqa: PLC0415 - `--help` can do without the model and Pulumi's SDK
        from gpu_tenancy.console.embedded.platform import Platform  # noqa: PLC0415 - as above
        from gpu_tenancy.console.project import project_folder  # noqa: PLC0415 - as above
        from gpu_tenancy.console.report import write_forecast, write_report  # noqa: PLC0415 - as above
        from gpu_tenancy.console.up import up as bring_up  # noqa: PLC0415 - as above

        def foreshow(found: "Preview") -> None:
            page = write_forecast(found, out / stack)
            terminal.report(f"report of the stack, to read meanwhile: {page}")

        result = bring_up(stack, Platform(), terminal.report, project_folder(project), foreshow=foreshow)
        show.outcome(terminal.out, result)
        page = write_report(result, out / stack)
        terminal.out.print(f"\nkubeconfig  {result.kubeconfig}\nreport      {page}")
        if not result.holds:
            raise typer.Exit(terminal.PROMISE_BROKEN)


def down() -> None:
    """Ends the embedded platform: no process and no file is left but what was built and downloaded.

    [dim]tenancy down[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.console.embedded.platform import Platform  # noqa: PLC0415 - as above

        Platform().down(terminal.report)
        terminal.out.print("the embedded platform is gone")


def status() -> None:
    """Which parts of the embedded platform run, and which stack it carries. Exit code 1 where a part does not run.

    [dim]tenancy status[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.console.embedded.platform import Platform  # noqa: PLC0415 - as above

        platform = Platform()
        parts = platform.status()
        for part in parts:
            terminal.out.print(f"{part.part:26}{f'pid {part.pid}' if part.runs else 'does not run'}", highlight=False)
        carried = platform.carried()
        if carried:
            words = f"\nstack {carried[0]}, by {carried[1]}\nkubeconfig {platform.kubeconfig}"
            terminal.out.print(words, highlight=False)
        if not all(part.runs for part in parts):
            raise typer.Exit(terminal.STACK_WRONG)
