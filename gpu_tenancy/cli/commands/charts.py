"""The command `charts`, which compares the archives of Helm charts with their pinned digests."""

from typing import Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.terminal import ProjectFolder, StackName


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(charts)


def charts(
    stack: StackName,
    *,
    project: ProjectFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the Helm charts of a stack with their pinned digests, before a deployment. Downloads the archives.

    Exit code 2 if an archive is not the pinned one. A chart without a digest is unknown.

    [dim]tenancy charts prod-aws[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.cli.charts import chart_pins, chart_rows  # noqa: PLC0415 - as above
        from gpu_tenancy.doctor import results  # noqa: PLC0415 - as above
        from gpu_tenancy.engine import project as projects  # noqa: PLC0415 - not needed for `--help`
        from gpu_tenancy.engine.releases import helm_releases  # noqa: PLC0415 - as above

        preview = projects.preview(stack, projects.project_folder(project))
        with terminal.reported_if_slow("downloading charts"):
            rows = list(chart_rows(chart_pins(preview.stack, helm_releases(preview.rendered))))
        results.conclude(rows, as_json=as_json)
