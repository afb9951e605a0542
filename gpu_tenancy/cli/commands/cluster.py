"""`cluster`: inspect, adopt and hold parts of a running cluster; checks before a deployment."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.base.errors import ConsoleError, UsageError
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.base.texts import plural, visible
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.commands.options import asking
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.access import live as live_access
    from gpu_tenancy.adopt import adopting, tenancy
    from gpu_tenancy.adopt import show as adopt_show
    from gpu_tenancy.cli import charts as chart_pins
    from gpu_tenancy.cli.commands import up
    from gpu_tenancy.cluster import reading, supply
    from gpu_tenancy.doctor import checks, guards, results, upgrades
    from gpu_tenancy.engine import files
    from gpu_tenancy.engine import project as rendering
    from gpu_tenancy.kube import client, errors, pruning, references
    from gpu_tenancy.maintenance import holding
    from gpu_tenancy.model import plan
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.model.catalogue import operators as catalogue_operators
    from gpu_tenancy.model.plan import operators as plan_operators
    from gpu_tenancy.survey import page, survey
    from gpu_tenancy.survey import show as survey_show


def inspect(
    *,
    place: terminal.Place,
    out: Annotated[Path | None, typer.Option(help="Folder for `inspect.html`, a page with all findings.")] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Replace the names of objects, the same name by the same one.")
    ] = False,
    output: Output = None,
) -> None:
    """Inspect any running cluster: GPUs that exist, are promised and idle, and queues and quotas that contradict.

    It needs no stack and changes nothing. It reads with your rights, and names what you may not read.

    [dim]tenancy cluster inspect --anonymous[/dim]
    """
    with asking(place) as cluster:
        with terminal.reported_if_slow("reading the cluster"):
            found = survey.survey(survey.read_facts(cluster, anonymous=anonymous))
        answer(output, survey_show.data(found), survey_show.screen(found))
        if out:
            terminal.report(f"page: {page.write_survey(found, out)}")


def adopt(
    *,
    out: Annotated[Path, typer.Option(help="File to write: stacks/Pulumi.NAME.yaml of a project.", show_default=False)],
    project: ProjectFolder = None,
    place: terminal.Place,
    output: Output = None,
) -> None:
    """Write a stack that has the tenancy of a running cluster, and compare its objects with the cluster's.

    It reads with your rights and changes nothing in the cluster. Exit code 1: the stack is written, but not valid yet,
    or not complete because of your rights.

    [dim]tenancy cluster adopt --out stacks/Pulumi.prod.yaml[/dim]
    """
    name = out.name.removeprefix("Pulumi.").removesuffix(".yaml")
    if out.name != f"Pulumi.{name}.yaml":
        raise ConsoleError(f"--out {out}: not the file of a stack", "use stacks/Pulumi.NAME.yaml")
    projects.check_name(name)
    if out.exists():
        raise ConsoleError(f"--out {out}: exists", "use another name, or delete the file first")
    with asking(place) as cluster:
        with terminal.reported_if_slow("reading the cluster"):
            groups = frozenset(group for group in tenancy.OPERATED if cluster.versions(group))
            seen = tenancy.Seen(supply.Facts(reading.read(cluster, tenancy.KINDS, cluster.namespace)), groups)
        found = adopting.adopt(seen, name, _exists(cluster), project)
        write_text(out, adopt_show.written(found))
        terminal.report(f"stack: {out}")
        answer(output, adopt_show.data(found), *(Text(visible(line)) for line in adopt_show.lines(found)))
        if found.problems or found.incomplete:
            raise typer.Exit(terminal.ExitCode.ERROR)


def _exists(cluster: "client.Cluster") -> Callable[["references.Reference"], bool | None]:
    """Whether the cluster has an object; each kind is listed once, or in each namespace where that is all one may read.

    False for kinds that the cluster does not serve, None for those that the user may not read.
    """

    @cache
    def listed(api_version: str, kind: str, namespace: str) -> frozenset[references.Reference] | None:
        """None if one may not list them there."""
        try:
            found = cluster.list(api_version, kind, namespace=namespace, metadata_only=True)
            return frozenset(map(references.Reference.of, found))
        except errors.UnknownKindError:
            return frozenset()
        except errors.ApiError as error:
            if error.status != errors.FORBIDDEN:
                raise
            return None

    def exists(reference: references.Reference) -> bool | None:
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
    place: terminal.Place,
    dry_run: _DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Hold a team, a flavor or a pool for maintenance: Kueue admits nothing new there. Asks first.

    Without --until, it is held until `tenancy cluster release`. With it, a CronJob in the cluster releases it.

    [dim]tenancy cluster hold h100 --drain --until 4h[/dim]
    """
    with asking(place, rights=_RIGHTS) as cluster:
        end = holding.moment(until, datetime.now(UTC)) if until else None
        subject = holding.find(reading.read(cluster, holding.KINDS), name)
        held = subject.held_by(live_access.who_am_i(cluster).user, end, drain=drain)
        terminal.out.print(f"{subject.kind} {subject.name}: {held.text}", highlight=False)
        for line in subject.consequences(drain=drain):
            terminal.out.print(f"  {line}", highlight=False)
        if dry_run:
            return
        up.confirm(f"Hold {subject.name}?", yes=yes)
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
    place: terminal.Place,
    dry_run: _DryRun = False,
    yes: options.Yes = False,
) -> None:
    """Release what `tenancy cluster hold` holds, and restore what was there before. Asks first.

    Without a name, it lists what is held.

    [dim]tenancy cluster release h100[/dim]
    """
    with asking(place, rights=_RIGHTS) as cluster:
        state = reading.read(cluster, holding.KINDS)
        if not name:
            for held in holding.all_holds(state):
                terminal.out.print(f"{held.kind} {held.name}: {held.text}", highlight=False)
            if not holding.all_holds(state):
                terminal.out.print("nothing is held", highlight=False)
            return
        subject = holding.find(state, name)
        if not subject.hold:
            raise ConsoleError(f"{subject.kind} {subject.name}: not held", "list holds: `tenancy cluster release`")
        terminal.out.print(f"{subject.kind} {subject.name}: {subject.hold.text}", highlight=False)
        for line in subject.consequences(drain=False):
            terminal.out.print(f"  {line}", highlight=False)
        if dry_run:
            return
        up.confirm(f"Release {subject.name}?", yes=yes)
        holding.release(cluster, subject, subject.hold)
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
    charts: Annotated[
        bool,
        typer.Option("--charts", help="Compare Helm charts, instead of tools, with their digests: downloads archives."),
    ] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="With --live: namespace of one team. Default: all teams.")
    ] = None,
    project: ProjectFolder = None,
    place: terminal.Place,
    output: Output = None,
) -> None:
    """Check before a deployment that tools, quotas, zones, subnets, rights and versions are there. Nothing is changed.

    Exit code 3 if something is missing; what cannot be asked is unknown, with the right that you need to ask.

    With --live, a dozen harmless attempts in each team's namespace show whether each guard rejects what it is for, as a
    member of the team if you may impersonate one, and the policies of the cluster are compared with those of the stack.

    With --upgrade, versions, stored objects, conversions, webhooks and namespaces of the installed operators are
    checked, before a deployment upgrades them to the versions of the stack while jobs run. With --charts, the Helm
    charts of the stack are compared with their pinned digests; a chart without a digest is unknown.

    [dim]tenancy cluster doctor prod-aws --cloud[/dim]
    """
    with terminal.errors(stack):
        if namespace and not live:
            raise UsageError("-n selects guards that --live tries", "add --live, or remove -n")
        tree = options.tree_of(stack, project)
        loaded = tree.written
        rendered = rendering.preview(stack, projects.project_folder(project)) if cloud or live or charts else None
        rows = [] if upgrade or charts else [*checks.tools(loaded)]
        if rendered and cloud:
            with terminal.reported_if_slow("asking the cloud"):
                rows += checks.cloud_rows(loaded, rendered.rendered.registrations)
        if rendered and live:
            manifests = [item.manifest for item in rendered.objects]
            with (
                asking(place) as cluster,
                terminal.reported_if_slow("trying the guards; -n TEAM tries those of one team"),
            ):
                rows += guards.live_rows(cluster, plan.plan(rendered.stack), manifests, namespace or "")
        if rendered and charts:
            with terminal.reported_if_slow("downloading charts"):
                pins = chart_pins.chart_pins(rendered.stack, files.helm_releases(rendered.rendered))
                rows += chart_pins.chart_rows(pins)
        if upgrade:
            with asking(place) as cluster:
                running = plan_operators.running(tree).values()
                rows += upgrades.upgrade_rows(cluster, (one for plans in running for one in plans))
        results.conclude(rows, output)


def migrate(
    *,
    place: terminal.Place,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and write nothing.")] = False,
) -> None:
    """Rewrite the objects of operators that the API server stores in an old API version.

    Then a version of the operator can be installed that no longer serves the old API version. No object changes, and
    workloads go on running.

    [dim]tenancy cluster migrate --dry-run[/dim]
    """
    rights = "use the kubeconfig of an administrator, who may write these objects and the status of their definitions"
    with asking(place, rights=rights) as cluster:
        known = (chart for one in catalogue_operators.operators().values() for chart in one.charts.values())
        groups = {group for chart in known for group in chart.serves}
        old = [kind for kind in pruning.stored_kinds(cluster, groups) if kind.old]
        for kind in old:
            versions = f"{', '.join(kind.old)} to {kind.storage}"
            written = "" if dry_run else f": {plural(pruning.migrate(cluster, kind), 'object')} written"
            terminal.out.print(f"{kind.name}: {versions}{written}", highlight=False)
        if not old:
            terminal.out.print("all objects of operators are stored in the current version", highlight=False)
