"""Commands for pipelines: manifests for GitOps tools, the stacks that a change affects, pull request comments."""

import subprocess
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form, Output, for_programs
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.base.writing import write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_tenancy.gitops.manifests import Files
    from gpu_tenancy.gitops.pieces import Piece


class Target(StrEnum):
    """The tool that applies the manifests."""

    ARGOCD = "argocd"
    FLUX = "flux"
    PLAIN = "plain"


def render(
    stack: StackName,
    out: Annotated[
        Path, typer.Option(help="Folder to write. Stale generated files are deleted; other files are kept.")
    ],
    *,
    target: Annotated[Target, typer.Option("--for", help="Tool that applies the manifests.")] = Target.PLAIN,
    repo: Annotated[str, typer.Option(help="argocd: URL of the git repository that has the folder.")] = "",
    revision: Annotated[str, typer.Option(help="argocd: branch, tag or commit of the repository.")] = "main",
    path: Annotated[
        str,
        typer.Option(
            help="argocd, flux: path of the folder in its repository. Default: the path of OUT in this repository."
        ),
    ] = "",
    source: Annotated[str, typer.Option(help="flux: name of the GitRepository in flux-system.")] = "flux-system",
    project: ProjectFolder = None,
) -> None:
    """Write a stack as manifests for Argo CD, Flux or kubectl, in dependency order.

    Secrets are never written. Cloud resources stay with Pulumi and are listed.

    [dim]tenancy stack render prod-aws --out clusters/prod --for flux[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.engine import project as projects
        from gpu_tenancy.engine.files import write_texts
        from gpu_tenancy.gitops.pieces import pieces, refusals, stays
        from gpu_tenancy.model.project import project_folder

        if target is Target.ARGOCD and not repo:
            raise ConsoleError("--for argocd requires --repo", "add --repo https://git.example.com/it.git")
        rendered = projects.preview(stack, project_folder(project)).rendered
        if refused := refusals(rendered):
            terminal.problems(refused, f"the manifests of stack {stack}")
            raise typer.Exit(terminal.STACK_WRONG)
        parts = pieces(rendered)
        written = write_texts(_files(stack, parts, target, out, (repo, revision, path, source)), out)
        releases = sum(1 for part in parts if part.release)
        waves = len({part.wave for part in parts})
        summary = f"{len(parts) - releases} objects and {releases} Helm releases in {waves} waves"
        terminal.out.print(f"{summary}: {len(written)} files in {escape(str(out))}", highlight=False)
        if cloud := stays(rendered):
            terminal.out.print(f"{len(cloud)} cloud resources stay with Pulumi:", highlight=False)
            for kind, name in cloud:
                terminal.out.print(f"  {escape(kind)} {escape(name)}", highlight=False)


def _files(
    stack: str, parts: "Sequence[Piece]", target: Target, out: Path, options: tuple[str, str, str, str]
) -> "Files":
    from gpu_tenancy.gitops.argocd import Repository, argocd
    from gpu_tenancy.gitops.flux import flux
    from gpu_tenancy.gitops.manifests import plain

    repo, revision, path, source = options
    match target:
        case Target.ARGOCD:
            return argocd(stack, parts, Repository(repo, path or _place(out), revision))
        case Target.FLUX:
            return flux(stack, parts, path or _place(out), source)
        case Target.PLAIN:
            return plain(parts)


def _place(out: Path) -> str:
    """The path of a folder in its git repository.

    Raises:
        ConsoleError: git is not installed, or the folder is not in a git repository.
    """
    folder = out.resolve()
    existing = next(place for place in (folder, *folder.parents) if place.is_dir())
    try:
        done = subprocess.run(
            ["git", "-C", str(existing), "rev-parse", "--show-toplevel"], check=False, capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise ConsoleError(f"{out}: path in the git repository unknown: git is not on the PATH", _FIX) from error
    if done.returncode:
        raise ConsoleError(f"{out}: path in the git repository unknown: not in a git repository", _FIX)
    return folder.relative_to(Path(done.stdout.strip()).resolve()).as_posix()


_FIX = "specify it, such as --path clusters/prod"


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
