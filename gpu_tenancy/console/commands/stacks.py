"""Commands about stack files: is it right, where does a number come from, what differs between two refs."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from gpu_tenancy.console import terminal
from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.terminal import ProjectFolder, StackName

Ref = Annotated[str, typer.Argument(help="A git ref: a branch, tag or commit.")]


def register(app: typer.Typer) -> None:
    """Adds these commands."""
    app.command()(validate)
    app.command()(explain)
    app.command()(diff)


def validate(
    stacks: Annotated[list[str] | None, typer.Argument(help="Stacks; left out, all that have a file.")] = None,
    project: ProjectFolder = None,
) -> None:
    """Whether stacks are right: every mistake with its place and how to mend it. Nothing is rendered.

    [dim]tenancy validate prod-aws[/dim]
    """
    from gpu_tenancy.console.project import project_folder, read_stack, stack_names  # noqa: PLC0415 - `--help` can do without the model
    from gpu_tenancy.model.load import load  # noqa: PLC0415 - as above

    with terminal.errors():
        folder = project_folder(project)
        stacks = stacks or stack_names(folder)
    wrong = False
    for stack in stacks:
        try:
            with terminal.errors(stack):
                load(read_stack(stack, folder))
        except typer.Exit:
            wrong = True
        else:
            terminal.out.print(f"[green]✓[/green] {stack}", highlight=False)
    if wrong:
        raise typer.Exit(terminal.STACK_WRONG)


def explain(
    team: Annotated[str, typer.Argument(help="A team of a stack.")],
    stack: Annotated[str | None, typer.Option(help="The stack; left out, the only one that has the team.")] = None,
    project: ProjectFolder = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For other programs.")] = False,
) -> None:
    """From which line of which file each number of a team's queue, quotas and container bounds comes.

    [dim]tenancy explain ml-research --stack local[/dim]
    """
    with terminal.errors(stack or ""):
        from gpu_tenancy.console.project import project_folder, read_stack  # noqa: PLC0415 - as above
        from gpu_tenancy.model.load import load  # noqa: PLC0415 - as above
        from gpu_tenancy.model.outlook.explain import explain as reasons_of  # noqa: PLC0415 - as above
        from gpu_tenancy.model.plan.shares import Tree  # noqa: PLC0415 - as above
        from gpu_tenancy.model.problems import nearest  # noqa: PLC0415 - as above

        folder = project_folder(project)
        source = read_stack(stack or _stack_of(team, folder), folder)
        tree = Tree(load(source))
        if team not in tree.stack.teams:
            raise ConsoleError(f"stack {stack} has no team {team}", nearest(team, tree.stack.teams))
        rows = [
            (reason, [f"{source.file}:{source.line(path)} {'.'.join(map(str, path))}" for path in reason.paths])
            for reason in reasons_of(tree, team)
        ]
        if as_json:
            found = [asdict(reason) | {"paths": None, "where": where} for reason, where in rows]
            kept = [{key: value for key, value in each.items() if key != "paths"} for each in found]
            sys.stdout.write(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
            return
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("object", "field", "value", "because", "where"):
            table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
        shown = ""
        for reason, where in rows:
            called = "" if reason.object == shown else reason.object
            shown = reason.object
            table.add_row(called, reason.field, reason.value, escape(reason.because), "; ".join(where[:2]))
        terminal.out.print(table, highlight=False)


def _stack_of(team: str, folder: Path) -> str:
    """The only stack that has a team.

    Raises:
        ConsoleError: there is none, or more than one.
    """
    from gpu_tenancy.console.project import read_stack, stack_names  # noqa: PLC0415 - as above

    found = [name for name in stack_names(folder) if team in (read_stack(name, folder).sections.get("teams") or {})]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConsoleError(f"no stack has a team {team}", "name one that `tenancy validate` lists, with --stack")
    raise ConsoleError(f"team {team} is in {len(found)} stacks", f"say which: --stack {' or --stack '.join(found)}")


def diff(
    stack: StackName,
    before: Ref,
    after: Annotated[str | None, typer.Argument(help="Another ref; left out, the files as they are now.")] = None,
    project: ProjectFolder = None,
) -> None:
    """What differs between a stack at two git refs: promises, costs, and each resource.

    [dim]tenancy diff prod-aws v1.4 main[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.console.project import project_folder  # noqa: PLC0415 - as above
        from gpu_tenancy.console.review import text  # noqa: PLC0415 - as above
        from gpu_tenancy.console.review.build import between  # noqa: PLC0415 - as above

        terminal.progress(f"rendering {stack} at {before} and {after or 'as it is'}")
        found = between(stack, before, after, project_folder(project))
        text.show_verdict(terminal.out, found)
        terminal.out.print()
        text.show_changes(terminal.out, found.changes)
        if found.changes:
            terminal.out.print()
        was = found.comparison.before if found.comparison else None
        terminal.out.print(text.promises(found.now, was), highlight=False)
