"""The command about workers of MultiKueue: the kubeconfig that the manager needs."""

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from gpu_tenancy.base import terminal
from gpu_tenancy.base.terminal import ProjectFolder
from gpu_tenancy.cli.commands.live import Context, Embedded, Kubeconfig, asking
from gpu_tenancy.cli.commands.people import token_maker


def register(app: typer.Typer) -> None:
    """Adds this command."""
    app.command("worker-kubeconfig")(worker_kubeconfig)


def worker_kubeconfig(  # noqa: PLR0913 - each is an option
    worker: Annotated[str, typer.Argument(help="Stack of the worker, with `multikueue.manager`.")],
    *,
    valid: Annotated[str, typer.Option("--for", help="Validity of the token, 10m to 30d.")] = "7d",
    manager_kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig of the manager's cluster: write the Secret there.")
    ] = None,
    manager_context: Annotated[str | None, typer.Option(help="Its context. Default: the current one.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write, with mode 0600. Default: standard output.")] = None,
    project: ProjectFolder = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    embedded: Embedded = False,
) -> None:
    """Write the kubeconfig by which a MultiKueue manager reaches a worker.

    It has a token of the manager's service account in the worker's cluster. With --manager-kubeconfig or
    --manager-context, it is written to the Secret that the manager's stack names, and to no file. Repeat it before the
    token expires: Kueue reads the Secret again.

    [dim]tenancy worker-kubeconfig train-west --context west --manager-context hub[/dim]
    """
    with terminal.errors(worker):
        from gpu_tenancy.access import workers  # noqa: PLC0415 - as above
        from gpu_tenancy.access.questions import seconds_of  # noqa: PLC0415 - as above
        from gpu_tenancy.base.writing import write_private  # noqa: PLC0415 - `--help` can do without it

        found, seconds = workers.worker_of(worker, project), seconds_of(valid, "--for")
        rights = "ask somebody who may create serviceaccounts/token in Kueue's namespace"
        place = kubeconfig, context, embedded
        with token_maker(found.stack.cluster, place, rights) as (cluster, plain):
            config = workers.worker_config(cluster, plain, found, seconds)
        if manager_kubeconfig or manager_context:
            rights = "ask somebody who may write Secrets in Kueue's namespace of the manager"
            with asking(manager_kubeconfig, manager_context, embedded=False, rights=rights) as manager:
                terminal.out.print(workers.write_secret(manager, found, config), highlight=False)
        elif out:
            write_private(out, yaml.safe_dump(config, sort_keys=False))
        else:
            sys.stdout.write(yaml.safe_dump(config, sort_keys=False))
