"""The command `doctor`, a preflight of a stack."""

from typing import Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.terminal import ProjectFolder, StackName


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(doctor)


def doctor(
    stack: StackName,
    *,
    cloud: Annotated[
        bool, typer.Option("--cloud", help="Also ask the stack's cloud, read-only, with the login of its CLI.")
    ] = False,
    project: ProjectFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check before a deployment that tools, quotas, zones, subnets, rights and versions are there. Nothing is changed.

    Exit code 2 if something is missing; what cannot be asked is unknown, with the right that you need to ask.

    [dim]tenancy doctor prod-aws --cloud[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.doctor import results  # noqa: PLC0415 - not needed for `--help`
        from gpu_tenancy.doctor.checks import cloud_rows, tools  # noqa: PLC0415 - as above
        from gpu_tenancy.engine.project import project_folder, read_stack  # noqa: PLC0415 - as above
        from gpu_tenancy.model.load import load  # noqa: PLC0415 - as above

        loaded = load(read_stack(stack, project_folder(project)))
        with terminal.reported_if_slow("asking the cloud"):
            rows = [*tools(loaded), *(cloud_rows(loaded) if cloud else ())]
        results.conclude(rows, as_json=as_json)
