"""The command `cluster adopt`: a stack from a running cluster."""

from functools import cache
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
    from gpu_tenancy.review.adopting import Adopted


def adopt(
    *,
    out: Annotated[Path, typer.Option(help="File to write: stacks/Pulumi.NAME.yaml of a project.", show_default=False)],
    project: ProjectFolder = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    embedded: Embedded = False,
    output: Output = None,
) -> None:
    """Write a stack that has the tenancy of a running cluster, and compare its objects with the cluster's.

    It reads with your rights and changes nothing in the cluster. Exit code 1: the stack is written, but not valid yet,
    or not complete because of your rights.

    [dim]tenancy cluster adopt --out stacks/Pulumi.prod.yaml[/dim]
    """
    with terminal.errors():
        name = _name(out)
    with asking(kubeconfig, context, embedded=embedded) as cluster:
        from gpu_tenancy.inspect.adopt.tenancy import KINDS, OPERATED, Seen
        from gpu_tenancy.inspect.reading import read
        from gpu_tenancy.inspect.survey.supply import Facts
        from gpu_tenancy.review.adopting import adopt as adopt_from

        with terminal.reported_if_slow("reading the cluster"):
            groups = frozenset(group for group in OPERATED if cluster.versions(group))
            seen = Seen(Facts(read(cluster, KINDS, cluster.namespace)), groups)
        _written(adopt_from(seen, name, _exists(cluster), project), out, output)


def _name(out: Path) -> str:
    """The name of the stack in a file, which must not exist."""
    from gpu_tenancy.model.project import check_name

    name = out.name.removeprefix("Pulumi.").removesuffix(".yaml")
    if out.name != f"Pulumi.{name}.yaml":
        raise ConsoleError(f"--out {out}: not the file of a stack", "use stacks/Pulumi.NAME.yaml")
    check_name(name)
    if out.exists():
        raise ConsoleError(f"--out {out}: exists", "use another name, or delete the file first")
    return name


def _written(found: "Adopted", out: Path, output: Output) -> None:
    from rich.text import Text

    from gpu_tenancy.base.characters import visible
    from gpu_tenancy.base.writing import write_text
    from gpu_tenancy.review import adopted

    write_text(out, adopted.written(found))
    terminal.report(f"stack: {out}")
    answer(output, adopted.data(found), *(Text(visible(line)) for line in adopted.lines(found)))
    if found.problems or found.incomplete:
        raise typer.Exit(1)


def _exists(cluster: "Cluster") -> "Callable[[Reference], bool | None]":
    """Whether the cluster has an object; each kind is listed once, or in each namespace where that is all one may read.

    False for kinds that the cluster does not serve, None for those that the user may not read.
    """
    from gpu_tenancy.kube.errors import FORBIDDEN, ApiError, UnknownKindError
    from gpu_tenancy.kube.references import Reference

    @cache
    def listed(api_version: str, kind: str, namespace: str) -> frozenset[Reference] | None:
        """None if one may not list them there."""
        try:
            return frozenset(
                map(Reference.of, cluster.list(api_version, kind, namespace=namespace, metadata_only=True))
            )
        except UnknownKindError:
            return frozenset()
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            return None

    def exists(reference: Reference) -> bool | None:
        known = listed(reference.api_version, reference.kind, "")
        if known is None and reference.namespace:
            known = listed(reference.api_version, reference.kind, reference.namespace)
        return None if known is None else reference in known

    return exists
