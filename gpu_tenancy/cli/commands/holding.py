"""Commands that hold teams, flavors and pools of a running cluster for maintenance."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError, naming
from gpu_tenancy.cli.commands.live import Context, Embedded, Kubeconfig, asking

if TYPE_CHECKING:
    from gpu_tenancy.inspect.holding import Subject
    from gpu_tenancy.inspect.holds import Hold
    from gpu_tenancy.kube.client import Cluster

_RIGHTS = "use the kubeconfig of an administrator, who may change queues and flavors"
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be changed, and change nothing.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before anything is changed.")]


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
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    embedded: Embedded = False,
    dry_run: _DryRun = False,
    yes: _Yes = False,
) -> None:
    """Hold a team, a flavor or a pool for maintenance: Kueue admits nothing new there. Asks first.

    Without --until, it is held until `tenancy cluster release`. With it, a CronJob in the cluster releases it.

    [dim]tenancy cluster hold h100 --drain --until 4h[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded, rights=_RIGHTS) as cluster:
        from datetime import UTC, datetime

        from gpu_tenancy.access.live import who_am_i
        from gpu_tenancy.cli.commands.environments import confirm
        from gpu_tenancy.inspect import hold_end, holding
        from gpu_tenancy.inspect.reading import read

        end = hold_end.moment(until, datetime.now(UTC)) if until else None
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
            home = hold_end.arrange(cluster, held)
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
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    embedded: Embedded = False,
    dry_run: _DryRun = False,
) -> None:
    """Release what `tenancy cluster hold` holds, and restore what was there before.

    Without a name, it lists what is held.

    [dim]tenancy cluster release h100[/dim]
    """
    if drift:
        from gpu_tenancy.inspect.holds import holds_in

        with terminal.errors(), naming(drift):
            for line in holds_in(drift.read_text(encoding="utf-8", errors="replace")):
                terminal.out.print(line, highlight=False, soft_wrap=True)
        return
    with asking(kubeconfig, context, embedded=embedded, rights=_RIGHTS) as cluster:
        from datetime import UTC, datetime

        from gpu_tenancy.inspect import holding
        from gpu_tenancy.inspect.queues import Queues
        from gpu_tenancy.inspect.reading import read

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
            _release(cluster, holding.subject_of(Queues(state), held), held, dry_run=dry_run or not due)


def _release(cluster: "Cluster", subject: "Subject", held: "Hold", *, dry_run: bool) -> None:
    from gpu_tenancy.inspect import hold_end, holding

    terminal.out.print(f"{subject.kind} {subject.name}: {held.text}", highlight=False)
    if dry_run:
        for line in subject.consequences(drain=False):
            terminal.out.print(f"  {line}", highlight=False)
        return
    holding.release(cluster, subject, held)
    hold_end.dismiss(cluster, held)
    terminal.out.print("  released", highlight=False)
