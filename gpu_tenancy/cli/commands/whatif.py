"""The command `whatif`, which simulates a stack's queues without a cluster."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.base.writing import write_text

if TYPE_CHECKING:
    from gpu_tenancy.model.plan.shares import Tree
    from gpu_tenancy.whatif.narrative import Played


def register(app: typer.Typer) -> None:
    """Adds this command."""
    app.command()(whatif)


def whatif(  # noqa: PLR0913 - each is an option
    stack: StackName,
    *,
    team: Annotated[str | None, typer.Option(help="Only this team submits jobs.")] = None,
    first: Annotated[
        str | None, typer.Option(metavar="TEAM", help="Everyone is busy, and this team submits first.")
    ] = None,
    last: Annotated[
        str | None, typer.Option(metavar="TEAM", help="Everyone is busy, and this team submits last.")
    ] = None,
    workloads: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML file with jobs over time: steps, each with `finish` and `submit`."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for `whatif.html`, a page with pictures.")] = None,
    project: ProjectFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Simulate Kueue: who gets which GPUs if everyone is busy, one team is alone, or jobs start and end over time.

    [dim]tenancy whatif local --last ml-research[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.engine.project import project_folder, read_stack  # noqa: PLC0415 - not needed for `--help`
        from gpu_tenancy.model.load import load  # noqa: PLC0415 - as above
        from gpu_tenancy.model.plan.shares import Tree  # noqa: PLC0415 - as above

        chosen = [name for name, given in (("--team", team), ("--workloads", workloads)) if given]
        chosen += ["--first or --last"] if first or last else []
        if len(chosen) > 1:
            raise ConsoleError(f"{' and '.join(chosen)} cannot be combined", "use one of them")
        tree = Tree(load(read_stack(stack, project_folder(project))))
        for name in (team, first, last):
            _known(tree, name)
        played = _scenario(stack, tree, workloads) if workloads else _scene(stack, tree, team, first, last)
        written = _write(played, out) if out else None
        _print(played, written, as_json=as_json)


def _print(played: "Played", written: Path | None, *, as_json: bool) -> None:
    from gpu_tenancy.whatif import show  # noqa: PLC0415 - as above
    from gpu_tenancy.whatif.data import as_json as json_of  # noqa: PLC0415 - as above

    if as_json:
        sys.stdout.write(json_of(played))
        return
    show.show(terminal.out, played)
    for part in played.left_out:
        terminal.out.print(f"[dim]used by this stack but not simulated: {escape(part)}[/dim]", highlight=False)
    if written:
        terminal.out.print(f"page {escape(str(written))}", highlight=False)


def _write(played: "Played", out: Path) -> Path:
    from gpu_tenancy.whatif.page import page  # noqa: PLC0415 - as above

    file = out / "whatif.html"
    write_text(file, page(played))
    return file


def _known(tree: "Tree", name: str | None) -> None:
    from gpu_tenancy.base.problems import nearest  # noqa: PLC0415 - as above

    if name is None or name in tree.team_shares:
        return
    if name in tree.stack.teams:
        raise ConsoleError(f"team {name} has no queue of its own", f"use {tree.queue_of(name)}, whose queue it shares")
    raise ConsoleError(f"team {name} not found", nearest(name, tree.team_shares))


def _scene(stack: str, tree: "Tree", team: str | None, first: str | None, last: str | None) -> "Played":
    from gpu_tenancy.simulation.scenarios import alone, busy, unmodelled_of  # noqa: PLC0415 - as above
    from gpu_tenancy.whatif.narrative import Played  # noqa: PLC0415 - as above

    scene = alone(tree, team) if team else busy(tree, first=first, last=last)
    return Played(stack, scene.title, tree, (scene.moment,), scenario=False, left_out=unmodelled_of(tree))


def _scenario(stack: str, tree: "Tree", file: Path) -> "Played":
    from gpu_tenancy.simulation.scenarios import ScenarioError, play_scenario, read_scenario, unmodelled_of  # noqa: PLC0415 - as above
    from gpu_tenancy.whatif.narrative import Played  # noqa: PLC0415 - as above

    try:
        moments = play_scenario(tree, read_scenario(file, tree))
    except ScenarioError as error:
        terminal.problems(error.lines, str(file))
        raise typer.Exit(terminal.STACK_WRONG) from error
    return Played(stack, f"jobs of {file.name}", tree, moments, scenario=True, left_out=unmodelled_of(tree))
