"""Kubeconfig, context and stack of the cluster to read."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError, UsageError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.terminal import Place
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError, UnreachableError
from gpu_tenancy.model.names import EMBEDDED_CONTEXT, KUEUE, STACK
from gpu_tenancy.model.project import read_stack, stack_names

_ANSWER: Final = 10.0  # seconds


def kubeconfig(given: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """Path of the kubeconfig, or several as in KUBECONFIG; `given` must exist. Raises ConsoleError if none exists."""
    if given is not None:
        if not given.is_file():
            what = "is not a file" if given.exists() else "not found"
            raise ConsoleError(f"kubeconfig {given} {what}", "set --kubeconfig to an existing file")
        return given
    named = [path for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    there = [path for path in named if Path(path).expanduser().is_file()]
    if there:
        return Path(os.pathsep.join(there))
    usual = _usual(environment)
    if named or not usual.is_file():
        where = f"KUBECONFIG is {os.pathsep.join(named)}" if named else f"{usual} does not exist"
        fix = "set --kubeconfig, or use --embedded for the platform of `tenancy local up`"
        raise ConsoleError(f"no kubeconfig found: {where}", fix)
    return usual


def uses_embedded(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the embedded platform is used: it exists, and kubectl would find no kubeconfig."""
    if environment.get("KUBECONFIG") or _usual(environment).is_file():
        return False
    try:
        from gpu_tenancy.embedded.platform import Platform  # noqa: PLC0415 - as below
    except ImportError:  # a client that only asks is installed without the platform
        return False
    return Platform().kubeconfig.is_file()


def resolved(place: Place) -> Place:
    """The embedded platform in place of no choice, if it is used."""
    return Place(embedded=True) if not any(place) and uses_embedded() else place


def _usual(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or Path.home()) / ".kube" / "config"


def connect(place: Place) -> Cluster:
    """A client of the chosen cluster. Raises ConsoleError if no kubeconfig exists, or it cannot be used."""
    return Cluster(*chosen(place), answer_seconds=_ANSWER)


def chosen(place: Place) -> tuple[Path, str | None]:
    """The kubeconfig and the context; None for the current context. Raises ConsoleError if no kubeconfig exists."""
    given, context, embedded = place
    if not embedded:
        return kubeconfig(given), context
    from gpu_tenancy.embedded.platform import Platform  # noqa: PLC0415 - only --embedded needs it

    if given is not None or context is not None:
        raise UsageError("--embedded cannot be combined with --kubeconfig or --context", "remove one of them")
    found = Platform().kubeconfig
    if not found.is_file():
        raise ConsoleError("the embedded platform is not running", "start it with `tenancy local up`")
    return found, EMBEDDED_CONTEXT


def default_stack(team: str | None, folder: Path, place: Place) -> str:
    """The stack of the embedded platform if in use, else the only suitable stack, else the stack of the cluster.

    A suitable stack has the team, or people if `team` is None. The cluster is read only if several stacks are suitable.
    Raises ConsoleError if no stack is suitable, or several are and the cluster has none of them.
    """
    names = stack_names(folder)
    sections = {name: read_stack(name, folder).sections for name in names}
    what = "people" if team is None else f"a team '{team}'"
    fitting = [
        name
        for name in names
        if (_has_people(sections[name]) if team is None else team in (sections[name].get("teams") or {}))
    ]
    if resolved(place).embedded:
        from gpu_tenancy.embedded.platform import Platform  # noqa: PLC0415 - not part of a client that only asks

        carried = Platform().carried()
        if carried and carried.name in (names if team is None else fitting):
            return carried.name
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        fix = "add people.admins, or members to a team, to a stack; or set --stack"
        fix = fix if team is None else "specify a stack with --stack; `tenancy stack validate` lists all"
        raise ConsoleError(f"no stack has {what}", fix)
    deployed, why = _of_cluster(place)
    if deployed in fitting:
        terminal.progress(f"stack {deployed}, which the cluster in use has")
        return deployed
    if deployed and deployed not in names:
        fix = "change to its project, or specify it with --project, or another stack with --stack"
        raise ConsoleError(f"{folder / 'stacks'}: no file of stack {deployed}, which the cluster in use has", fix)
    raise ConsoleError(f"{len(fitting)} stacks have {what}{why}", f"specify --stack {' or --stack '.join(fitting)}")


def _has_people(sections: Mapping[str, Any]) -> bool:
    nodes: list[Mapping[str, Any] | None] = []
    for key in ("teams", "cohorts"):
        nodes += (sections.get(key) or {}).values()
    return "people" in sections or any(node and node.keys() & {"members", "serviceAccounts"} for node in nodes)


def _of_cluster(place: Place) -> tuple[str, str]:
    """The stack that created the root Cohort, which all team members may read; if unknown, empty and perhaps why."""
    try:
        with terminal.reported_if_slow("asking the cluster for its stack"), connect(place) as cluster:
            found = {text_at(one, "metadata", "annotations", STACK) for one in cluster.list(KUEUE, "Cohort")}
    except UnreachableError as error:
        return "", f", and {error.what}"
    except (ApiError, ConsoleError):
        return "", ""
    found.discard("")
    return found.pop() if len(found) == 1 else "", ""
