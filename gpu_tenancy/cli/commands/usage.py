"""`usage`, `queue`, `fit` and `why`: questions about a running cluster, by the user's kubeconfig."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form, Output, answer
from gpu_tenancy.base.errors import ConsoleError

if TYPE_CHECKING:
    from rich.console import Group

    from gpu_tenancy.cluster.demand import Demand
    from gpu_tenancy.cluster.estimate import History
    from gpu_tenancy.cluster.reading import State
    from gpu_tenancy.explain.fit import Fitting
    from gpu_tenancy.explain.running import Why
    from gpu_tenancy.kube.client import Cluster

T = TypeVar("T")

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Kubeconfig to use; default: the one of kubectl, else the embedded platform.")
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: the current one.")]
Embedded = Annotated[bool, typer.Option("--embedded", help="Use the embedded platform of `tenancy local up`.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh until interrupted.")]
Every = Annotated[float, typer.Option(min=0.1, help="Seconds between two reads, with --watch.")]
Gpus = Annotated[
    bool, typer.Option("--gpus", help="Also what GPUs do: asks nvidia-smi in each pod, by `kubectl exec`.")
]
Everybody = Annotated[bool, typer.Option("--all", "-A", help="Show all teams.")]
Team = Annotated[str | None, typer.Argument(help="Namespace of a team; default: the one of the kubeconfig's context.")]
TeamOption = Annotated[str | None, typer.Option("--namespace", "-n", help="The same as TEAM, as kubectl has it.")]

HistoryFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Last month's Workloads (`kubectl get workloads -A -o json`), whose durations tell expected waits.",
    ),
]


_RIGHTS: Final = "check your rights: `kubectl auth can-i --list`"


def usage(
    team: Team = None,
    namespace: TeamOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    every: Every = 5.0,
    *,
    everybody: Everybody = False,
    watch: Watch = False,
    embedded: Embedded = False,
    output: Output = None,
) -> None:
    """Show guaranteed, limit, used, borrowed, lent and pending of each team and flavor, and the namespace quotas.

    Without a team and a namespace in the kubeconfig's context, it shows all teams. What you may not read is `?`.

    [dim]tenancy usage ml-research --watch[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.cluster.reading import read
        from gpu_tenancy.explain import show
        from gpu_tenancy.explain.usage import KINDS, measure

        own, only = whose(cluster, team, namespace, everybody=everybody)
        show_answer(
            lambda: measure(read(cluster, KINDS, own), only), show.usage, show.data, output, every if watch else None
        )


def queue(
    team: Team = None,
    namespace: TeamOption = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    every: Every = 5.0,
    *,
    history: HistoryFile = None,
    gpus: Gpus = False,
    everybody: Everybody = False,
    watch: Watch = False,
    embedded: Embedded = False,
    output: Output = None,
) -> None:
    """List the jobs of a team: what each holds or requests, state, place, wait, and who can preempt what is borrowed.

    Without a team and a namespace in the kubeconfig's context, it lists those of all teams. With --gpus, how busy the
    GPUs of a team's admitted jobs are; `?` where pods do not tell, with the reason below the table.

    [dim]tenancy queue ml-research --watch[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.cluster.reading import read
        from gpu_tenancy.jobs.jobs import read_jobs
        from gpu_tenancy.jobs.kubectl import Kubectl
        from gpu_tenancy.jobs.listing import KINDS, Listing, data, listing, shown, with_gpu_use

        own, only = whose(cluster, team, namespace, everybody=everybody)
        if gpus and not only:
            raise ConsoleError("--gpus: asks the pods of one team", "specify it: `tenancy queue TEAM --gpus`")
        durations = _durations(history)
        smi = Kubectl.of(kubeconfig, context, only, embedded=embedded).nvidia_smi if gpus else None

        def ask() -> Listing:
            found = listing(replace(read(cluster, KINDS, own), history=durations), only)
            return with_gpu_use(found, read_jobs(cluster, only, queued=True), smi) if smi else found

        show_answer(
            ask, lambda found: shown(found, every_team=not only, busy=gpus), data, output, every if watch else None
        )


def whose(cluster: "Cluster", team: str | None, namespace: str | None, *, everybody: bool) -> tuple[str, str]:
    """The user's own namespace, which is read alone where the user may not read all; and the one to show, if only one.

    Raises:
        ConsoleError: the options contradict.
    """
    team = _one(team, namespace)
    if everybody and team:
        raise ConsoleError(f"{team}: --all shows all teams", "remove one of them")
    own = team or cluster.namespace
    return own, "" if everybody else own


def show_answer(
    ask: Callable[[], T],
    shown: Callable[[T], "Group"],
    data: Callable[[T], object],
    output: Form | None,
    every: float | None,
) -> None:
    """Prints an answer once, or every so many seconds.

    Raises:
        ConsoleError: it is to be repeated, and for programs.
    """
    from gpu_tenancy.explain import show

    if every is not None:
        if output:
            raise ConsoleError("--watch and -o cannot be combined", "remove one of them")
        show.follow(terminal.out, lambda: shown(ask()), every)
        return
    with terminal.reported_if_slow("reading the cluster"):
        result = ask()
    answer(output, data(result), shown(result))


def fit(
    team: Team = None,
    *,
    namespace: TeamOption = None,
    file: Annotated[Path, typer.Option("--file", "-f", help="YAML file with Pods, Jobs or other workloads.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    history: HistoryFile = None,
    now: Annotated[bool, typer.Option("--now", help="Exit with code 2 also if it fits, but not now.")] = False,
    embedded: Embedded = False,
    output: Output = None,
) -> None:
    """Check a workload against quota, queue, nodes and a dry run of the API server.

    Nothing is created. Exit code 0: it fits, now or when others end or release quota; 2: it does not fit.

    [dim]tenancy fit ml-research -f job.yaml[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.cluster.demand import read_demands
        from gpu_tenancy.explain import show

        team = team_of(cluster, team, namespace, "tenancy fit TEAM")
        demands = read_demands(file, team)
        with terminal.reported_if_slow("reading the cluster and running a dry run"):
            state = replace(read_for_fit(cluster, team), history=_durations(history))
            results = judged(cluster, team, state, demands)
        parts = [part for result in results for part in (Text(""), show.fitting(result))][1:]
        answer(output, show.data(results), *parts, names=[result.title for result in results])
        missed = {"never", "later"} if now else {"never"}
        if any(result.verdict in missed for result in results):
            raise typer.Exit(terminal.PROMISE_BROKEN)


def team_of(cluster: "Cluster", team: str | None, namespace: str | None, command: str) -> str:
    """The namespace that the user names, or that of the context.

    Raises:
        ConsoleError: there is none.
    """
    found = _one(team, namespace) or cluster.namespace
    if not found:
        raise ConsoleError("no team: the kubeconfig's context has no namespace", f"specify it: `{command}`")
    return found


def read_for_fit(cluster: "Cluster", team: str) -> "State":
    """What `fit` needs of a cluster.

    Raises:
        ConsoleError: the namespace does not exist.
    """
    from gpu_tenancy.cluster.reading import read
    from gpu_tenancy.explain.fit import KINDS, OWN, require_team

    state = read(cluster, KINDS, team, only=OWN)
    require_team(state, team)
    return state


def judged(cluster: "Cluster", team: str, state: "State", demands: "list[Demand]") -> "list[Fitting]":
    """What `fit` says of each workload."""
    from gpu_tenancy.cluster.channels import kinds_claimed
    from gpu_tenancy.cluster.demand import with_runtime
    from gpu_tenancy.cluster.dry_run import completed
    from gpu_tenancy.cluster.mounts import kinds_named
    from gpu_tenancy.cluster.reading import read

    demands = [with_runtime(completed(cluster, demand), state) for demand in demands]
    more = (*kinds_named(demands), *kinds_claimed(demands))
    state = state.joined(read(cluster, (), team, only=more))
    return [_fitting(cluster, state, team, demand) for demand in demands]


def _one(team: str | None, namespace: str | None) -> str | None:
    """The team that the user names, as the argument or as the option.

    Raises:
        ConsoleError: both, and they differ.
    """
    if team and namespace and team != namespace:
        raise ConsoleError(f"{team} and -n {namespace} are different namespaces", "specify one")
    return team or namespace


def _fitting(cluster: "Cluster", state: "State", team: str, demand: "Demand") -> "Fitting":
    """All checks of a workload, with the API server's dry run at the end."""
    from gpu_tenancy.cluster.answers import Check
    from gpu_tenancy.cluster.dry_run import ask
    from gpu_tenancy.explain.fit import judge

    result = judge(state, team, demand)
    full = any(answer.check is Check.NAMESPACE_QUOTA and answer.verdict == "later" for answer in result.answers)
    return replace(result, answers=(*result.answers, *ask(cluster, demand, full=full)))


def why(
    job: Annotated[str, typer.Argument(help="NAMESPACE/NAME or NAME of a job, server or pod.")],
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Namespace of NAME; default: the one of the kubeconfig's context."),
    ] = None,
    kind: Annotated[str, typer.Option(help="Kind of the object, if several kinds have the name.")] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    history: HistoryFile = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print what Kueue, the scheduler and the API server say.")
    ] = False,
    embedded: Embedded = False,
    output: Output = None,
) -> None:
    """Explain why a job is pending: queue order, quota, borrowers, admission checks, nodes or volumes.

    The first lines have the reason and the fix, the others the numbers. For a workload that is pending in a queue of
    Kueue, a simulation shows what would get it admitted, and how long it waits: by deadlines, and with --history by
    durations of recorded jobs.

    [dim]tenancy why ml-research/nightly[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.explain import show

        home, name = place_of(cluster, job, namespace)
        with terminal.reported_if_slow("reading the cluster"):
            result = explain(cluster, home, name, kind, history)
        answer(output, show.data(result), show.why(result, verbose=verbose), names=[f"{home}/{name}"])


def explain(cluster: "Cluster", namespace: str, name: str, kind: str = "", history: Path | None = None) -> "Why":
    """What `why` says of an object; see its options.

    Raises:
        ConsoleError: no object has the name, or several have it.
    """
    from gpu_tenancy.cluster.reading import read
    from gpu_tenancy.cluster.target import target_of
    from gpu_tenancy.explain.why import KINDS, OWN, why
    from gpu_tenancy.jobs.jobs import look_up

    manifest = look_up(cluster, namespace, name, kind)
    state = replace(read(cluster, KINDS, namespace, only=OWN), history=_durations(history))
    return why(target_of(manifest, state), state)


def _durations(file: Path | None) -> "History":
    """Durations of recorded jobs; none without a file.

    Raises:
        ConsoleError: the file cannot be read.
    """
    from gpu_tenancy.cluster.estimate import History

    if file is None:
        return History()
    if not file.is_file():
        raise ConsoleError(f"--history: {file} is not a file", "write it with `kubectl get workloads -A -o json`")
    from gpu_tenancy.simulation.replay import Trace, TraceError

    try:
        return History.of(Trace(file).durations())
    except TraceError as error:
        raise ConsoleError(error.what, error.fix) from error


def place_of(cluster: "Cluster", job: str, namespace: str | None) -> tuple[str, str]:
    """Namespace and name of an object that the user names as NAMESPACE/NAME or NAME.

    Raises:
        ConsoleError: there is no namespace, or there are two.
    """
    home, _, name = job.rpartition("/")
    if home and namespace:
        raise ConsoleError(f"{job}: specify one namespace", "NAMESPACE/NAME or -n NAMESPACE")
    home = home or namespace or cluster.namespace
    if not home:
        raise ConsoleError(f"{job}: no namespace", "specify NAMESPACE/NAME or -n NAMESPACE")
    return home, name


@contextmanager
def asking(
    kubeconfig: Path | None, context: str | None, *, embedded: bool, rights: str = _RIGHTS
) -> Generator["Cluster"]:
    """A client of the cluster, with API errors as console errors; `rights` is the fix for a missing right."""
    from gpu_tenancy.cluster.contexts import connect, uses_embedded
    from gpu_tenancy.kube.errors import UNAUTHORIZED, ApiError

    with terminal.errors():
        if not (embedded or kubeconfig or context) and uses_embedded():
            embedded = True
            terminal.err.print("no kubeconfig is set; using the embedded platform", highlight=False)
        try:
            with connect(kubeconfig, context, embedded=embedded) as cluster:
                yield cluster
        except ApiError as error:
            refused = error.status == UNAUTHORIZED
            fix = "log in again, or specify another kubeconfig or context" if refused else rights
            raise ConsoleError(f"API server: {error}", fix) from error
        except KeyboardInterrupt:
            return
