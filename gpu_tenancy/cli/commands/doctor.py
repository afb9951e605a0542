"""Commands before a deployment: `doctor`, a preflight, `migrate`, and `charts`, which compares charts with digests."""

from typing import Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.base.texts import plural
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
    upgrade: Annotated[
        bool,
        typer.Option(
            "--upgrade", help="Check in the cluster, instead of tools, whether its operators can be upgraded."
        ),
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

    With --upgrade, versions, stored objects, conversions, webhooks and namespaces of the installed operators are
    checked, before a deployment upgrades them to the versions of the stack while jobs run.

    [dim]tenancy cluster doctor prod-aws --cloud[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.doctor import results
        from gpu_tenancy.doctor.checks import cloud_rows, tools
        from gpu_tenancy.model.load import load
        from gpu_tenancy.model.project import project_folder, read_stack

        loaded = load(read_stack(stack, project_folder(project)))
        with terminal.reported_if_slow("asking the cloud"):
            rows = [*(() if upgrade else tools(loaded)), *(cloud_rows(loaded) if cloud else ())]
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
        if upgrade:
            from gpu_tenancy.doctor.upgrades import upgrade_rows
            from gpu_tenancy.model.plan.operators import running
            from gpu_tenancy.model.plan.shares import Tree

            with asking(kubeconfig, context, embedded=embedded) as cluster:
                rows += upgrade_rows(cluster, (one for plans in running(Tree(loaded)).values() for one in plans))
        results.conclude(rows, output)


def migrate(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    embedded: Embedded = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")] = False,
) -> None:
    """Write objects that are stored in an old version of their kind again, for the kinds of operators.

    A later version of the operator that no longer serves the old version can then be installed. Objects stay as they
    are, workloads go on running.

    [dim]tenancy cluster migrate --dry-run[/dim]
    """
    rights = "use the kubeconfig of an administrator, who may write these objects and the status of their definitions"
    with asking(kubeconfig, context, embedded=embedded, rights=rights) as cluster:
        from gpu_tenancy.kube import stored
        from gpu_tenancy.model.catalogue.operators import operators

        groups = {group for one in operators().values() for chart in one.charts.values() for group in chart.serves}
        old = [kind for kind in stored.stored_kinds(cluster, groups) if kind.old]
        for kind in old:
            versions = f"{', '.join(kind.old)} to {kind.storage}"
            written = "" if dry_run else f": {plural(stored.migrate(cluster, kind), 'object')} written"
            terminal.out.print(f"{kind.name}: {versions}{written}", highlight=False)
        if not old:
            terminal.out.print("all objects of operators are stored in the current version", highlight=False)


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
