"""The command that plays a stack's queues without a cluster: who runs, who waits, who gives way."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from console import terminal
from console.errors import ConsoleError
from console.terminal import ProjectFolder, StackName

if TYPE_CHECKING:
    from model.plan.shares import Tree
    from model.whatif import Moment


def register(app: typer.Typer) -> None:
    """Adds this command."""
    app.command()(whatif)


def whatif(  # noqa: PLR0913 - each is an option
    stack: StackName,
    *,
    team: Annotated[str | None, typer.Option(help="Only this team wants anything.")] = None,
    first: Annotated[
        str | None, typer.Option(metavar="TEAM", help="Everyone is busy, and this team came first.")
    ] = None,
    last: Annotated[str | None, typer.Option(metavar="TEAM", help="Everyone is busy, and this team came last.")] = None,
    workloads: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Jobs over time, as YAML: steps, each with `finish` and `submit`."),
    ] = None,
    project: ProjectFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="For other programs.")] = False,
) -> None:
    """Who would get which GPUs, by a simulation of Kueue: if everyone is busy, one team is alone, or jobs come and go.

    [dim]tenancy whatif local --last ml-research[/dim]
    """
    with terminal.errors(stack):
        from console.project import ROOT, read_stack  # noqa: PLC0415 - `--help` can do without the model
        from console.whatif import show  # noqa: PLC0415 - as above
        from model.load import load  # noqa: PLC0415 - as above
        from model.plan.shares import Tree  # noqa: PLC0415 - as above
        from model.whatif import unmodelled_of  # noqa: PLC0415 - as above

        chosen = [name for name, given in (("--team", team), ("--workloads", workloads)) if given]
        chosen += ["--first or --last"] if first or last else []
        if len(chosen) > 1:
            raise ConsoleError(f"{' and '.join(chosen)} are two questions", "ask one at a time")
        tree = Tree(load(read_stack(stack, project or ROOT)))
        for name in (team, first, last):
            _known(tree, name)
        if workloads:
            moments, wanted = _played(tree, workloads), None
        else:
            moments, wanted = _scene(tree, team, first, last)
        left_out = unmodelled_of(tree)
        if as_json:
            found = {"moments": [asdict(each) for each in moments], "notModelled": [str(each) for each in left_out]}
            sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
            return
        for moment in moments:
            show.moment(terminal.out, tree, moment, wanted)
        for each in left_out:
            terminal.out.print(f"[dim]not simulated, and used by this stack: {each}[/dim]", highlight=False)


def _known(tree: "Tree", name: str | None) -> None:
    from model.problems import nearest  # noqa: PLC0415 - as above

    if name is None or name in tree.team_shares:
        return
    if name in tree.stack.teams:
        raise ConsoleError(f"{name} has no queue of its own", f"ask for {tree.queue_of(name)}, whose queue it uses")
    raise ConsoleError(f"there is no team {name}", nearest(name, tree.team_shares))


def _scene(
    tree: "Tree", team: str | None, first: str | None, last: str | None
) -> tuple[tuple["Moment", ...], dict[tuple[str, str], int]]:
    from model.whatif import alone, busy  # noqa: PLC0415 - as above

    scene = alone(tree, team) if team else busy(tree, first=first, last=last)
    return (scene.moment,), scene.wanted


def _played(tree: "Tree", file: Path) -> tuple["Moment", ...]:
    from model.whatif import play, read_story  # noqa: PLC0415 - as above

    try:
        return play(tree, read_story(file, tree))
    except ValueError as error:
        raise ConsoleError(str(error), "and ask again") from error
