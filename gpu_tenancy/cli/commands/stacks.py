"""Commands about stack files: validate them, explain their values, compare them between git refs."""

from contextlib import suppress
from typing import Annotated

import typer
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer, for_programs, is_for_programs
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.terminal import ProjectFolder, StackName

StackOption = Annotated[
    str | None,
    typer.Option(help="Stack name. Default: the one of the cluster in use, or the only one that fits."),
]
Ref = Annotated[str, typer.Argument(help="Git ref: a branch, tag or commit.")]


def validate(
    stacks: Annotated[list[str] | None, typer.Argument(help="Stack names. Default: all stacks of the project.")] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Check stack files and print every problem with its place and fix. Nothing is rendered.

    [dim]tenancy stack validate prod-aws[/dim]
    """
    from gpu_tenancy.model.load import load
    from gpu_tenancy.model.project import project_folder, read_stack, stack_names

    with terminal.errors():
        folder = project_folder(project)
        stacks = stacks or stack_names(folder)
    valid: list[str] = []
    for stack in stacks:
        with suppress(typer.Exit), terminal.errors(stack):
            load(read_stack(stack, folder))
            valid.append(stack)
    lines = [Text.assemble(("✓", "green"), f" {stack}") for stack in valid]
    answer(output, [{"stack": stack, "valid": stack in valid} for stack in stacks], *lines, names=valid)
    if len(valid) < len(stacks):
        raise typer.Exit(terminal.STACK_WRONG)


def explain(
    team: Annotated[str, typer.Argument(help="Team name.")],
    stack: StackOption = None,
    project: ProjectFolder = None,
    *,
    output: Output = None,
) -> None:
    """Show which lines of the stack file set a team's queue, quotas and container limits.

    [dim]tenancy stack explain ml-research --stack local[/dim]
    """
    with terminal.errors(stack or ""):
        from gpu_tenancy.base.problems import nearest
        from gpu_tenancy.inspect.in_use import Place, default_stack
        from gpu_tenancy.model.load import load
        from gpu_tenancy.model.outlook.explain import explain as reasons_of
        from gpu_tenancy.model.plan.shares import Tree
        from gpu_tenancy.model.project import project_folder, read_stack

        folder = project_folder(project)
        stack = stack or default_stack(team, folder, Place())
        source = read_stack(stack, folder)
        tree = Tree(load(source))
        if team not in tree.stack.teams:
            raise ConsoleError(f"stack {stack}: unknown team '{team}'", nearest(team, tree.stack.teams))
        rows = [
            (reason, [f"{source.file}:{source.line(path)} {'.'.join(map(str, path))}" for path in reason.paths])
            for reason in reasons_of(tree, team)
        ]
        fields = [
            {
                "object": reason.object,
                "field": reason.field,
                "value": reason.value,
                "reason": reason.because,
                "sources": where,
            }
            for reason, where in rows
        ]
        table = terminal.table("object", "field", "value#", "reason~", "source~", drop=("source",))
        shown = ""
        for reason, where in rows:
            name = "" if reason.object == shown else reason.object
            shown = reason.object
            table.add_row(name, reason.field, reason.value, reason.because, "; ".join(where[:2]))
        answer(output, fields, table)


def diff(
    stack: StackName,
    before: Ref,
    after: Annotated[str | None, typer.Argument(help="Second git ref. Default: the working tree.")] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Compare a stack between two git refs: guarantees, costs and resources.

    [dim]tenancy stack diff prod-aws v1.4 main[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.model.project import project_folder
        from gpu_tenancy.review import text
        from gpu_tenancy.review.build import as_data, between

        terminal.progress(f"rendering {stack} at {before} and {after or 'in the working tree'}")
        review = between(stack, before, after, project_folder(project))
        if is_for_programs(output):
            for_programs(output, as_data(review), (change.place for change in review.changes))
            return
        text.show_verdict(terminal.out, review)
        terminal.out.print()
        text.show_changes(terminal.out, review.changes)
        if review.changes:
            terminal.out.print()
        was = review.comparison.before if review.comparison else None
        terminal.out.print(text.promises(review.now, was), highlight=False)
