"""The command `demo`, which plays a story of jobs on a stack."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gpu_tenancy.console import terminal
from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.terminal import ProjectFolder, StackName

if TYPE_CHECKING:
    from gpu_tenancy.model.plan.shares import Tree
    from gpu_tenancy.model.whatif import JobStep


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
            help="YAML file with jobs over time, as for `whatif`. Default: stacks/stories/STACK.yaml; if that does not"
            " exist, each team submits jobs up to its limits, one team after another.",
        ),
    ] = None,
    project: ProjectFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play a story of jobs on a stack, in the simulation of Kueue: who borrows, who gives way to whom, and why.

    [dim]tenancy demo example-elastic[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.console.demo.data import Recorder  # noqa: PLC0415 - not needed for `--help`
        from gpu_tenancy.console.demo.data import as_json as json_of  # noqa: PLC0415 - as above
        from gpu_tenancy.console.demo.run import play_demo  # noqa: PLC0415 - as above
        from gpu_tenancy.console.demo.show import Display  # noqa: PLC0415 - as above
        from gpu_tenancy.console.project import project_folder, read_stack  # noqa: PLC0415 - as above
        from gpu_tenancy.model.load import load  # noqa: PLC0415 - as above
        from gpu_tenancy.model.plan.shares import Tree  # noqa: PLC0415 - as above
        from gpu_tenancy.model.whatif import unmodelled_of  # noqa: PLC0415 - as above

        folder = project_folder(project)
        tree = Tree(load(read_stack(stack, folder)))
        story, source = _story(tree, folder, stack, workloads)
        left_out = unmodelled_of(tree)
        if as_json:
            recorder = Recorder()
            results = play_demo(tree, story, recorder)
            sys.stdout.write(json_of(tree, results, recorder.events, left_out))
            return
        terminal.out.print(f"{escape(stack)}, {escape(source)}, in the simulation of Kueue\n", highlight=False)
        display = Display(terminal.out, tree, story)
        display.summary(play_demo(tree, story, display), left_out)


def _story(tree: "Tree", folder: Path, stack: str, given: Path | None) -> "tuple[list[JobStep], str]":
    """The steps, and where they come from."""
    from gpu_tenancy.console.show import problems  # noqa: PLC0415 - as above
    from gpu_tenancy.model.whatif import StoryError, default_story, read_story, story_of  # noqa: PLC0415 - as above

    own = folder / "stacks" / "stories" / f"{stack}.yaml"
    file = given or (own if own.is_file() else None)
    if file is None:
        if not (steps := story_of(default_story(tree), tree)):
            raise ConsoleError(f"stack {stack}: no team has quota for jobs", "set gpus or quota of a team")
        return steps, "each team up to its limits"
    try:
        return read_story(file, tree), f"story {file if given else file.relative_to(folder)}"
    except StoryError as error:
        problems(terminal.err, error.lines, str(file))
        raise typer.Exit(terminal.STACK_WRONG) from error
