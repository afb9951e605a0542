"""Commands that simulate Kueue: `whatif` and `demo`, for a stack's queues or for recorded scenarios."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form, Output, for_programs, is_for_programs
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.terminal import ProjectFolder, StackName

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpu_tenancy.model.plan.shares import Tree
    from gpu_tenancy.simulation.live import LivePlayer
    from gpu_tenancy.simulation.stage import JobStep
    from gpu_tenancy.whatif.timeline import Timeline


def whatif(
    stack: Annotated[
        str | None, typer.Argument(help="Stack name. Required, except with --scenarios.", show_default=False)
    ] = None,
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
    scenarios: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with a JSON scenario per line, each with its own queues and workloads, in place of a stack.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for `whatif.html`, a page with pictures. With --scenarios: file for the admitted and pending"
            " workloads, one line per scenario; default: standard output."
        ),
    ] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Simulate Kueue: who gets which GPUs if everyone is busy, one team is alone, or jobs start and end over time.

    [dim]tenancy whatif local --last ml-research[/dim]
    """
    with terminal.errors(stack or ""):
        from gpu_tenancy.model.load import load
        from gpu_tenancy.model.plan.shares import Tree
        from gpu_tenancy.model.project import project_folder, read_stack
        from gpu_tenancy.whatif.page import timeline_page
        from gpu_tenancy.whatif.show import show_load
        from gpu_tenancy.whatif.timeline import timeline_data

        given = {"--team": team, "--workloads": workloads, "--first or --last": first or last, "--scenarios": scenarios}
        chosen = [name for name, value in given.items() if value]
        if len(chosen) > 1:
            raise ConsoleError(f"{' and '.join(chosen)} cannot be combined", "use one of them")
        if scenarios:
            _simulate(scenarios, out)
            return
        if stack is None:
            raise ConsoleError("STACK is missing", "specify a stack, or --scenarios FILE")
        tree = Tree(load(read_stack(stack, project_folder(project))))
        for name in (team, first, last):
            _known(tree, name)
        if workloads:
            timeline = _played(stack, tree, _read(workloads, tree), f"jobs of {workloads.name}", output=output)
        else:
            timeline = _load(stack, tree, team, first, last)
        if is_for_programs(output):
            for_programs(output, timeline_data(timeline), tree.team_shares)
        elif not workloads:
            show_load(terminal.out, timeline)
        if out:
            write_text(out / "whatif.html", timeline_page(timeline))
            if not is_for_programs(output):
                terminal.out.print(f"page {escape(str(out / 'whatif.html'))}", highlight=False)


def _known(tree: "Tree", name: str | None) -> None:
    from gpu_tenancy.base.problems import nearest

    if name is None or name in tree.team_shares:
        return
    if name in tree.stack.teams:
        raise ConsoleError(f"team {name} has no queue of its own", f"use {tree.queue_of(name)}, whose queue it shares")
    raise ConsoleError(f"team {name} not found", nearest(name, tree.team_shares))


def _load(stack: str, tree: "Tree", team: str | None, first: str | None, last: str | None) -> "Timeline":
    from gpu_tenancy.simulation.player import StepResult
    from gpu_tenancy.simulation.scenes import alone, busy, unmodelled_of
    from gpu_tenancy.simulation.stage import JobStep
    from gpu_tenancy.whatif.timeline import Timeline

    moment = alone(tree, team) if team else busy(tree, first=first, last=last)
    steps = (StepResult(JobStep(moment.label), moment),)
    return Timeline(stack, moment.label, tree, steps, scenario=False, left_out=unmodelled_of(tree))


def _played(
    stack: str,
    tree: "Tree",
    scenario: "list[JobStep]",
    title: str,
    *,
    output: Form | None,
    live: "LivePlayer | None" = None,
) -> "Timeline":
    """Plays a scenario, and prints it meanwhile if a person reads it."""
    from gpu_tenancy.simulation.scenes import unmodelled_of
    from gpu_tenancy.whatif.show import Display
    from gpu_tenancy.whatif.timeline import Timeline, play

    left_out = unmodelled_of(tree)
    if is_for_programs(output):
        return Timeline(stack, title, tree, play(tree, scenario, live=live), scenario=True, left_out=left_out)
    where = "on Kueue and in its simulation" if live else "in the simulation of Kueue"
    terminal.out.print(f"{escape(stack)}, {escape(title)}, {where}\n", highlight=False)
    display = Display(terminal.out, tree, scenario)
    steps = play(tree, scenario, display, live)
    display.summary(steps, left_out)
    return Timeline(stack, title, tree, steps, scenario=True, left_out=left_out)


def _read(file: Path, tree: "Tree") -> "list[JobStep]":
    from gpu_tenancy.simulation.scenario import ScenarioError, read_scenario

    try:
        return read_scenario(file, tree)
    except ScenarioError as error:
        terminal.problems(error.lines, str(file))
        raise typer.Exit(terminal.STACK_WRONG) from error


def demo(
    stack: StackName = "example-elastic",
    *,
    workloads: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML file with jobs over time, as for `whatif`. Default: stacks/scenarios/STACK.yaml; if that does"
            " not exist, each team submits jobs up to its limits, one team after another.",
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Play it on the Kueue of the embedded platform as well."),
    ] = False,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Play a scenario of jobs on a stack, in the simulation of Kueue: who borrows, who gives way to whom, and why.

    With `--live`, Kueue itself decides, and each step shows whether the simulation foresaw it. Exit code 2 if not.

    [dim]tenancy local demo example-elastic --live[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.model.load import load
        from gpu_tenancy.model.plan.shares import Tree
        from gpu_tenancy.model.project import project_folder, read_stack
        from gpu_tenancy.whatif.timeline import timeline_data

        folder = project_folder(project)
        tree = Tree(load(read_stack(stack, folder)))
        scenario, source = _steps(tree, folder, stack, workloads)
        with _live_player(stack, tree, live=live) as player:
            timeline = _played(stack, tree, scenario, source, output=output, live=player)
        if is_for_programs(output):
            for_programs(output, timeline_data(timeline), tree.team_shares)
        if not timeline.agrees:
            raise typer.Exit(terminal.PROMISE_BROKEN)


def _live_player(stack: str, tree: "Tree", *, live: bool) -> "AbstractContextManager[LivePlayer | None]":
    """The player on the embedded platform; None for the simulation alone."""
    if not live:
        return nullcontext()
    from gpu_tenancy.embedded.platform import Platform
    from gpu_tenancy.simulation.live import live_player

    return live_player(Platform(), stack, tree, terminal.report)


def _steps(tree: "Tree", folder: Path, stack: str, given: Path | None) -> "tuple[list[JobStep], str]":
    """The steps, and where they come from."""
    from gpu_tenancy.simulation.scenario import scenario_of
    from gpu_tenancy.simulation.scenes import default_scenario

    own = folder / "stacks" / "scenarios" / f"{stack}.yaml"
    file = given or (own if own.is_file() else None)
    if file is None:
        if not (steps := scenario_of(default_scenario(tree), tree)):
            raise ConsoleError(f"stack {stack}: no team has quota for jobs", "set gpus or quota of a team")
        return steps, "each team up to its limits"
    return _read(file, tree), f"scenario {file if given else file.relative_to(folder)}"


def _simulate(scenarios: Path, out: Path | None) -> None:
    """Simulates each scenario of a file; a line of JSON says what is admitted and pending after each step."""
    try:
        text = scenarios.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ConsoleError(
            f"--scenarios: {scenarios} is not a file", "specify a file with one JSON scenario per line"
        ) from error
    lines = [
        _observed(line, f"{scenarios}:{number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    observed = "".join(f"{line}\n" for line in lines)
    if out is None:
        sys.stdout.write(observed)
    else:
        write_text(out, observed)
        terminal.out.print(f"{len(lines)} scenarios in {escape(str(out))}", highlight=False)


def _observed(line: str, place: str) -> str:
    from gpu_tenancy.kueue.scenarios import observe

    try:
        return json.dumps(observe(json.loads(line)))
    except json.JSONDecodeError as error:
        raise ConsoleError(f"{place}: not valid JSON: {error}", "write one JSON scenario per line") from error
    except KeyError as error:
        raise ConsoleError(f"{place}: missing key {error}", "add the key to the scenario") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ConsoleError(f"{place}: invalid scenario: {error}", "correct the scenario") from error
