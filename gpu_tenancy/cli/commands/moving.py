"""The command that moves guaranteed GPUs between teams in a stack file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.base.terminal import ProjectFolder
from gpu_tenancy.cli.commands.live import Context, Embedded, Kubeconfig, asking
from gpu_tenancy.cli.commands.stacks import StackOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_tenancy.base.problems import Path as Place
    from gpu_tenancy.kube.client import Cluster
    from gpu_tenancy.model.guarantees import Change
    from gpu_tenancy.model.source import Source


def move(
    count: Annotated[int, typer.Argument(min=1, help="Number of guaranteed GPUs.")],
    flavor: Annotated[str, typer.Argument(help="Flavor of the GPUs, such as h100.")],
    *,
    giver: Annotated[str, typer.Option("--from", help="Team that gives them.")],
    taker: Annotated[str, typer.Option("--to", help="Team that gets them.")],
    stack: StackOption = None,
    project: ProjectFolder = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    embedded: Embedded = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the change, and change no file.")] = False,
) -> None:
    """Move guaranteed GPUs from a team to another in the stack file. Comments and layout stay.

    It prints what each team is promised then, and how to deploy the change without preemption. With a kubeconfig, a
    context or --embedded, it also reads what the team uses that gives them.

    [dim]tenancy stack move 4 a100 --from ml-research --to ml-experiments --stack local[/dim]
    """
    with terminal.errors(stack or ""):
        from gpu_tenancy.inspect.in_use import Place, default_stack
        from gpu_tenancy.model.guarantees import moved, with_changes
        from gpu_tenancy.model.load import load
        from gpu_tenancy.model.outlook import outlook
        from gpu_tenancy.model.project import project_folder, read_stack
        from gpu_tenancy.review import text

        folder = project_folder(project)
        stack = stack or default_stack(giver, folder, Place(kubeconfig, context, embedded))
        source = read_stack(stack, folder)
        before = outlook(load(source))
        changes = moved(source, count, flavor, giver, taker)
        after = outlook(load(with_changes(source, changes)))
        if not dry_run:
            _write(source, changes, stack, folder)
        for path, change in changes.items():
            place = f"{source.file_of(path)}:{source.line(path)} {'.'.join(map(str, path))}"
            terminal.out.print(f"{place}: {change.before} → {change.after}", highlight=False)
        terminal.out.print(text.promises(after, before), highlight=False)
        left = next(change.after for change in changes.values())
    used = None
    if kubeconfig or context or embedded:
        with asking(kubeconfig, context, embedded=embedded) as cluster:
            used = _used(cluster, giver, flavor)
    for line in _steps(giver, taker, flavor, left, used):
        terminal.out.print(line, highlight=False)


def _used(cluster: "Cluster", team: str, flavor: str) -> int:
    """The GPUs of a flavor that a team uses.

    Raises:
        ConsoleError: the cluster has no queue of the team, or the user may not read it.
    """
    from gpu_tenancy.inspect.queues import Queues
    from gpu_tenancy.inspect.reading import read

    queue = Queues(read(cluster, ("ClusterQueue",))).cluster_queues.get(team)
    if queue is None:
        raise ConsoleError(
            f"ClusterQueue {team} not found, or not readable by you", "use an administrator's kubeconfig"
        )
    return sum(amount for (name, resource), amount in queue.usage.items() if name == flavor and is_extended(resource))


def _write(source: "Source", changes: "Mapping[Place, Change]", stack: str, folder: Path) -> None:
    """Writes the numbers; the file is as before if it would say anything else then."""
    from gpu_tenancy.base.writing import write_text
    from gpu_tenancy.model.edit import with_numbers
    from gpu_tenancy.model.guarantees import with_changes
    from gpu_tenancy.model.project import read_stack
    from gpu_tenancy.model.spec import NAMESPACE

    shown = source.file_of(("teams",))
    file = folder / shown
    within = () if "teams" in source.files else ("config", f"{NAMESPACE}:teams")
    numbers = {(*within, *path[1:]): change.after for path, change in changes.items()}
    text = file.read_bytes().decode()
    write_text(file, with_numbers(text, numbers, shown))
    if read_stack(stack, folder).sections != with_changes(source, changes).sections:
        write_text(file, text)
        raise ConsoleError(f"{shown}: these numbers cannot be changed alone", "change them by hand")


def _steps(giver: str, taker: str, flavor: str, left: int, used: int | None) -> "list[str]":
    """How to deploy the change without preemption."""
    if used is not None and used <= left:
        return [f"{giver} uses {used} {flavor} GPUs and keeps {left}: deploy it at once, nobody is preempted for it."]
    now = "" if used is None else f" It uses {used} now."
    return [
        f"Once deployed, what {giver} uses beyond {left} {flavor} GPUs is borrowed, and {taker} can reclaim it.{now}",
        "To preempt nobody:",
        f"  1. tenancy cluster hold {giver}",
        f"  2. wait until `tenancy usage {giver}` shows at most {left} {flavor} GPUs used",
        "  3. deploy the stack",
        f"  4. tenancy cluster release {giver}",
    ]
