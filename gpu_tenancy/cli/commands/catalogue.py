"""Reference commands: cloud capabilities, machine types, the schema of stack files, policy packs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.terminal import ProjectFolder


def clouds(output: Output = None) -> None:
    """Show what each cloud supports in a node pool: capacity types, drivers, GPU sharing and networks.

    [dim]tenancy catalogue clouds[/dim]
    """
    from gpu_tenancy.cli.catalogue import abilities_table

    table = abilities_table()
    answer(output, table.records, table)


def machines(
    cloud: Annotated[str | None, typer.Option(help="Show one cloud only: aws, gcp or azure.")] = None,
    output: Output = None,
) -> None:
    """List the machine types that a stack can use, with allocatable resources and prices.

    [dim]tenancy catalogue machines --cloud gcp[/dim]
    """
    from gpu_tenancy.base.problems import nearest
    from gpu_tenancy.cli.catalogue import machines_data, machines_table
    from gpu_tenancy.model.catalogue import cloud_tables

    if cloud is not None and cloud not in cloud_tables():
        terminal.error_line(f"--cloud: unknown cloud '{cloud}'; {nearest(cloud, cloud_tables())}")
        raise typer.Exit(terminal.STACK_WRONG)
    answer(output, machines_data(cloud), machines_table(cloud))


def schema(
    *,
    scenarios: Annotated[
        bool, typer.Option("--scenarios", help="The schema of files with jobs over time instead.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File to write. Default: standard output.")] = None,
) -> None:
    """Print the JSON schema of stack files, for validation and completion in editors.

    [dim]tenancy catalogue schema --out stacks/schema.json[/dim]
    """
    from gpu_tenancy.model.schema import schema_text
    from gpu_tenancy.simulation.scenario import scenario_schema_text

    text = scenario_schema_text() if scenarios else schema_text()
    if out:
        write_text(out, text)
    else:
        sys.stdout.write(text)


def packs(
    name: Annotated[str | None, typer.Argument(help="Print only the folder of this pack.", show_default=False)] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """List the policy packs and their folders; with NAME, print its folder for `pulumi preview --policy-pack`.

    [dim]pulumi preview --policy-pack "$(tenancy catalogue packs workloads)"[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.model.project import project_folder
        from gpu_tenancy.packs.configuration import choose, pack_names

        folder = project_folder(project)
        if name:
            typer.echo(choose(name, folder, production=False).folder)
            return
        table = terminal.table("pack", "folder")
        for pack in pack_names(folder):
            table.add_row(pack, str(choose(pack, folder, production=False).folder))
        answer(output, table.records, table)
