"""Commands for pipelines: plain manifests, the stacks that a change affects, pull request comments."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form, Output, for_programs
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.base.writing import write_text


def render(
    stack: StackName,
    out: Annotated[
        Path, typer.Option(help="Folder to write. Stale generated files are deleted; other files are kept.")
    ],
    project: ProjectFolder = None,
) -> None:
    """Write a stack as plain manifests, in folders that Argo CD, Flux and kubectl can apply in order.

    Secrets are never written. Cloud resources stay with Pulumi and are listed.

    [dim]tenancy stack render prod-aws --out clusters/prod[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.engine import project as projects
        from gpu_tenancy.engine.files import write_texts
        from gpu_tenancy.gitops.manifests import plain
        from gpu_tenancy.gitops.pieces import pieces, refusals, stays
        from gpu_tenancy.model.project import project_folder

        rendered = projects.preview(stack, project_folder(project)).rendered
        if refused := refusals(rendered):
            terminal.problems(refused, f"the manifests of stack {stack}")
            raise typer.Exit(terminal.STACK_WRONG)
        parts = pieces(rendered)
        written = write_texts(plain(parts), out)
        releases = sum(1 for part in parts if part.release)
        waves = len({part.wave for part in parts})
        summary = f"{len(parts) - releases} objects and {releases} Helm releases in {waves} waves"
        terminal.out.print(f"{summary}: {len(written)} files in {escape(str(out))}", highlight=False)
        if cloud := stays(rendered):
            terminal.out.print(f"{len(cloud)} cloud resources stay with Pulumi:", highlight=False)
            for kind, name in cloud:
                terminal.out.print(f"  {escape(kind)} {escape(name)}", highlight=False)


def changed(
    base: Annotated[str, typer.Option(help="Git ref (branch, tag or commit) to compare with.")],
    among: Annotated[
        str | None, typer.Option(help="List these stacks only: names separated by spaces or commas, or a JSON list.")
    ] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """List the stacks that a change affects: by their own file, or all if the program, catalogue or policies changed.

    Prints one name per line; `-o json` prints a list on one line, for the matrix of a pipeline. Reasons and removed
    stacks are printed on standard error.

    [dim]tenancy stack changed --base origin/main[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.gitops.changed import changed as find
        from gpu_tenancy.gitops.changed import listed
        from gpu_tenancy.model.project import project_folder

        affected = find(project_folder(project), base)
        only = None if among is None else frozenset(listed(among))
        names = [name for name in affected.stacks if only is None or name in only]
        for name in names:
            terminal.report(f"{name}: {'; '.join(affected.stacks[name])}")
        for name in affected.gone:
            terminal.report(f"{name}: stack file removed; delete its resources with `pulumi destroy -s {name}`")
        for_programs(output or Form.NAME, names, names)


def comment(
    reports: Annotated[
        Path, typer.Argument(help="Folder with the folder that `tenancy preview STACK --out` wrote for each stack.")
    ],
    out: Annotated[Path, typer.Option(help="File to write.")],
    limit: Annotated[int, typer.Option(help="Maximum length of the comment, in characters.")] = 65_536,
) -> None:
    """Write one pull request comment from the reports of several stacks. The exit code is the most severe of theirs.

    [dim]tenancy stack comment out --out out/comment.md[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.gitops.comment import comment, read, worst

        previews = read(reports)
        write_text(out, comment(previews, limit))
        if code := worst(previews):
            raise typer.Exit(code)
