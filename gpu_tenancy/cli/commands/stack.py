"""`stack`: create a project; validate, explain, compare, change and publish stack files."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form, Output, answer, for_programs
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import command, write_text
from gpu_tenancy.base.problems import unknown
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.base import installing
    from gpu_tenancy.cli import starting
    from gpu_tenancy.cluster import contexts
    from gpu_tenancy.engine import files
    from gpu_tenancy.engine import project as rendering
    from gpu_tenancy.gitops import changed as gitops_changed
    from gpu_tenancy.gitops import comment as gitops_comment
    from gpu_tenancy.gitops import manifests
    from gpu_tenancy.model import load, outlook
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.model.catalogue import clouds as catalogue_clouds
    from gpu_tenancy.model.outlook import explain as outlook_explain
    from gpu_tenancy.model.plan import shares


def validate(
    stacks: Annotated[list[str] | None, typer.Argument(help="Stack names. Default: all stacks of the project.")] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Check stack files and print every problem with its place and fix, and warnings. Nothing is rendered.

    [dim]tenancy stack validate prod-aws[/dim]
    """
    folder = projects.project_folder(project)
    projects.project_name(folder)
    stacks = stacks or projects.stack_names(folder)
    valid: list[str] = []
    for stack in stacks:
        with suppress(typer.Exit), terminal.errors(stack):
            warnings = outlook.outlook(load.load(projects.read_stack(stack, folder))).warnings
            valid.append(stack)
            for warning in warnings:
                terminal.err.print(f"[yellow]{escape(f'{stack}: {warning}')}[/yellow]", highlight=False)
    lines = [Text.assemble(("✓", "green"), f" {stack}") for stack in valid]
    answer(output, [{"stack": stack, "valid": stack in valid} for stack in stacks], *lines, names=valid)
    if len(valid) < len(stacks):
        raise typer.Exit(terminal.ExitCode.ERROR)


def explain(
    team: Annotated[str, typer.Argument(help="Team name.")],
    stack: options.StackOption = None,
    project: ProjectFolder = None,
    *,
    verbose: options.Verbose = False,
    output: Output = None,
) -> None:
    """Show which lines of the stack file set a team's queue, quotas and container limits; with -v, and why.

    [dim]tenancy stack explain ml-research --stack local[/dim]
    """
    with terminal.errors(stack or ""):
        folder = projects.project_folder(project)
        stack = stack or contexts.default_stack(team, folder, terminal.Place())
        source = projects.read_stack(stack, folder)
        tree = shares.Tree(load.load(source))
        if team not in tree.stack.teams:
            rule, fix = unknown("team", team, tree.stack.teams)
            raise ConsoleError(f"stack {stack}: {rule}", fix)
        heads = ("field", "value#~", "set by~", *(["reason~"] if verbose else []))
        table = terminal.table(*heads, title=str(source.file), drop=("set by",))
        fields: list[dict[str, object]] = []
        shown, counts = "", 0
        for reason in outlook_explain.explain(tree, team):
            where = [f"{source.file}:{source.line(path)} {'.'.join(map(str, path))}" for path in reason.paths]
            own = {"field": reason.field, "value": reason.value, "reason": reason.because}
            fields.append({"object": reason.object, **own, "sources": where})
            if reason.field.startswith("count/") and not verbose:
                counts += 1
                continue
            if reason.object != shown:
                table.add_row(Text(reason.object, style="bold"))
            shown = reason.object
            path = reason.paths[0] if reason.paths else ()
            key = f"line {source.line(path)} {'.'.join(map(str, path)).removeprefix(f'teams.{team}.')}" if path else ""
            table.add_row(f" {reason.field}", reason.value, key, *([reason.because] if verbose else []))
        more = [Text(f"-v shows the reasons, and {plural(counts, 'count')} of objects", style="dim")] if counts else []
        answer(output, fields, table, *more, names=dict.fromkeys(str(each["object"]) for each in fields))


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the new project, named as the project is to be called.")],
    cloud: Annotated[
        list[str] | None,
        typer.Option(help="Cloud of the stack, with its SDK: aws, azure or gcp. Repeat it for more SDKs."),
    ] = None,
    ci: Annotated[Literal["github", "gitlab"], typer.Option(help="Service that runs the pipelines.")] = "github",
) -> None:
    """Create a project: program, one commented stack, policy settings, workflows and a test.

    [dim]tenancy stack init my-platform --cloud aws[/dim]
    """
    clouds = tuple(cloud or ())
    for file in starting.start(folder, clouds=clouds, ci=ci):
        terminal.out.print(f"  {escape(str(file))}", highlight=False)
    terminal.out.print("\nnext:", highlight=False)
    for line in _next(folder, clouds):
        terminal.out.print(command(f"  {line}"), highlight=False)


def _next(folder: Path, clouds: tuple[str, ...]) -> Iterator[str]:
    """Commands that work as they stand, in this order."""
    for package in ("pulumi", *(catalogue_clouds.clouds()[cloud].package or "" for cloud in dict.fromkeys(clouds))):
        if find_spec(package.replace("-", "_")) is None:
            yield installing.install_command(package)
    tenancy = "tenancy" if which("tenancy") else shlex.quote(str(Path(sys.argv[0]).absolute()))
    yield f"cd {shlex.quote(str(folder))} && git init --quiet"
    yield f"{tenancy} preview dev --policy workloads --policy clouds --out out/dev"


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
        rendered = rendering.preview(stack, projects.project_folder(project)).rendered
        if refused := manifests.refusals(rendered):
            terminal.problems(refused, f"the manifests of stack {stack}")
            raise typer.Exit(terminal.ExitCode.ERROR)
        parts = manifests.pieces(rendered)
        written = files.write_texts(manifests.plain(parts), out)
        releases = sum(1 for part in parts if part.release)
        waves = len({part.wave for part in parts})
        summary = f"{len(parts) - releases} objects and {releases} Helm releases in {waves} waves"
        terminal.out.print(f"{summary}: {len(written)} files in {escape(str(out))}", highlight=False)
        if cloud := manifests.stays(rendered):
            terminal.out.print(f"{len(cloud)} cloud resources stay with Pulumi:", highlight=False)
            for kind, name in cloud:
                terminal.out.print(f"  {escape(kind)} {escape(name)}", highlight=False)


def changed(
    base: Annotated[str, typer.Option(help="Git ref (branch, tag or commit) to compare with.")],
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """List the stacks that a change affects: by their own file, or all if the program, catalogue or policies changed.

    Prints one name per line; `-o json` prints a list on one line, for the matrix of a pipeline. Reasons and removed
    stacks are printed on standard error.

    [dim]tenancy stack changed --base origin/main[/dim]
    """
    affected = gitops_changed.changed(projects.project_folder(project), base)
    names = list(affected.stacks)
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
) -> None:
    """Write one pull request comment from the reports of several stacks. The exit code is the most severe of theirs.

    [dim]tenancy stack comment out --out out/comment.md[/dim]
    """
    previews = gitops_comment.read(reports)
    write_text(out, gitops_comment.comment(previews))
    if code := gitops_comment.worst(previews):
        raise typer.Exit(code)
