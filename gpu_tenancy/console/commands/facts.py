"""Commands about what a stack may say: clouds, machines, the schema of its file."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpu_tenancy.console import terminal


def register(app: typer.Typer) -> None:
    """Adds these commands."""
    app.command()(clouds)
    app.command()(machines)
    app.command()(schema)


def clouds() -> None:
    """What each cloud can do with a node pool: ways to buy machines, drivers, partitions, networks.

    [dim]tenancy clouds[/dim]
    """
    from gpu_tenancy.console.catalogue import abilities_table  # noqa: PLC0415 - `--help` can do without the catalogue

    terminal.out.print(abilities_table(), highlight=False)


def machines(
    cloud: Annotated[str | None, typer.Option(help="Only this cloud's: aws, gcp or azure.")] = None,
) -> None:
    """The machines that a stack may name, with what pods have of them and what they cost.

    [dim]tenancy machines --cloud gcp[/dim]
    """
    from gpu_tenancy.console.catalogue import machines_table  # noqa: PLC0415 - as above
    from gpu_tenancy.model.catalogue import cloud_tables  # noqa: PLC0415 - as above
    from gpu_tenancy.model.problems import nearest  # noqa: PLC0415 - as above

    if cloud is not None and cloud not in cloud_tables():
        terminal.err.print(
            f"[red]error[/red] there are no machines of {escape(cloud)}; {nearest(cloud, cloud_tables())}"
        )
        raise typer.Exit(terminal.STACK_WRONG)
    terminal.out.print(machines_table(cloud), highlight=False)


def schema(
    out: Annotated[Path | None, typer.Option(help="File to write; left out, it is printed.")] = None,
) -> None:
    """The JSON schema of a stack's file, by which editors check and complete.

    [dim]tenancy schema --out stacks/schema.json[/dim]
    """
    from gpu_tenancy.model.schema import file_schema  # noqa: PLC0415 - as above

    text = json.dumps(file_schema(), indent=2, ensure_ascii=False) + "\n"
    if out:
        out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
