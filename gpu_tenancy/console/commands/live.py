"""Commands about a running cluster, through the user's own kubeconfig: what is used, will it fit, why does it wait."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from gpu_tenancy.console import terminal
from gpu_tenancy.console.errors import ConsoleError

if TYPE_CHECKING:
    from gpu_tenancy.console.cluster.client import Cluster
    from gpu_tenancy.console.live.demand import Demand
    from gpu_tenancy.console.live.fit import Fitting
    from gpu_tenancy.console.live.reading import State

PATIENCE: Final = 2.0
"""Seconds after which a command says what it is doing."""

Kubeconfig = Annotated[Path | None, typer.Option(help="The kubeconfig, in place of the one that kubectl would use.")]
Context = Annotated[str | None, typer.Option(help="The context in it; left out, its current one.")]
Embedded = Annotated[bool, typer.Option("--embedded", help="The embedded platform of `tenancy up`.")]
AsJson = Annotated[bool, typer.Option("--json", help="For other programs.")]


def register(app: typer.Typer) -> None:
    """Adds these commands."""
    app.command()(usage)
    app.command()(fit)
    app.command()(why)


def usage(  # noqa: PLR0913 - each is an option
    team: Annotated[str | None, typer.Argument(help="A team's namespace; left out, all teams.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks, with --watch.")] = 5.0,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until interrupted.")] = False,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """What each team is guaranteed, may reach, uses, borrows, lends and waits for, flavor by flavor, and its quotas.

    [dim]tenancy usage ml-research --watch[/dim]
    """
    with _asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.console.live import show  # noqa: PLC0415 - `--help` can do without
        from gpu_tenancy.console.live.reading import read  # noqa: PLC0415
        from gpu_tenancy.console.live.usage import KINDS, Usage, measure  # noqa: PLC0415

        def ask() -> Usage:
            return measure(read(cluster, KINDS, team or ""), team or "")

        if watch and as_json:
            raise ConsoleError("--watch and --json exclude each other", "ask again and again from your own program")
        if watch:
            console = Console() if sys.stdout.isatty() else terminal.out
            show.follow(console, lambda: show.usage(ask()), every)
            return
        with patience("reading the cluster"):
            found = ask()
        _print(show.data(found)) if as_json else terminal.out.print(show.usage(found), highlight=False)


def fit(  # noqa: PLR0913 - each is an option
    team: Annotated[str, typer.Argument(help="A team's namespace.")],
    file: Annotated[Path, typer.Option("--file", "-f", help="Pods, Jobs or other workloads, as YAML.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    now: Annotated[bool, typer.Option("--now", help="Exit code 2 also for what fits, but not now.")] = False,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """Whether a workload passes container bounds, quota, queue and nodes; the API server's dry run has the last word.

    Nothing is created. Exit code 0: it fits, now or when others end or give back; 2: it does not.

    [dim]tenancy fit ml-research -f job.yaml[/dim]
    """
    with _asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.console.live import show  # noqa: PLC0415 - `--help` can do without
        from gpu_tenancy.console.live.demand import read_demands  # noqa: PLC0415
        from gpu_tenancy.console.live.fit import KINDS, OWN, require_team  # noqa: PLC0415
        from gpu_tenancy.console.live.reading import read  # noqa: PLC0415

        demands = read_demands(file, team)
        with patience("reading the cluster, and asking its API server"):
            state = read(cluster, KINDS, team, only=OWN)
            require_team(state, team)
            found = [_fitting(cluster, state, team, each) for each in demands]
        if as_json:
            _print(show.data(found))
        for at, each in enumerate(() if as_json else found):
            terminal.out.print(*([""] if at else []), show.fitting(each), sep="\n", highlight=False)
        missed = {"never", "later"} if now else {"never"}
        if any(each.verdict in missed for each in found):
            raise typer.Exit(terminal.PROMISE_BROKEN)


def _fitting(cluster: "Cluster", state: "State", team: str, demand: "Demand") -> "Fitting":
    """All judges' words, and the API server's own at the end."""
    from dataclasses import replace  # noqa: PLC0415 - `--help` can do without

    from gpu_tenancy.console.live.dry_run import ask  # noqa: PLC0415
    from gpu_tenancy.console.live.fit import judge  # noqa: PLC0415

    found = judge(state, team, demand)
    full = any(each.about == "namespace quota" and each.verdict == "later" for each in found.answers)
    return replace(found, answers=(*found.answers, *ask(cluster, demand, full=full)))


def why(  # noqa: PLR0913 - each is an option
    job: Annotated[str, typer.Argument(help="NAMESPACE/NAME of a job, server or pod; or NAME, with -n.")],
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Its namespace.")] = None,
    kind: Annotated[str, typer.Option(help="Its kind, where several kinds have one of that name.")] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    embedded: Embedded = False,
    as_json: AsJson = False,
) -> None:
    """What a job waits for: its turn in the queue, quota, those who borrow, a check, a node of its model, a volume.

    For what waits in a queue of Kueue, a simulation of it says what lets it in, such as whose end.

    The last line has the reason, and what would mend it.

    [dim]tenancy why ml-research/nightly[/dim]
    """
    with _asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.console.live import show  # noqa: PLC0415 - `--help` can do without
        from gpu_tenancy.console.live.reading import read  # noqa: PLC0415
        from gpu_tenancy.console.live.subject import look_up, subject_of  # noqa: PLC0415
        from gpu_tenancy.console.live.why import KINDS, OWN  # noqa: PLC0415
        from gpu_tenancy.console.live.why import why as follow  # noqa: PLC0415

        home, _, name = job.rpartition("/")
        if bool(home) == bool(namespace):
            raise ConsoleError(f"{job} is in no one namespace", "say NAMESPACE/NAME, or NAME and -n NAMESPACE")
        home = home or namespace or ""
        with patience("reading the cluster"):
            manifest = look_up(cluster, home, name, kind)
            state = read(cluster, KINDS, home, only=OWN)
            found = follow(subject_of(manifest, state), state)
        _print(show.data(found)) if as_json else terminal.out.print(show.why(found), highlight=False)


@contextmanager
def _asking(kubeconfig: Path | None, context: str | None, *, embedded: bool) -> Generator["Cluster"]:
    """A client of the cluster; what it refuses becomes a sentence."""
    from gpu_tenancy.console.cluster.errors import ApiError  # noqa: PLC0415 - `--help` can do without
    from gpu_tenancy.console.live.kubeconfig import connect  # noqa: PLC0415

    with terminal.errors():
        try:
            with connect(kubeconfig, context, embedded=embedded) as cluster:
                yield cluster
        except ApiError as error:
            raise ConsoleError(
                f"the API server refuses: {error}", "see your rights: kubectl auth can-i --list"
            ) from error
        except KeyboardInterrupt:
            return


@contextmanager
def patience(doing: str) -> Generator[None]:
    """Says what is being done where it takes a while."""
    timer = threading.Timer(PATIENCE, terminal.report, [doing])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _print(text: str) -> None:
    sys.stdout.write(text)
