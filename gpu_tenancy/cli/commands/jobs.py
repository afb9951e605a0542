"""Commands about the jobs of a team by name: `claims`, `logs`, `top`, `cancel` and `requeue`."""

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.commands.options import asking, place_of, show_answer, team_of
from gpu_tenancy.cli.lazy import lazily
from gpu_tenancy.model.names import DEPLOYED_BY

with lazily():
    from gpu_tenancy.cli.commands import up
    from gpu_tenancy.cluster import demand, reading
    from gpu_tenancy.cluster import pods as cluster_pods
    from gpu_tenancy.jobs import jobs as team_jobs
    from gpu_tenancy.jobs import kubectl, overview, requeueing
    from gpu_tenancy.jobs import logs as job_logs
    from gpu_tenancy.kube import client, errors, references
    from gpu_tenancy.model import kinds


_Names = Annotated[list[str], typer.Argument(metavar="JOB...", help="NAMESPACE/NAME or NAME of jobs or servers.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def claims(
    team: options.Team = None, *, namespace: options.TeamOption = None, place: terminal.Place, output: Output = None
) -> None:
    """List what jobs of a team can mount: its datasets, with their buckets, and its storage.

    [dim]tenancy claims ml-research[/dim]
    """
    with asking(place) as cluster:
        team = team_of(cluster, team, namespace, "tenancy claims TEAM")
        found, pods = (cluster.list("v1", kind, namespace=team) for kind in ("PersistentVolumeClaim", "Pod"))
        if not found:
            reading.require_team(reading.read(cluster, ("Namespace", "LocalQueue"), team), team, "claims")
        show_answer(lambda: overview.claims(found, pods), overview.shown_claims, overview.data, output)


def logs(
    job: Annotated[str, typer.Argument(metavar="JOB", help="NAMESPACE/NAME or NAME of a job, server or pod.")],
    *,
    namespace: options.TeamOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines, also of pods that start later, until the job ends.")
    ] = False,
    kind: options.Kind = "",
    place: terminal.Place,
) -> None:
    """Print the logs of a job over all of its pods, each line with the number of its pod if there are several.

    With --follow, exit code 3: the job failed.

    [dim]tenancy logs nightly -f[/dim]
    """
    with asking(place) as cluster:
        found, manifest = _found(cluster, job, namespace, kind)
        if follow:
            followed(cluster, manifest)
        else:
            job_logs.Logs(cluster, _write, _note).show(found, manifest)


def followed(cluster: "client.Cluster", manifest: "cluster_pods.Manifest") -> None:
    """Prints the logs of a job until it ends. Raises typer.Exit if it failed."""
    name = text_at(manifest, "metadata", "name")
    try:
        end = job_logs.Logs(cluster, _write, _note).follow(manifest)
    except KeyboardInterrupt:
        _note(f"{name} continues; `tenancy logs {name} -f` follows it again")
        return
    _note(f"{name}: {end.lower() or 'deleted'}")
    if end in demand.FAILED:
        raise typer.Exit(terminal.ExitCode.BLOCKED)


def top(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="One job, by pod; default: all jobs.")] = None,
    *,
    namespace: options.TeamOption = None,
    kind: options.Kind = "",
    gpus: options.Gpus = False,
    place: terminal.Place,
    watch: options.Watch = False,
    output: Output = None,
) -> None:
    """Show the CPUs and the memory that jobs use, of what they request, and the GPUs that they hold.

    With --gpus, how busy GPUs are, and how much of their memory is in use; `?` where pods do not tell, with the
    reason below the table. The dashboards of the stack have it over time.

    [dim]tenancy top nightly --gpus --watch[/dim]
    """
    with asking(place) as cluster:
        if job:
            home, name = place_of(cluster, job, namespace)
        else:
            home, name = team_of(cluster, None, namespace, "tenancy top -n TEAM"), ""
        smi = kubectl.Kubectl.of(place, home).nvidia_smi if gpus else None

        def ask() -> tuple[tuple[overview.UseRow, ...], kubectl.Answers]:
            found, use = team_jobs.read_jobs(cluster, home, queued=True), overview.use_of(cluster, home)
            of = [found.named(name, kind)] if name else found.roots
            busy = kubectl.gpu_use((pod for root in of for pod in found.pods(root)), smi) if smi else kubectl.Answers()
            return tuple(
                overview.of_pods(found, of[0], use, busy.use) if name else overview.of_jobs(found, use, busy.use)
            ), busy

        show_answer(
            ask,
            lambda told: overview.used(told[0], pods=bool(name), busy=gpus, notes=told[1].notes),
            lambda told: overview.data(told[0]),
            output,
            watch=watch,
        )


def cancel(
    names: _Names,
    *,
    namespace: options.TeamOption = None,
    kind: options.Kind = "",
    place: terminal.Place,
    yes: _Yes = False,
) -> None:
    """Delete jobs: their pods end, and their quota is free for the queue.

    What they wrote to storage stays; their logs go with their pods.

    [dim]tenancy cancel nightly[/dim]
    """
    with asking(place) as cluster:
        for manifest, title in _confirmed(cluster, names, namespace, kind, "Delete", yes=yes):
            with _permitted("delete", manifest):
                cluster.delete(references.Reference.of(manifest), uid=text_at(manifest, "metadata", "uid"), wait=0)
            terminal.out.print(f"{title} cancelled", highlight=False)


def requeue(
    names: _Names,
    *,
    namespace: options.TeamOption = None,
    kind: options.Kind = "",
    place: terminal.Place,
    yes: _Yes = False,
) -> None:
    """End the pods of jobs and queue them again; also jobs that ended.

    Whoever may change Workloads, such as a lead, has Kueue evict a job, and it keeps its place. For all others it is
    deleted and created again as it was submitted, at the end of its queue.

    [dim]tenancy requeue nightly[/dim]
    """
    with asking(place) as cluster:
        for manifest, title in _confirmed(cluster, names, namespace, kind, "End and queue again", yes=yes):
            home = text_at(manifest, "metadata", "namespace")
            workloads = team_jobs.read_jobs(cluster, home, queued=True, kinds=()).workloads
            with _permitted("delete", manifest), terminal.reported_if_slow(f"waiting for the pods of {title} to end"):
                how = requeueing.requeue(cluster, manifest, workloads)
            terminal.out.print(f"{title} {how}", highlight=False)


def _confirmed(
    cluster: "client.Cluster", names: Iterable[str], namespace: str | None, kind: str, verb: str, *, yes: bool
) -> "list[tuple[cluster_pods.Manifest, str]]":
    """The objects of names, and their titles, once the user agreed. Raises ConsoleError for parts of other objects."""
    chosen: list[tuple[cluster_pods.Manifest, str]] = []
    for name in names:
        found, manifest = _found(cluster, name, namespace, kind)
        title = _title(manifest)
        if owner := found.owner(manifest):
            problem = f"{title}: is a part of {_title(owner)}, which would create it again"
            raise ConsoleError(problem, f"name {text_at(owner, 'metadata', 'name')}")
        pods = plural(len(found.pods(manifest)), "pod")
        of_stack = text_at(manifest, "metadata", "annotations", DEPLOYED_BY)
        again = "; its stack creates it again at the next deployment" if of_stack and verb == "Delete" else ""
        up.confirm(f"{verb} {title} ({pods}{again})?", yes=yes)
        chosen.append((manifest, title))
    return chosen


def _title(manifest: "cluster_pods.Manifest") -> str:
    namespace, name = (text_at(manifest, "metadata", key) for key in ("namespace", "name"))
    return f"{text_at(manifest, 'kind')} {namespace}/{name}"


def _found(
    cluster: "client.Cluster", name: str, namespace: str | None, kind: str
) -> "tuple[team_jobs.Jobs, cluster_pods.Manifest]":
    home, name = place_of(cluster, name, namespace)
    with terminal.reported_if_slow("reading the cluster"):
        found = team_jobs.read_jobs(cluster, home)
    return found, found.named(name, kind)


@contextmanager
def _permitted(verb: str, manifest: "cluster_pods.Manifest") -> Generator[None]:
    """Says who can do what the user may not."""
    try:
        yield
    except errors.ApiError as error:
        found = kinds.kind_of(manifest)
        if error.status != errors.FORBIDDEN or found is None or error.denied:
            raise
        home = text_at(manifest, "metadata", "namespace")
        fix = f"`tenancy access who-can {verb} {found.resource} -n {home}` lists who may"
        raise ConsoleError(f"{_title(manifest)}: you may not {verb} {found.resource}", fix) from error


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _note(text: str) -> None:
    terminal.err.print(text, highlight=False, markup=False, style="dim")
