"""`cluster`: inspect, adopt and hold parts of a running cluster; checks before a deployment."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.base.errors import ConsoleError, naming
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.base.texts import plural, visible
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.commands.options import asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_tenancy.cluster.cluster_queues import Hold
    from gpu_tenancy.kube.client import Cluster
    from gpu_tenancy.kube.references import Reference
    from gpu_tenancy.maintenance.holding import Subject


def inspect(
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    out: Annotated[Path | None, typer.Option(help="Folder for `inspect.html`, a page with all findings.")] = None,
    *,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Replace the names of objects, the same name by the same one.")
    ] = False,
    embedded: options.Embedded = False,
    output: Output = None,
) -> None:
    """Inspect any running cluster: GPUs that exist, are promised and idle, and queues and quotas that contradict.

    It needs no stack and changes nothing. It reads with your rights, and names what you may not read.

    [dim]tenancy cluster inspect --anonymous[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.survey import show
        from gpu_tenancy.survey.survey import read_facts, survey

        with terminal.reported_if_slow("reading the cluster"):
            found = survey(read_facts(cluster, anonymous=anonymous))
        answer(output, show.data(found), show.screen(found))
        if out:
            from gpu_tenancy.survey.page import write_survey

            terminal.report(f"page: {write_survey(found, out)}")


def adopt(
    *,
    out: Annotated[Path, typer.Option(help="File to write: stacks/Pulumi.NAME.yaml of a project.", show_default=False)],
    project: ProjectFolder = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    embedded: options.Embedded = False,
    output: Output = None,
) -> None:
    """Write a stack that has the tenancy of a running cluster, and compare its objects with the cluster's.

    It reads with your rights and changes nothing in the cluster. Exit code 1: the stack is written, but not valid yet,
    or not complete because of your rights.

    [dim]tenancy cluster adopt --out stacks/Pulumi.prod.yaml[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.model.project import check_name

        name = out.name.removeprefix("Pulumi.").removesuffix(".yaml")
        if out.name != f"Pulumi.{name}.yaml":
            raise ConsoleError(f"--out {out}: not the file of a stack", "use stacks/Pulumi.NAME.yaml")
        check_name(name)
        if out.exists():
            raise ConsoleError(f"--out {out}: exists", "use another name, or delete the file first")
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.adopt import show
        from gpu_tenancy.adopt.adopting import adopt as adopt_from
        from gpu_tenancy.adopt.tenancy import KINDS, OPERATED, Seen
        from gpu_tenancy.cluster.reading import read
        from gpu_tenancy.cluster.supply import Facts

        with terminal.reported_if_slow("reading the cluster"):
            groups = frozenset(group for group in OPERATED if cluster.versions(group))
            seen = Seen(Facts(read(cluster, KINDS, cluster.namespace)), groups)
        found = adopt_from(seen, name, _exists(cluster), project)
        write_text(out, show.written(found))
        terminal.report(f"stack: {out}")
        answer(output, show.data(found), *(Text(visible(line)) for line in show.lines(found)))
        if found.problems or found.incomplete:
            raise typer.Exit(1)


def _exists(cluster: "Cluster") -> "Callable[[Reference], bool | None]":
    """Whether the cluster has an object; each kind is listed once, or in each namespace where that is all one may read.

    False for kinds that the cluster does not serve, None for those that the user may not read.
    """
    from gpu_tenancy.kube.errors import FORBIDDEN, ApiError, UnknownKindError
    from gpu_tenancy.kube.references import Reference

    @cache
    def listed(api_version: str, kind: str, namespace: str) -> frozenset[Reference] | None:
        """None if one may not list them there."""
        try:
            found = cluster.list(api_version, kind, namespace=namespace, metadata_only=True)
            return frozenset(map(Reference.of, found))
        except UnknownKindError:
            return frozenset()
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            return None

    def exists(reference: Reference) -> bool | None:
        known = listed(reference.api_version, reference.kind, "")
        if known is None and reference.namespace:
            known = listed(reference.api_version, reference.kind, reference.namespace)
        return None if known is None else reference in known

    return exists


_RIGHTS = "use the kubeconfig of an administrator, who may change queues and flavors"
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be changed, and change nothing.")]


def hold(
    name: Annotated[
        str,
        typer.Argument(help="TEAM, FLAVOR or POOL; ClusterQueue/NAME or ResourceFlavor/NAME if several have the name."),
    ],
    *,
    drain: Annotated[bool, typer.Option("--drain", help="Also evict the workloads that run there.")] = False,
    until: Annotated[
        str, typer.Option(help="End: a duration such as 90m, 4h or 2d, or a time such as 2026-11-24T20:00Z.")
    ] = "",
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    embedded: options.Embedded = False,
    dry_run: _DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Hold a team, a flavor or a pool for maintenance: Kueue admits nothing new there. Asks first.

    Without --until, it is held until `tenancy cluster release`. With it, a CronJob in the cluster releases it.

    [dim]tenancy cluster hold h100 --drain --until 4h[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded, rights=_RIGHTS) as cluster:
        from gpu_tenancy.access.live import who_am_i
        from gpu_tenancy.cli.commands.up import confirm
        from gpu_tenancy.cluster.reading import read
        from gpu_tenancy.maintenance import holding

        end = holding.moment(until, datetime.now(UTC)) if until else None
        subject = holding.find(read(cluster, holding.KINDS), name)
        held = subject.held_by(who_am_i(cluster).user, end, drain=drain)
        terminal.out.print(f"{subject.kind} {subject.name}: {held.text}", highlight=False)
        for line in subject.consequences(drain=drain):
            terminal.out.print(f"  {line}", highlight=False)
        if dry_run:
            return
        confirm(f"Hold {subject.name}?", yes=yes)
        holding.hold(cluster, subject, held)
        if held.until:
            home = holding.arrange(cluster, held)
            terminal.out.print(f"a CronJob in {home} releases it", highlight=False)
        if drain and subject.kind == "ResourceFlavor":  # Kueue itself evicts what a drained ClusterQueue has.
            with terminal.reported_if_slow("evicting workloads"):
                holding.evict(cluster, subject.running)


def release(
    name: Annotated[str, typer.Argument(help="TEAM, FLAVOR or POOL as in `tenancy cluster hold`.")] = "",
    *,
    due: Annotated[bool, typer.Option("--due", help="Release everything whose end has passed.")] = False,
    drift: Annotated[
        Path | None,
        typer.Option("--drift", metavar="FILE", help="List the holds in the output of a check for drift; no cluster."),
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    embedded: options.Embedded = False,
    dry_run: _DryRun = False,
) -> None:
    """Release what `tenancy cluster hold` holds, and restore what was there before.

    Without a name, it lists what is held.

    [dim]tenancy cluster release h100[/dim]
    """
    if drift:
        from gpu_tenancy.cluster.cluster_queues import holds_in

        with terminal.errors(), naming(drift):
            for line in holds_in(drift.read_text(encoding="utf-8", errors="replace")):
                terminal.out.print(line, highlight=False, soft_wrap=True)
        return
    with asking(kubeconfig, context, embedded=embedded, rights=_RIGHTS) as cluster:
        from gpu_tenancy.cluster.queues import Queues
        from gpu_tenancy.cluster.reading import read
        from gpu_tenancy.maintenance import holding

        if name and due:
            raise ConsoleError(f"{name}: --due releases everything whose end has passed", "remove one of them")
        state = read(cluster, holding.KINDS)
        if name:
            subject = holding.find(state, name)
            if not subject.hold:
                raise ConsoleError(f"{subject.kind} {subject.name}: not held", "list holds: `tenancy cluster release`")
            _release(cluster, subject, subject.hold, dry_run=dry_run)
            return
        holds = holding.all_holds(state)
        chosen = [held for held in holds if held.due(datetime.now(UTC))] if due else holds
        if not chosen:
            terminal.out.print("nothing is held" if not due else "nothing is due", highlight=False)
        for held in chosen:
            _release(cluster, holding.subject_of(Queues(state), held.kind, held.name), held, dry_run=dry_run or not due)


def _release(cluster: "Cluster", subject: "Subject", held: "Hold", *, dry_run: bool) -> None:
    from gpu_tenancy.maintenance import holding

    terminal.out.print(f"{subject.kind} {subject.name}: {held.text}", highlight=False)
    if dry_run:
        for line in subject.consequences(drain=False):
            terminal.out.print(f"  {line}", highlight=False)
        return
    holding.release(cluster, subject, held)
    holding.dismiss(cluster, held)
    terminal.out.print("  released", highlight=False)


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
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    embedded: options.Embedded = False,
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
        from gpu_tenancy.model.project import project_folder

        tree = options.tree_of(stack, project)
        loaded = tree.written
        with terminal.reported_if_slow("asking the cloud"):
            rows = [*(() if upgrade else tools(loaded)), *(cloud_rows(loaded) if cloud else ())]
        if live:
            from gpu_tenancy.doctor.guards import live_rows
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

            with asking(kubeconfig, context, embedded=embedded) as cluster:
                rows += upgrade_rows(cluster, (one for plans in running(tree).values() for one in plans))
        results.conclude(rows, output)


def migrate(
    *,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    embedded: options.Embedded = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")] = False,
) -> None:
    """Write objects that are stored in an old version of their kind again, for the kinds of operators.

    A later version of the operator that no longer serves the old version can then be installed. Objects stay as they
    are, workloads go on running.

    [dim]tenancy cluster migrate --dry-run[/dim]
    """
    rights = "use the kubeconfig of an administrator, who may write these objects and the status of their definitions"
    with asking(kubeconfig, context, embedded=embedded, rights=rights) as cluster:
        from gpu_tenancy.kube import pruning
        from gpu_tenancy.model.catalogue.operators import operators

        groups = {group for one in operators().values() for chart in one.charts.values() for group in chart.serves}
        old = [kind for kind in pruning.stored_kinds(cluster, groups) if kind.old]
        for kind in old:
            versions = f"{', '.join(kind.old)} to {kind.storage}"
            written = "" if dry_run else f": {plural(pruning.migrate(cluster, kind), 'object')} written"
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
        from gpu_tenancy.engine.files import helm_releases
        from gpu_tenancy.model.project import project_folder

        preview = projects.preview(stack, project_folder(project))
        with terminal.reported_if_slow("downloading charts"):
            rows = list(chart_rows(chart_pins(preview.stack, helm_releases(preview.rendered))))
        results.conclude(rows, output)
