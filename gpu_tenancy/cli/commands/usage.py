"""`usage`, `queue`, `fit`, `why` and `ui`: questions about a running cluster, by the user's kubeconfig."""

import sys
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.base.errors import ConsoleError, UsageError
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.commands.options import asking, place_of, show_answer, team_of, whose
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.cluster import bound, dry_run, estimate, reading, references
    from gpu_tenancy.cluster import demand as cluster_demand
    from gpu_tenancy.explain import fit as explain_fit
    from gpu_tenancy.explain import running, show
    from gpu_tenancy.explain import usage as explain_usage
    from gpu_tenancy.explain import why as explain_why
    from gpu_tenancy.jobs import jobs as team_jobs
    from gpu_tenancy.jobs import kubectl, listing, overview
    from gpu_tenancy.kube import client, errors
    from gpu_tenancy.simulation import records
    from gpu_tenancy.ui import board, page
    from gpu_tenancy.ui import server as ui_server


def usage(
    team: options.Team = None,
    namespace: options.TeamOption = None,
    *,
    place: terminal.Place,
    everybody: options.Everybody = False,
    verbose: options.Verbose = False,
    watch: options.Watch = False,
    output: Output = None,
) -> None:
    """Show guaranteed, limit, used, borrowed, lent and pending of each team and flavor, and namespace quotas.

    Of namespace quotas, those that are used by 80 % or more; with -v, all. Without a team and a namespace in the
    kubeconfig's context, it shows all teams. What you may not read is `?`.

    [dim]tenancy usage ml-research --watch[/dim]
    """
    with asking(place) as cluster:
        own, only = whose(cluster, team, namespace, everybody=everybody)

        def ask() -> explain_usage.Usage:
            return explain_usage.measure(bound.read_checked(cluster, explain_usage.KINDS, own, only), only)

        show_answer(ask, partial(show.usage, verbose=verbose), show.data, output, watch=watch)


def queue(
    team: options.Team = None,
    namespace: options.TeamOption = None,
    *,
    place: terminal.Place,
    used: options.Used = None,
    gpus: options.Gpus = False,
    me: options.Me = False,
    pending: options.Pending = False,
    sort: options.Sort = None,
    everybody: options.Everybody = False,
    verbose: options.Verbose = False,
    watch: options.Watch = False,
    output: Output = None,
) -> None:
    """List the jobs of a team: what each holds or requests, state, place, wait, and who can preempt what is borrowed.

    Without a team and a namespace in the kubeconfig's context, it lists those of all teams. With -v, also the jobs of a
    team that ended, its stopped notebooks, and servers and pods that are in no queue. With --gpus, how busy the GPUs of
    a team's admitted jobs are; `?` where pods do not tell, with the reason below the table.

    [dim]tenancy queue ml-research --watch[/dim]
    """
    with asking(place) as cluster:
        own, only = whose(cluster, team, namespace, everybody=everybody)
        if (gpus or verbose) and not only:
            option = "--gpus" if gpus else "--verbose"
            raise UsageError(f"{option}: reads the pods of one team", f"specify it: `tenancy queue TEAM {option}`")
        durations, user = _durations(used), options.user_of(cluster) if me else ""
        smi = kubectl.Kubectl.of(place, only).nvidia_smi if gpus else None

        def ask() -> tuple[listing.Listing, tuple[overview.JobRow, ...]]:
            state = bound.read_checked(cluster, (*listing.KINDS, "Event"), own, only)
            reading.require_team(state, only, "jobs", "Workload")
            found = listing.listing(replace(state, history=durations), only)
            objects = team_jobs.read_jobs(cluster, only, queued=True) if smi or verbose else None
            others = overview.beside(objects, found.jobs) if objects and verbose else ()
            found = replace(found, jobs=overview.chosen(found.jobs, user, pending=pending, by=sort))
            found = listing.with_gpu_use(found, objects, smi) if objects and smi else found
            return found, overview.chosen(others, user, pending=pending, by=sort)

        def shown(found: tuple[listing.Listing, tuple[overview.JobRow, ...]]) -> Group:
            queued = listing.shown(found[0], every_team=not only, busy=gpus)
            return Group(queued, Text(""), overview.shown(found[1])) if found[1] else queued

        def data(found: tuple[listing.Listing, tuple[overview.JobRow, ...]]) -> dict[str, Any]:
            return {**listing.data(found[0]), **({"others": overview.data(found[1])} if verbose else {})}

        show_answer(ask, shown, data, output, watch=watch)


def fit(
    team: options.Team = None,
    *,
    namespace: options.TeamOption = None,
    file: Annotated[Path, typer.Option("--file", "-f", help="YAML file with Pods, Jobs or other workloads.")],
    place: terminal.Place,
    used: options.Used = None,
    output: Output = None,
) -> None:
    """Check a workload against quota, queue, nodes and a dry run of the API server.

    Nothing is created. Exit code 0: it fits, now or when others end or release quota; 3: it does not fit.

    [dim]tenancy fit ml-research -f job.yaml[/dim]
    """
    with asking(place) as cluster:
        team = team_of(cluster, team, namespace, "tenancy fit TEAM")
        demands = cluster_demand.read_demands(file, team)
        with terminal.reported_if_slow("reading the cluster and running a dry run"):
            results = judged(cluster, team, replace(read_for_fit(cluster, team), history=_durations(used)), demands)
        parts = [part for result in results for part in (Text(""), show.fitting(result))][1:]
        answer(output, show.data(results), *parts, names=[result.title for result in results])
        if any(result.verdict == "never" for result in results):
            raise typer.Exit(terminal.ExitCode.BLOCKED)


def read_for_fit(cluster: "client.Cluster", team: str) -> "reading.State":
    """What `fit` needs of a cluster; raises ConsoleError if the namespace does not exist."""
    state = reading.read(cluster, explain_fit.KINDS, team, only=explain_fit.OWN)
    reading.require_team(state, team, "queues", "LocalQueue")
    return state


def judged(
    cluster: "client.Cluster", team: str, state: "reading.State", demands: "list[cluster_demand.Demand]"
) -> "list[explain_fit.Fitting]":
    """What `fit` says of each workload."""
    demands = [cluster_demand.with_runtime(dry_run.completed(cluster, demand), state) for demand in demands]
    kinds = (*references.kinds_named(demands), *references.kinds_claimed(demands))
    state = state.joined(reading.read(cluster, (), team, only=kinds))
    results: list[explain_fit.Fitting] = []
    for demand in demands:
        result = explain_fit.judge(state, team, demand)
        results.append(replace(result, answers=dry_run.with_answers(cluster, demand, result.answers)))
    return results


def why(
    job: Annotated[str, typer.Argument(help="NAMESPACE/NAME or NAME of a job, server or pod.")],
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Namespace of NAME; default: the one of the kubeconfig's context."),
    ] = None,
    kind: options.Kind = "",
    *,
    place: terminal.Place,
    used: options.Used = None,
    verbose: options.Verbose = False,
    output: Output = None,
) -> None:
    """Explain why a job is pending: queue order, quota, borrowers, admission checks, nodes or volumes.

    The first lines have the reason and the fix, the others the numbers; with -v, also what Kueue, the scheduler and the
    API server say. For a workload that is pending in a queue of Kueue, a simulation shows what would get it admitted,
    and how long it waits: by deadlines, and with --used by durations of recorded jobs.

    [dim]tenancy why ml-research/nightly[/dim]
    """
    with asking(place) as cluster:
        home, name = place_of(cluster, job, namespace)
        with terminal.reported_if_slow("reading the cluster"):
            result = explain(cluster, home, name, kind, used)
        answer(output, show.data(result), show.why(result, verbose=verbose), names=[f"{home}/{name}"])


def explain(
    cluster: "client.Cluster", namespace: str, name: str, kind: str = "", used: Path | None = None
) -> "running.Why":
    """What `why` says of an object; raises ConsoleError if no object has the name, or several have it."""
    manifest = team_jobs.look_up(cluster, namespace, name, kind)
    state = reading.read(cluster, explain_why.KINDS, namespace, only=explain_why.OWN)
    state = replace(state, history=_durations(used))
    return explain_why.why(cluster_demand.target_of(manifest, state), state)


def _durations(file: Path | None) -> "estimate.History":
    """Durations of recorded jobs; none without a file. Raises ConsoleError if the file cannot be read."""
    if file is None:
        return estimate.History()
    if not file.is_file():
        raise ConsoleError(f"--used: {file} is not a file", "write it with `kubectl get workloads -A -o json`")
    return estimate.History.of(records.Trace(file).durations())


def ui(
    team: options.Team = None,
    *,
    namespace: options.TeamOption = None,
    everybody: options.Everybody = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any free one.")] = 0,
    place: terminal.Place,
) -> None:
    """Serve a live page about queue, quota tree, jobs and nodes on this machine, until interrupted.

    It shows what you may read, and changes nothing. Its address has a token: only who knows it can open the page.

    [dim]tenancy ui ml-research[/dim]
    """
    with asking(place) as cluster:
        own, only = whose(cluster, team, namespace, everybody=everybody)
        with terminal.reported_if_slow("reading the cluster"):
            refreshing = ui_server.Refreshing(cluster, own, lambda: board.read_board(cluster, own, only))
        try:
            server = ui_server.Server(port, refreshing, partial(_why, cluster), only, cluster.server)
        except OSError as error:
            problem = f"--port {port}: {ui_server.LOOPBACK}:{port} cannot be used: {error.strerror}"
            raise ConsoleError(problem, "set another port, or 0") from error
        refreshing.start()
        # The address is the answer of this command; on standard output a program can read it.
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.flush()
        terminal.err.print("open this address; Ctrl-C ends it", highlight=False, style="dim")
        try:
            with suppress(KeyboardInterrupt):
                server.serve_forever()
        finally:
            refreshing.stop()
            server.server_close()


def _why(cluster: "client.Cluster", namespace: str, kind: str, name: str) -> str:
    """Why a job is pending, or what keeps that from being known, as HTML."""
    try:
        found = explain(cluster, namespace, name, kind)
    except ConsoleError as error:
        return page.failed(error.what, error.fix)
    except errors.ApiError as error:
        return page.failed(f"API server: {error}", options.fix_of(error))
    return page.explained(found, ui_server.time_text(datetime.now().astimezone()))
