"""The command `cluster inspect`: a survey of a running cluster, whoever made it."""

from pathlib import Path
from typing import Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.cli.commands.live import Context, Embedded, Kubeconfig, asking


def inspect(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    out: Annotated[Path | None, typer.Option(help="Folder for `inspect.html`, a page with all findings.")] = None,
    *,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Replace the names of objects, the same name by the same one.")
    ] = False,
    embedded: Embedded = False,
    output: Output = None,
) -> None:
    """Inspect any running cluster: GPUs that exist, are promised and idle, and queues and quotas that contradict.

    It needs no stack and changes nothing. It reads with your rights, and names what you may not read.

    [dim]tenancy cluster inspect --anonymous[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.inspect.survey import show
        from gpu_tenancy.inspect.survey.survey import read_facts, survey

        with terminal.reported_if_slow("reading the cluster"):
            found = survey(read_facts(cluster, anonymous=anonymous))
        answer(output, show.data(found), show.screen(found))
        if out:
            from gpu_tenancy.review.surveyed import write_survey

            terminal.report(f"page: {write_survey(found, out)}")
