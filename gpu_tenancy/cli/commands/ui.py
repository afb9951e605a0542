"""The command `ui`: a page about queues and jobs on the loopback."""

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cli.commands.usage import (
    Context,
    Embedded,
    Everybody,
    Kubeconfig,
    Team,
    TeamOption,
    asking,
    explain,
    whose,
)

if TYPE_CHECKING:
    from gpu_tenancy.kube.client import Cluster


def ui(
    team: Team = None,
    *,
    namespace: TeamOption = None,
    everybody: Everybody = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    embedded: Embedded = False,
) -> None:
    """Serve a live page about queue, quota tree, jobs and nodes on this machine, until interrupted.

    It shows what you may read, and changes nothing. Its address has a token: only who knows it can open the page.

    [dim]tenancy ui ml-research --open[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.ui.board import read_board
        from gpu_tenancy.ui.server import LOOPBACK, Refreshing, Server

        own, only = whose(cluster, team, namespace, everybody=everybody)
        with terminal.reported_if_slow("reading the cluster"):
            refreshing = Refreshing(cluster, own, lambda: read_board(cluster, own, only))
        try:
            server = Server(port, refreshing, partial(_why, cluster), only, cluster.server)
        except OSError as error:
            raise ConsoleError(
                f"--port {port}: {LOOPBACK}:{port} cannot be used: {error.strerror}", "set another port, or 0"
            ) from error
        refreshing.start()
        # The address is the answer of this command; on standard output a program can read it.
        sys.stdout.write(f"{server.address}\n")
        sys.stdout.flush()
        terminal.err.print("open this address; Ctrl-C ends it", highlight=False, style="dim")
        if browser:
            import webbrowser

            webbrowser.open(server.address)
        try:
            server.serve_forever()
        finally:
            refreshing.stop()
            server.server_close()


def _why(cluster: "Cluster", namespace: str, kind: str, name: str) -> str:
    """Why a job is pending, or what keeps that from being known, as HTML."""
    from datetime import datetime

    from gpu_tenancy.kube.errors import ApiError
    from gpu_tenancy.ui.page import explained, failed
    from gpu_tenancy.ui.server import time_text

    try:
        found = explain(cluster, namespace, name, kind)
    except ConsoleError as error:
        return failed(error.what, error.fix)
    except ApiError as error:
        return failed(f"API server: {error}", "check your rights: `kubectl auth can-i --list`")
    return explained(found, time_text(datetime.now().astimezone()))
