"""Commands about notebooks: `tenancy notebook start`, `open` and `stop`."""

import sys
from contextlib import suppress
from typing import Annotated

import typer
import yaml

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.commands.options import asking, team_of
from gpu_tenancy.cli.commands.submit import Mounts, pairs
from gpu_tenancy.cli.commands.usage import judged, read_for_fit
from gpu_tenancy.cli.lazy import lazily
from gpu_tenancy.model.names import NOTEBOOK_PORT, NOTEBOOK_TOKEN

with lazily():
    from gpu_tenancy.cluster import demand
    from gpu_tenancy.explain import show
    from gpu_tenancy.jobs import kubectl as jobs_kubectl
    from gpu_tenancy.jobs import notebooks

Name = Annotated[
    str,
    typer.Argument(
        metavar="[NAME]", show_default=False, help="Name of the notebook; default: `notebook-` and your name."
    ),
]


def start(
    name: Name = "",
    *,
    size: Annotated[
        str, typer.Option(help="Size that the team is offered; default: the first.", show_default=False)
    ] = "",
    image: Annotated[
        str, typer.Option(help="Image that the team is offered; default: the first.", show_default=False)
    ] = "",
    mount: Mounts = None,
    namespace: options.TeamOption = None,
    place: terminal.Place,
    dry_run: options.DryRun = False,
) -> None:
    """Start a notebook in the queue of your team, or one that was stopped, as it was.

    Its home, /home/notebook, stays when it stops. It stops when it is idle, and after the longest time of your team.
    Exit code 3: it can never be admitted.

    [dim]tenancy notebook start lab --size small[/dim]
    """
    with asking(place) as cluster:
        team = team_of(cluster, None, namespace, "tenancy notebook start -n TEAM")
        user = options.user_of(cluster)
        choice = notebooks.Choice(name or notebooks.usual_name(user), image, size, dict(pairs("--mount", mount)), user)
        live = None if dry_run else notebooks.found(cluster, team, choice.name)
        if live:
            if image or size or mount:
                fix = f"`tenancy cancel {choice.name}` deletes it, and its home stays; then start it with other options"
                raise ConsoleError(f"notebook {team}/{choice.name}: exists", fix)
            if notebooks.runs(live):
                fix = f"open it with `tenancy notebook open {choice.name}`"
                raise ConsoleError(f"notebook {team}/{choice.name}: is started already", fix)
            with terminal.reported_if_slow("waiting for its pod to end"):
                notebooks.scale(cluster, live, 1)
            terminal.out.print(f"notebook {team}/{choice.name} started again", highlight=False)
            return
        offer = notebooks.offered(cluster, team)
        with terminal.reported_if_slow("reading the cluster and running a dry run"):
            state = read_for_fit(cluster, team)
            manifest = notebooks.notebook_of(choice, team, offer, state)
            if dry_run:
                sys.stdout.write(yaml.safe_dump(manifest, sort_keys=False))
                return
            notebooks.require_own_home(cluster, team, choice)
            (result,) = judged(cluster, team, state, [demand.demand(manifest, team)])
        terminal.out.print(show.fitting(result), highlight=False)
        if result.verdict == "never":
            terminal.error_line("not started, since it can never be admitted")
            raise typer.Exit(terminal.ExitCode.BLOCKED)
        cluster.create(manifest)
        stops = f"stops when idle for {format_duration(offer.idle)}, and after {format_duration(offer.longest)}"
        terminal.out.print(f"notebook {team}/{choice.name} submitted; it {stops}", highlight=False)
        terminal.out.print(f"open it with `tenancy notebook open {choice.name}`", highlight=False)


def open_(
    name: Name = "",
    *,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            show_default=False,
            help="Port on this machine; default: 8888. Set it to forward a port for a notebook with a host, too.",
        ),
    ] = None,
    namespace: options.TeamOption = None,
    place: terminal.Place,
) -> None:
    """Print the address of a notebook, and forward its port to this machine until interrupted.

    It runs kubectl with your kubeconfig: `kubectl exec` reads the token, which is in the container only, and
    `kubectl port-forward` connects to JupyterLab. A notebook for which the stack has a host has its address there, and
    no port is forwarded.

    [dim]tenancy notebook open lab[/dim]
    """
    with asking(place) as cluster:
        team = team_of(cluster, None, namespace, "tenancy notebook open -n TEAM")
        name = name or notebooks.usual_name(options.user_of(cluster))
        manifest = notebooks.existing(cluster, team, name)
        pod = notebooks.pod_that_runs(cluster, manifest)
        kubectl = jobs_kubectl.Kubectl.of(place, team)
        fix = "if JupyterLab has not started yet, wait; `tenancy logs` shows it"
        if not (token := kubectl.run("exec", pod, "--", "cat", NOTEBOOK_TOKEN, fix=fix)):
            raise ConsoleError(f"notebook {team}/{name}: pod {pod} has no token in {NOTEBOOK_TOKEN}", fix)
        if port is None and (host := notebooks.host_of(manifest)):
            terminal.out.print(f"https://{host}/lab?token={token}", highlight=False, soft_wrap=True)
            return
        port = port or NOTEBOOK_PORT
        terminal.out.print(f"http://127.0.0.1:{port}/lab?token={token}", highlight=False, soft_wrap=True)
        with suppress(KeyboardInterrupt):
            kubectl.run("port-forward", f"pod/{pod}", f"{port}:{NOTEBOOK_PORT}", fix=fix, shown=True)


def stop(name: Name = "", *, namespace: options.TeamOption = None, place: terminal.Place) -> None:
    """Stop a notebook: its kernels end, its GPUs are free for the queue, its home stays.

    [dim]tenancy notebook stop lab[/dim]
    """
    with asking(place) as cluster:
        team = team_of(cluster, None, namespace, "tenancy notebook stop -n TEAM")
        name = name or notebooks.usual_name(options.user_of(cluster))
        notebooks.scale(cluster, notebooks.existing(cluster, team, name), 0)
        terminal.out.print(f"notebook {team}/{name} stopped; its home stays", highlight=False)
