"""The command `demo`, which plays a scenario of jobs on a stack."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.terminal import ProjectFolder, StackName

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpu_tenancy.model.plan.shares import Tree
    from gpu_tenancy.simulation.live.live import LivePlayer
    from gpu_tenancy.simulation.scenarios import JobStep


def register(app: typer.Typer) -> None:
    """Adds this command."""
    app.command()(demo)


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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play a scenario of jobs on a stack, in the simulation of Kueue: who borrows, who gives way to whom, and why.

    With `--live`, Kueue itself decides, and each step shows whether the simulation foresaw it. Exit code 2 if not.

    [dim]tenancy demo example-elastic --live[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.engine.project import project_folder, read_stack  # noqa: PLC0415 - as above
        from gpu_tenancy.model.load import load  # noqa: PLC0415 - as above
        from gpu_tenancy.model.plan.shares import Tree  # noqa: PLC0415 - as above
        from gpu_tenancy.simulation.scenarios import unmodelled_of  # noqa: PLC0415 - as above
        from gpu_tenancy.whatif.demo.data import Recorder  # noqa: PLC0415 - not needed for `--help`
        from gpu_tenancy.whatif.demo.data import as_json as json_of  # noqa: PLC0415 - as above
        from gpu_tenancy.whatif.demo.run import play_demo  # noqa: PLC0415 - as above
        from gpu_tenancy.whatif.demo.show import Display  # noqa: PLC0415 - as above

        folder = project_folder(project)
        tree = Tree(load(read_stack(stack, folder)))
        scenario, source = _scenario(tree, folder, stack, workloads)
        left_out = unmodelled_of(tree)
        where = "on Kueue and in its simulation" if live else "in the simulation of Kueue"
        with _player(stack, tree, live=live) as player:
            if as_json:
                recorder = Recorder()
                results = play_demo(tree, scenario, recorder, player)
                sys.stdout.write(json_of(tree, results, recorder.events, left_out))
            else:
                terminal.out.print(f"{escape(stack)}, {escape(source)}, {where}\n", highlight=False)
                display = Display(terminal.out, tree, scenario)
                results = play_demo(tree, scenario, display, player)
                display.summary(results, left_out)
        if any(result.agrees is False for result in results):
            raise typer.Exit(terminal.PROMISE_BROKEN)


def _player(stack: str, tree: "Tree", *, live: bool) -> "AbstractContextManager[LivePlayer | None]":
    """The player on the embedded platform; None for the simulation alone."""
    if not live:
        return nullcontext()
    from gpu_tenancy.embedded.platform import Platform  # noqa: PLC0415 - as above
    from gpu_tenancy.simulation.live.live import live_player  # noqa: PLC0415 - as above

    return live_player(Platform(), stack, tree, terminal.report)


def _scenario(tree: "Tree", folder: Path, stack: str, given: Path | None) -> "tuple[list[JobStep], str]":
    """The steps, and where they come from."""
    from gpu_tenancy.simulation.scenarios import ScenarioError, default_scenario, read_scenario, scenario_of  # noqa: PLC0415 - as above

    own = folder / "stacks" / "scenarios" / f"{stack}.yaml"
    file = given or (own if own.is_file() else None)
    if file is None:
        if (old := folder / "stacks" / "stories" / own.name).is_file():
            raise ConsoleError(f"{old}: scenarios are in stacks/scenarios", f"move the file to {own}")
        if not (steps := scenario_of(default_scenario(tree), tree)):
            raise ConsoleError(f"stack {stack}: no team has quota for jobs", "set gpus or quota of a team")
        return steps, "each team up to its limits"
    try:
        return read_scenario(file, tree), f"scenario {file if given else file.relative_to(folder)}"
    except ScenarioError as error:
        terminal.problems(error.lines, str(file))
        raise typer.Exit(terminal.STACK_WRONG) from error
