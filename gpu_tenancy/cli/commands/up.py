"""Commands that reach the cluster of a stack through Pulumi: `up`, `stack repair` and `destroy`."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.cluster import contexts
    from gpu_tenancy.deploy import deploying, recovering
    from gpu_tenancy.deploy import stacks as deploy_stacks
    from gpu_tenancy.engine import project as rendering
    from gpu_tenancy.model import plan
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.review import build, verdict
    from gpu_tenancy.review import text as review_text


_LISTED: Final = 10  # names that a line has before it counts the rest
_TEAMS: Final = 30  # teams that a table has before it counts the rest
_NOBODY: Final = "nothing was changed; confirm with --yes, because there is no terminal to ask"


def up(
    stack: StackName,
    *,
    project: ProjectFolder = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policy pack to evaluate before the question: `workloads`, `clouds`, FOLDER or FOLDER=CONFIG.json. Can"
            " be repeated. Default: `workloads` and `clouds`; with --yes none."
        ),
    ] = None,
    yes: options.Yes = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only show what others changed in the cluster, and what a deployment would change. Writes no state;"
            " exit code 3 if anything differs.",
        ),
    ] = False,
) -> None:
    """Deploy a stack to its real cluster, with `pulumi up`. Asks first. For this machine, use `tenancy local up`.

    Needs the Pulumi CLI; its backend and your credentials of the cloud and cluster are used. A stack with `split` is
    several Pulumi stacks: all are deployed, in order. Before the question you see the changes by team, from `pulumi
    preview`, and the verdict of the policy packs; with --yes only that of the packs that you name. If it is Blocked,
    nothing is deployed and the exit code is 3. After a run that was killed, the state is repaired first, as by `tenancy
    stack repair`. A Pulumi stack that has only Kubernetes objects is compared with its cluster: fields that others
    changed are named, with both values, the field manager and the time, as are deleted objects; all are deployed again.
    Where nothing differs, Pulumi is not asked. Its state is written once, at the end, which takes a fraction of the
    time.

    [dim]tenancy up prod-aws[/dim]
    """
    with terminal.errors(stack):
        if dry_run:
            _compare(_environment(*_read(stack, project), ()))
            return
        environment = _whole(stack, project, yes=yes)
        if not (yes or sys.stdin.isatty()):
            raise ConsoleError(_question(environment), _NOBODY)
        if not yes:
            _preview(environment)
        if packs := policy or (() if yes else ("workloads", "clouds")):
            _judge(environment, packs)
        confirm(_question(environment), yes=yes)
        done = environment.up()
        for result in done if yes else ():
            _show_teams(result)
        _show(done)


def _preview(environment: "deploying.Environment") -> bool:
    """Shows the changes by team; whether there are any."""
    found = environment.preview()
    for result in found:
        _show_teams(result)
    new = [name for name in environment.stacks.names if name not in environment.existing]
    for name in new:
        terminal.out.print(f"{name}: new", highlight=False)
    return bool(new) or any(result.teams for result in found)


def _compare(environment: "deploying.Environment") -> None:
    """Shows what differs between cluster, state and stack. Raises typer.Exit if anything does."""
    edited = environment.edited()
    for line in edited:
        terminal.out.print(line, highlight=False, markup=False, soft_wrap=True)
    if edited:
        name = environment.stacks.environment
        fix = f"to restore them, run `tenancy stack repair {name}`, then `tenancy up {name}`"
        terminal.out.print(f"{len(edited)} differ from the last deployment; {fix}", highlight=False)
    if _preview(environment) or edited:
        raise typer.Exit(terminal.ExitCode.BLOCKED)


def _question(environment: "deploying.Environment") -> str:
    return f"Deploy {_listed(environment.stacks.names)} to {environment.cluster}?"


def _show_teams(result: "deploying.Result") -> None:
    """The changes of one stack by team, and what is deleted or replaced."""
    changes = {team or "(shared)": counts for team, counts in sorted(result.teams.items())}
    if not changes:
        terminal.out.print(f"{result.stack}: no changes in the stack file", highlight=False)
        return
    operations = sorted({operation for counts in changes.values() for operation in counts})
    table = terminal.table(f"team of {result.stack}", *(f"{operation}#" for operation in operations))
    for team, counts in [*changes.items()][:_TEAMS]:
        table.add_row(escape(team), *(str(counts.get(operation, "")) for operation in operations))
    if len(changes) > _TEAMS:
        table.add_row(f"{len(changes) - _TEAMS} more", *("" for _ in operations))
    terminal.out.print(table)
    if result.destroyed:
        lost = first_names(result.destroyed, _LISTED)
        terminal.out.print(f"[bold]deleted or replaced:[/bold] {escape(lost)}", highlight=False)


def _judge(environment: "deploying.Environment", packs: Sequence[str]) -> None:
    """Shows the verdict of packs. Raises typer.Exit if a mandatory rule is violated."""
    read = environment.read
    seen = build.review(rendering.rendered(read), read.project, policies=packs)
    review_text.show_verdict(terminal.out, seen)
    if seen.rules:
        review_text.show_rules(terminal.out, seen.rules)
    if seen.verdict.title == verdict.BLOCKED:
        raise typer.Exit(terminal.ExitCode.BLOCKED)


def destroy(stack: StackName, *, project: ProjectFolder = None, yes: options.Yes = False) -> None:
    """Delete all resources of a stack from its real cluster, with `pulumi destroy`. Asks first.

    The Pulumi stacks are deleted, too; the stack file is kept. For this machine, use `tenancy local down`.

    [dim]tenancy destroy prod-aws[/dim]
    """
    with terminal.errors(stack):
        environment = _whole(stack, project, yes=yes)
        if not environment.existing:
            terminal.out.print(f"{stack} has no Pulumi stacks")
            return
        confirm(f"Delete all resources of {_listed(environment.existing)} on {environment.cluster}?", yes=yes)
        _show(environment.down())


def repair(
    stack: StackName,
    *,
    project: ProjectFolder = None,
    unlock: Annotated[
        bool,
        typer.Option(
            "--unlock", help="The deployment that holds the lock no longer runs: you checked, on its machine."
        ),
    ] = False,
) -> None:
    """Repair the state of a stack after `pulumi up` or `tenancy up` was killed. Then run it again.

    Removes the lock, and ends the pending operations by what is in the cluster: objects with the annotation
    `gpu-tenancy.dev/deployed-by` of this stack are taken into the state; others never are. Objects that are not as in
    the state are read again. The cluster is not changed. In a backend of files on this machine, the lock is removed if
    its process has ended; elsewhere, confirm that with `--unlock`.

    [dim]tenancy stack repair prod-aws[/dim]
    """
    with terminal.errors(stack):
        read, stacks = _read(stack, project)
        repaired = _repair(stacks, unlock=unlock)
        recovered = _environment(read, stacks, ()).recover()
        if not (repaired or recovered):
            clean = "has no lock of an ended run and no pending operations, and agrees with the cluster"
            terminal.out.print(f"OK: the state of {stack} {clean}")


def _repair(stacks: "deploy_stacks.Stacks", *, unlock: bool) -> bool:
    """Repairs the states of an environment; whether anything had to be done."""
    unlocked = _unlock(stacks, forced=unlock)
    repaired = recovering.repair(stacks, contexts.kubeconfig)
    for done in repaired:
        taken = f"{len(done.taken)} objects with the mark of the stack taken into the state"
        others = f"{len(done.dropped)} were not created, {done.read} other resources read again"
        terminal.out.print(f"{done.stack}: {taken}, {others}", highlight=False)
        for reference in done.foreign:
            fix = f"delete it, or add {reference.adoptable} to cluster.adopt"
            problem = f"{escape(str(reference))} has no mark of the stack"
            terminal.out.print(f"{done.stack}: {problem}; {fix}", highlight=False)
    return bool(unlocked or repaired)


def _unlock(stacks: "deploy_stacks.Stacks", *, forced: bool = False) -> tuple[str, ...]:
    unlocked = stacks.unlock(forced=forced)
    for name in unlocked:
        terminal.out.print(f"{name}: lock of the killed run removed", highlight=False)
    return unlocked


def _whole(stack: str, project: Path | None, *, yes: bool) -> "deploying.Environment":
    """The environment; if a deployment was killed, its states are repaired first, if the user agrees."""
    read, stacks = _read(stack, project)
    killed = _unlock(stacks)
    try:
        return _environment(read, stacks, killed)
    except deploy_stacks.InterruptedDeploymentError as error:
        confirm(f"{error.what}. Repair its state?", yes=yes)
    _repair(stacks, unlock=False)
    return _environment(read, stacks, stacks.names)


def _environment(
    read: "projects.Declared", stacks: "deploy_stacks.Stacks", killed: Sequence[str]
) -> "deploying.Environment":
    reach = partial(recovering.cluster_of, usual=contexts.kubeconfig)
    return deploying.Environment(read, stacks, terminal.report, reach, killed)


def _read(stack: str, project: Path | None) -> "tuple[projects.Declared, deploy_stacks.Stacks]":
    read = projects.declared(stack, project)
    parts = plan.plan(read.stack).parts if read.stack.split else ()
    return read, deploy_stacks.Stacks(read, parts, read.project / "out" / "pulumi" / stack)


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    return f"stack {listed[0]}" if len(listed) == 1 else f"the stacks {', '.join(listed)}"


def confirm(question: str, *, yes: bool) -> None:
    """Asks on a terminal. Raises ConsoleError if there is nobody to ask, typer.Exit if the user said no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConsoleError(question, _NOBODY)
    with suppress(typer.Abort):
        if typer.confirm(question):
            return
    raise typer.Exit(terminal.ExitCode.ERROR)


def _show(results: "list[deploying.Result]") -> None:
    """A row for each stack, with its counts by operation."""
    operations = sorted({operation for result in results for operation in result.changes})
    table = terminal.table("stack", *(f"{operation}#" for operation in operations), "s#")
    for result in results:
        counts = (str(result.changes.get(operation, "")) for operation in operations)
        table.add_row(escape(result.stack), *counts, f"{result.seconds:.0f}")
    terminal.out.print(table)
