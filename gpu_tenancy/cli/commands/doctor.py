"""Commands before a deployment: `doctor`, a preflight, and `charts`, which compares Helm charts with their digests."""

from typing import Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.cli.commands.live import Context, Embedded, Kubeconfig, asking


def doctor(
    stack: StackName,
    *,
    cloud: Annotated[
        bool, typer.Option("--cloud", help="Also ask the stack's cloud, read-only, with the login of its CLI.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Also try in the cluster whether the guards are in force, by dry runs.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="With --live: namespace of one team. Default: all teams.")
    ] = None,
    project: ProjectFolder = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    embedded: Embedded = False,
    output: Output = None,
) -> None:
    """Check before a deployment that tools, quotas, zones, subnets, rights and versions are there. Nothing is changed.

    Exit code 2 if something is missing; what cannot be asked is unknown, with the right that you need to ask.

    With --live, a dozen harmless attempts in each team's namespace show whether each guard rejects what it is for, as a
    member of the team if you may impersonate one, and the policies of the cluster are compared with those of the stack.

    [dim]tenancy cluster doctor prod-aws --cloud[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.doctor import results
        from gpu_tenancy.doctor.checks import cloud_rows, tools
        from gpu_tenancy.model.load import load
        from gpu_tenancy.model.project import project_folder, read_stack

        loaded = load(read_stack(stack, project_folder(project)))
        with terminal.reported_if_slow("asking the cloud"):
            rows = [*tools(loaded), *(cloud_rows(loaded) if cloud else ())]
        if live:
            from gpu_tenancy.doctor.live import live_rows
            from gpu_tenancy.engine.project import preview
            from gpu_tenancy.model.plan import plan

            rendered = preview(stack, project_folder(project))
            manifests = [item.manifest for item in rendered.objects]
            with (
                asking(kubeconfig, context, embedded=embedded) as cluster,
                terminal.reported_if_slow("trying the guards; -n TEAM tries those of one team"),
            ):
                rows += live_rows(cluster, plan(rendered.stack), manifests, namespace or "")
        results.conclude(rows, output)


def charts(
    stack: StackName,
    *,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Compare the Helm charts of a stack with their pinned digests, before a deployment. Downloads the archives.

    Exit code 2 if an archive is not the pinned one. A chart without a digest is unknown.

    [dim]tenancy cluster charts prod-aws[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.cli.charts import chart_pins, chart_rows
        from gpu_tenancy.doctor import results
        from gpu_tenancy.engine import project as projects
        from gpu_tenancy.engine.releases import helm_releases
        from gpu_tenancy.model.project import project_folder

        preview = projects.preview(stack, project_folder(project))
        with terminal.reported_if_slow("downloading charts"):
            rows = list(chart_rows(chart_pins(preview.stack, helm_releases(preview.rendered))))
        results.conclude(rows, output)
