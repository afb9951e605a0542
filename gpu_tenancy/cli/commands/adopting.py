"""The command `cluster adopt`: a stack from a running cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.terminal import ProjectFolder
from gpu_tenancy.cli.commands.live import Context, Embedded, Kubeconfig, asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_tenancy.kube.client import Cluster
    from gpu_tenancy.kube.references import Reference


def adopt(
    *,
    out: Annotated[Path, typer.Option(help="File to write: stacks/Pulumi.NAME.yaml of a project.")],
    project: ProjectFolder = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    embedded: Embedded = False,
    output: Output = None,
) -> None:
    """Write a stack that has the tenancy of a running cluster, and compare its objects with the cluster's.

    It reads with your rights and changes nothing in the cluster. Exit code 1: the stack is written, but not valid yet.

    [dim]tenancy cluster adopt --out stacks/Pulumi.prod.yaml[/dim]
    """
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from rich.text import Text

        from gpu_tenancy.base.characters import visible
        from gpu_tenancy.base.writing import write_text
        from gpu_tenancy.inspect.adopt.tenancy import KINDS, Seen
        from gpu_tenancy.inspect.reading import read
        from gpu_tenancy.inspect.survey.facts import Facts
        from gpu_tenancy.model.project import check_name
        from gpu_tenancy.review import adopted
        from gpu_tenancy.review.adopting import adopt as adopt_from

        name = out.name.removeprefix("Pulumi.").removesuffix(".yaml")
        if out.name != f"Pulumi.{name}.yaml":
            raise ConsoleError(f"--out {out}: not the file of a stack", "use stacks/Pulumi.NAME.yaml")
        check_name(name)
        if out.exists():
            raise ConsoleError(f"--out {out}: exists", "use another name, or delete the file first")
        with terminal.reported_if_slow("reading the cluster"):
            seen = Seen(Facts(read(cluster, KINDS, cluster.namespace)))
        found = adopt_from(seen, name, _exists(cluster), project)
        write_text(out, adopted.written(found))
        answer(output, adopted.data(found), *(Text(visible(line)) for line in adopted.lines(found)))
        terminal.report(f"stack: {out}")
        if found.problems:
            raise typer.Exit(1)


def _exists(cluster: "Cluster") -> "Callable[[Reference], bool]":
    """Whether the cluster has an object; False for kinds that it does not serve or the user may not read."""

    def exists(reference: "Reference") -> bool:
        from gpu_tenancy.kube.errors import FORBIDDEN, ApiError, UnknownKindError

        try:
            return cluster.exists(*reference)
        except UnknownKindError:
            return False
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            return False

    return exists
