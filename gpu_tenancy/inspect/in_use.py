"""The stack of the cluster in use, which is the default of commands that need one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.inspect.kubeconfig import connect, uses_embedded
from gpu_tenancy.inspect.reading import KUEUE
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.model.names import STACK
from gpu_tenancy.model.project import read_stack, stack_names


class Place(NamedTuple):
    """The cluster that a user names; without a kubeconfig and a context the one that kubectl would use.

    Attributes:
        embedded: whether it is the embedded platform.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    embedded: bool = False


def default_stack(team: str | None, folder: Path, place: Place) -> str:
    """The stack of the embedded platform if that is in use; else the only one that fits, or that of the cluster.

    Args:
        team: that the stack must have; None for a stack that has people.
        folder: of the project.
        place: the cluster, which is asked only if several stacks fit.

    Raises:
        ConsoleError: no stack fits, or several do and the cluster has none of them.
    """
    names = stack_names(folder)
    sections = {name: read_stack(name, folder).sections for name in names}
    if team is None:
        fitting, what = [name for name in names if _has_people(sections[name])], "have people"
    else:
        fitting, what = [name for name in names if team in (sections[name].get("teams") or {})], f"have a team '{team}'"
    carried = _of_embedded(place)
    if carried in (names if team is None else fitting):
        return carried
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise _none(team)
    deployed = _of_cluster(place)
    if deployed in fitting:
        terminal.progress(f"stack {deployed}, which the cluster in use has")
        return deployed
    if deployed and deployed not in names:
        fix = "change to its project, or specify it with --project, or another stack with --stack"
        raise ConsoleError(f"{folder / 'stacks'}: no file of stack {deployed}, which the cluster in use has", fix)
    raise ConsoleError(f"{len(fitting)} stacks {what}", f"specify --stack {' or --stack '.join(fitting)}")


def _none(team: str | None) -> ConsoleError:
    if team is None:
        fix = "add people.admins, or members to a team, to a stack; or set --stack"
        return ConsoleError("no stack has people", fix)
    fix = "specify a stack with --stack; `tenancy stack validate` lists all"
    return ConsoleError(f"no stack has a team '{team}'", fix)


def _has_people(sections: Mapping[str, Any]) -> bool:
    nodes: list[Mapping[str, Any] | None] = []
    for key in ("teams", "cohorts"):
        nodes += (sections.get(key) or {}).values()
    return "people" in sections or any(node and node.keys() & {"members", "serviceAccounts"} for node in nodes)


def _of_embedded(place: Place) -> str:
    """The stack that the embedded platform carries, if it is in use; else empty."""
    if not (place.embedded or (place == Place() and uses_embedded())):
        return ""
    from gpu_tenancy.embedded.platform import Platform  # noqa: PLC0415 - not part of a client that only asks

    carried = Platform().carried()
    return carried.name if carried else ""


def _of_cluster(place: Place) -> str:
    """The stack that made the root Cohort, which all members of teams may read; empty if it cannot be read."""
    kubeconfig, context, embedded = place
    try:
        with (
            terminal.reported_if_slow("asking the cluster for its stack"),
            connect(kubeconfig, context, embedded=embedded) as cluster,
        ):
            found = {text_at(one, "metadata", "annotations", STACK) for one in cluster.list(KUEUE, "Cohort")}
    except (ApiError, ConsoleError):
        return ""
    found.discard("")
    return found.pop() if len(found) == 1 else ""
