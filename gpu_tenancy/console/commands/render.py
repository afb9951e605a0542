"""Commands for pipelines: a tree for Argo CD or Flux, the stacks that a change concerns, one comment of all reports."""

import json
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gpu_tenancy.console import terminal
from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.terminal import ProjectFolder, StackName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_tenancy.console.gitops.manifests import Files
    from gpu_tenancy.console.gitops.pieces import Piece


class Target(StrEnum):
    """Who applies a tree."""

    ARGOCD = "argocd"
    FLUX = "flux"
    PLAIN = "plain"


def register(app: typer.Typer) -> None:
    """Adds these commands."""
    app.command()(render)
    app.command()(changed)
    app.command()(comment)


def render(  # noqa: PLR0913 - each is an option
    stack: StackName,
    out: Annotated[Path, typer.Option(help="Folder of the tree; what an earlier run wrote there and is gone, goes.")],
    *,
    target: Annotated[Target, typer.Option("--for", help="Who applies it.")] = Target.PLAIN,
    repo: Annotated[str, typer.Option(help="argocd: address of the repository in which the tree will be.")] = "",
    revision: Annotated[str, typer.Option(help="argocd: branch, tag or commit of it.")] = "main",
    path: Annotated[
        str, typer.Option(help="argocd, flux: the tree's folder in the repository; left out, where OUT is in this one.")
    ] = "",
    source: Annotated[str, typer.Option(help="flux: the GitRepository in flux-system.")] = "flux-system",
    project: ProjectFolder = None,
) -> None:
    """A tree of files that Argo CD, Flux or kubectl applies, in an order in which each finds what it needs.

    Nothing secret is written. Resources of a cloud stay with Pulumi, and are named.

    [dim]tenancy render prod-aws --out clusters/prod --for flux[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.console import project as projects  # noqa: PLC0415 - `--help` can do without Pulumi's SDK
        from gpu_tenancy.console.gitops.pieces import pieces, refusals, stays  # noqa: PLC0415
        from gpu_tenancy.console.offline.files import write_texts  # noqa: PLC0415
        from gpu_tenancy.console.show import problems  # noqa: PLC0415

        if target is Target.ARGOCD and not repo:
            raise ConsoleError("Argo CD must know where the tree will be", "add --repo https://git.example.com/it.git")
        found = projects.preview(stack, projects.project_folder(project)).rendered
        if refused := refusals(found):
            problems(terminal.err, refused, f"a tree of stack {stack}")
            raise typer.Exit(terminal.STACK_WRONG)
        parts = pieces(found)
        written = write_texts(_files(stack, parts, target, out, (repo, revision, path, source)), out)
        releases = sum(1 for one in parts if one.release)
        waves = len({one.wave for one in parts})
        told = f"{len(parts) - releases} objects and {releases} Helm releases in {waves} waves"
        terminal.out.print(f"{told}: {len(written)} files in {escape(str(out))}", highlight=False)
        if cloud := stays(found):
            terminal.out.print(f"{len(cloud)} resources of the cloud stay with Pulumi:", highlight=False)
            for kind, name in cloud:
                terminal.out.print(f"  {escape(kind)} {escape(name)}", highlight=False)


def _files(
    stack: str, parts: "Sequence[Piece]", target: Target, out: Path, words: tuple[str, str, str, str]
) -> "Files":
    from gpu_tenancy.console.gitops.argocd import Repository, argocd  # noqa: PLC0415 - as above
    from gpu_tenancy.console.gitops.flux import flux  # noqa: PLC0415
    from gpu_tenancy.console.gitops.plain import plain  # noqa: PLC0415

    repo, revision, path, source = words
    match target:
        case Target.ARGOCD:
            return argocd(stack, parts, Repository(repo, path or _place(out), revision))
        case Target.FLUX:
            return flux(stack, parts, path or _place(out), source)
        case Target.PLAIN:
            return plain(parts)


def _place(out: Path) -> str:
    """Where a folder is in its git repository.

    Raises:
        ConsoleError: it is in none.
    """
    there = out.resolve()
    nearest = next(each for each in (there, *there.parents) if each.is_dir())
    try:
        done = subprocess.run(
            ["git", "-C", str(nearest), "rev-parse", "--show-toplevel"], check=False, capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise ConsoleError("there is no git on the PATH, so nobody knows where the tree will be", _SAY) from error
    if done.returncode:
        raise ConsoleError(f"{out} is in no git repository, so nobody knows where the tree will be", _SAY)
    return there.relative_to(Path(done.stdout.strip()).resolve()).as_posix()


_SAY = "add --path clusters/prod"


def changed(
    base: Annotated[str, typer.Option(help="A git ref: a branch, tag or commit.")],
    among: Annotated[
        str | None, typer.Option(help="Only these: names between spaces or commas, or a list of JSON.")
    ] = None,
    project: ProjectFolder = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="A list of names, for a pipeline's matrix.")] = False,
) -> None:
    """The stacks that differ from a git ref: by their own file, or all where program, catalogue or packs changed.

    Names alone go to the standard output, one a line; why, and which stacks are gone, beside it.

    [dim]tenancy changed --base origin/main[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.console.gitops.changed import changed as find  # noqa: PLC0415 - as above
        from gpu_tenancy.console.gitops.changed import listed  # noqa: PLC0415
        from gpu_tenancy.console.project import project_folder  # noqa: PLC0415

        found = find(project_folder(project), base)
        only = None if among is None else frozenset(listed(among))
        names = [name for name in found.stacks if only is None or name in only]
        for name in names:
            terminal.report(f"{escape(name)}: {escape('; '.join(found.stacks[name]))}")
        for name in found.gone:
            terminal.report(
                f"{escape(name)} has no file any more; `pulumi destroy -s {escape(name)}` ends what it made"
            )
        sys.stdout.write(json.dumps(names) + "\n" if as_json else "".join(f"{name}\n" for name in names))


def comment(
    reports: Annotated[Path, typer.Argument(help="Folder of one folder a stack: exit-code, report.md, errors.txt.")],
    out: Annotated[Path, typer.Option(help="File to write.")],
    limit: Annotated[int, typer.Option(help="Characters that it may have.")] = 65_536,
) -> None:
    """One comment for a pull request, of the reports of several stacks; ends with the gravest of their exit codes.

    [dim]tenancy comment out --out out/comment.md[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.console.gitops.joined import joined, read, worst  # noqa: PLC0415 - as above

        said = read(reports)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(joined(said, limit), encoding="utf-8")
        if code := worst(said):
            raise typer.Exit(code)
