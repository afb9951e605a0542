"""Options that several commands have, and the cluster, team, job or stack that they name."""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import update_wrapper
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import typer
from rich.console import Group

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form, answer
from gpu_tenancy.base.errors import ConsoleError, UsageError
from gpu_tenancy.base.terminal import Place
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.access import live as live_access
    from gpu_tenancy.cluster import contexts
    from gpu_tenancy.explain import show
    from gpu_tenancy.jobs import submitting
    from gpu_tenancy.kube import client, errors
    from gpu_tenancy.model import load
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.model.plan import shares

T = TypeVar("T")

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh each 5 seconds until interrupted.")]
Gpus = Annotated[
    bool, typer.Option("--gpus", help="Also what GPUs do: asks nvidia-smi in each pod, by `kubectl exec`.")
]
Used = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Recorded Workloads, `kubectl get workloads -A -o json`, whose durations tell the waits."
    ),
]
Me = Annotated[bool, typer.Option("--me", help="Only jobs that you submitted, by the label of their user.")]
Pending = Annotated[bool, typer.Option("--pending", help="Only jobs that do not run yet.")]
Sort = Annotated[
    Literal["age", "gpus", "name", "user"] | None,
    typer.Option(
        help="Oldest or largest first, or by name or user; default: running, then by place.", show_default=False
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show also what is usually left out.")]
Everybody = Annotated[bool, typer.Option("--all", "-A", help="Show all teams.")]
Team = Annotated[str | None, typer.Argument(help="Namespace of a team; default: the one of the kubeconfig's context.")]
TeamOption = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; default: the context's.")]
Kind = Annotated[str, typer.Option(help="Kind of the object, if several kinds have the name.")]
StackOption = Annotated[
    str | None, typer.Option(help="Stack name. Default: the one of the cluster in use, or the only one that fits.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before anything is changed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the object as YAML, and create nothing.")]

_PLACE: Final = {
    "kubeconfig": Annotated[
        Path | None, typer.Option(help="Kubeconfig to use; default: the one of kubectl, else the embedded platform.")
    ],
    "context": Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: the current one.")],
    "embedded": Annotated[bool, typer.Option("--embedded", help="Use the embedded platform of `tenancy local up`.")],
}
"""The options of a command that has a parameter `place`."""
_EVERY: Final = 5.0  # seconds between two reads of --watch
_RIGHTS: Final = "check your rights: `kubectl auth can-i --list`"
# Fixes of errors that have another cause than missing rights, by status.
_FIXES: Final = {
    400: "correct the field that the message names",
    401: "log in again, or specify another kubeconfig or context",
    404: "check the name and the namespace",
    409: "choose another name, or delete what has it: `tenancy cancel NAME`",
    422: "correct the field that the message names",
}


def with_place(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options --kubeconfig, --context and --embedded in the place of its parameter `place`."""
    signature = Signature.from_callable(command)
    if "place" not in signature.parameters:
        return command

    def run(**given: Any) -> None:
        command(place=Place(**{name: given.pop(name) for name in _PLACE}), **given)

    default, options = Place()._asdict(), list[Parameter]()
    for name, parameter in signature.parameters.items():
        known = _PLACE if name == "place" else {name: parameter.annotation}
        for option, kind in known.items():
            value = default.get(option, parameter.default)
            options.append(Parameter(option, Parameter.KEYWORD_ONLY, default=value, annotation=kind))
    update_wrapper(run, command, ("__name__", "__doc__", "__module__"))
    run.__signature__ = signature.replace(parameters=options)  # pyright: ignore[reportFunctionMemberAccess]
    return run


def tree_of(stack: str, project: Path | None) -> "shares.Tree":
    """The quotas of a stack. Raises StackError if it has problems, ConsoleError without such a project or stack."""
    return shares.Tree(load.load(projects.read_stack(stack, projects.project_folder(project))))


def whose(cluster: "client.Cluster", team: str | None, namespace: str | None, *, everybody: bool) -> tuple[str, str]:
    """The user's own namespace, which is read alone where the user may not read all; and the one to show, if only one.

    Raises ConsoleError if the options contradict.
    """
    team = _one(team, namespace)
    if everybody and team:
        raise UsageError(f"{team}: --all shows all teams", "remove one of them")
    own = team or cluster.namespace
    return own, "" if everybody else own


def team_of(cluster: "client.Cluster", team: str | None, namespace: str | None, command: str) -> str:
    """The namespace that the user names, or that of the context. Raises ConsoleError if there is none."""
    found = _one(team, namespace) or cluster.namespace
    if not found:
        raise ConsoleError("no team: the kubeconfig's context has no namespace", f"specify it: `{command}`")
    return found


def _one(team: str | None, namespace: str | None) -> str | None:
    """The team that the user names, as the argument or as the option. Raises ConsoleError if they differ."""
    if team and namespace and team != namespace:
        raise UsageError(f"{team} and -n {namespace} are different namespaces", "specify one")
    return team or namespace


def place_of(cluster: "client.Cluster", job: str, namespace: str | None) -> tuple[str, str]:
    """Namespace and name of NAMESPACE/NAME or NAME; raises ConsoleError if there is no namespace, or there are two."""
    home, _, name = job.rpartition("/")
    if home and namespace:
        raise UsageError(f"{job} and -n {namespace}: two namespaces", "remove one of them")
    home = home or namespace or cluster.namespace
    if not home:
        raise ConsoleError(f"{job}: no namespace", "specify NAMESPACE/NAME or -n NAMESPACE")
    return home, name


def show_answer(
    ask: Callable[[], T],
    shown: Callable[[T], Group],
    data: Callable[[T], object],
    output: Form | None,
    *,
    watch: bool = False,
) -> None:
    """Prints an answer once, or again and again. Raises ConsoleError if programs are to get it repeatedly."""
    if watch:
        if output:
            raise UsageError("--watch and -o cannot be combined", "remove one of them")
        with suppress(KeyboardInterrupt):
            show.follow(terminal.out, lambda: shown(ask()), _EVERY)
        return
    with terminal.reported_if_slow("reading the cluster"):
        result = ask()
    answer(output, data(result), shown(result))


def user_of(cluster: "client.Cluster") -> str:
    """The user of a cluster, as the value of a label."""
    return submitting.user_label(live_access.who_am_i(cluster).user)


def fix_of(error: "errors.ApiError", rights: str = _RIGHTS) -> str:
    """What to do about a rejected request; `rights` is the fix for a missing right."""
    return "correct what the message names" if error.denied else _FIXES.get(error.status, rights)


@contextmanager
def asking(place: Place, *, rights: str = _RIGHTS) -> Generator["client.Cluster"]:
    """A client of the cluster, with API errors as console errors; `rights` is the fix for a missing right."""
    named, place = any(place), contexts.resolved(place)
    if place.embedded and not named:
        terminal.err.print("no kubeconfig is set; using the embedded platform", highlight=False)
    try:
        with contexts.connect(place) as cluster:
            yield cluster
    except errors.ApiError as error:
        raise ConsoleError(f"API server: {error}", fix_of(error, rights)) from error
