"""Commands for a project of one's own."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the new project, named as the project is to be called.")],
    cloud: Annotated[
        list[str] | None,
        typer.Option(help="Cloud of the stack, with its SDK: aws, azure or gcp. Repeat it for more SDKs."),
    ] = None,
) -> None:
    """Create a project: program, one commented stack, policy settings, a workflow and a test.

    [dim]tenancy stack init my-platform --cloud aws[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.cli.starting import start

        files = start(folder, tuple(cloud or ()))
        for file in files:
            terminal.out.print(f"  {escape(str(file))}", highlight=False)
        place = escape(shlex.quote(str(folder)))
        terminal.out.print(f"\nnext: cd {place} && git init && tenancy preview dev --out out", highlight=False)
