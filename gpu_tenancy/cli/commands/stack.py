"""`stack`: create a project; validate, explain, compare, change and publish stack files."""

import shlex
import sys
from collections.abc import Iterator, Mapping
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
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.commands.options import asking
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.base import installing, problems
    from gpu_tenancy.cli import starting
    from gpu_tenancy.cluster import contexts, queues, reading
    from gpu_tenancy.engine import files
    from gpu_tenancy.engine import project as rendering
    from gpu_tenancy.gitops import changed as gitops_changed
    from gpu_tenancy.gitops import comment as gitops_comment
    from gpu_tenancy.gitops import manifests
    from gpu_tenancy.kube import client
    from gpu_tenancy.model import guarantees, load, outlook, spec
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.model import source as sources
    from gpu_tenancy.model.catalogue import clouds as catalogue_clouds
    from gpu_tenancy.model.outlook import explain as outlook_explain
    from gpu_tenancy.model.plan import shares
    from gpu_tenancy.review import text as review_text


def validate(
    stacks: Annotated[list[str] | None, typer.Argument(help="Stack names. Default: all stacks of the project.")] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Check stack files and print every problem with its place and fix. Nothing is rendered.

    [dim]tenancy stack validate prod-aws[/dim]
    """
    with terminal.errors():
        folder = projects.project_folder(project)
        stacks = stacks or projects.stack_names(folder)
    valid: list[str] = []
    for stack in stacks:
        with suppress(typer.Exit), terminal.errors(stack):
            load.load(projects.read_stack(stack, folder))
            valid.append(stack)
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
        stack = stack or contexts.default_stack(team, folder, contexts.Place())
        source = projects.read_stack(stack, folder)
        tree = shares.Tree(load.load(source))
        if team not in tree.stack.teams:
            raise ConsoleError(f"stack {stack}: unknown team '{team}'", nearest(team, tree.stack.teams))
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


def move(
    count: Annotated[int, typer.Argument(min=1, help="Number of guaranteed GPUs.")],
    flavor: Annotated[str, typer.Argument(help="Flavor of the GPUs, such as h100.")],
    *,
    giver: Annotated[str, typer.Option("--from", help="Team that gives them.")],
    taker: Annotated[str, typer.Option("--to", help="Team that gets them.")],
    stack: options.StackOption = None,
    project: ProjectFolder = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    embedded: options.Embedded = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the change, and change no file.")] = False,
) -> None:
    """Move guaranteed GPUs from a team to another in the stack file. Comments and layout stay.

    It prints what each team is promised then, and how to deploy the change without preemption. With a kubeconfig, a
    context or --embedded, it also reads what the team uses that gives them.

    [dim]tenancy stack move 4 a100 --from ml-research --to ml-experiments --stack local[/dim]
    """
    with terminal.errors(stack or ""):
        folder = projects.project_folder(project)
        stack = stack or contexts.default_stack(giver, folder, contexts.Place(kubeconfig, context, embedded))
        source = projects.read_stack(stack, folder)
        before = outlook.outlook(load.load(source))
        changes = guarantees.moved(source, count, flavor, giver, taker)
        after = outlook.outlook(load.load(guarantees.with_changes(source, changes)))
        if not dry_run:
            _write(source, changes, stack, folder)
        for path, change in changes.items():
            place = f"{source.file_of(path)}:{source.line(path)} {'.'.join(map(str, path))}"
            terminal.out.print(f"{place}: {change.before} → {change.after}", highlight=False)
        terminal.out.print(review_text.promises(after, before), highlight=False)
        left = next(change.after for change in changes.values())
    used = None
    if kubeconfig or context or embedded:
        with asking(kubeconfig, context, embedded=embedded) as cluster:
            used = _used(cluster, giver, flavor)
    for line in _steps(giver, taker, flavor, left, used):
        terminal.out.print(line, highlight=False)


def _used(cluster: "client.Cluster", team: str, flavor: str) -> int:
    """The GPUs of a flavor that a team uses. Raises ConsoleError if the user cannot read a queue of the team."""
    queue = queues.Queues(reading.read(cluster, ("ClusterQueue",))).cluster_queues.get(team)
    if queue is None:
        problem = f"ClusterQueue {team} not found, or not readable by you"
        raise ConsoleError(problem, "use an administrator's kubeconfig")
    return sum(amount for (name, resource), amount in queue.usage.items() if name == flavor and is_extended(resource))


def _write(
    source: "sources.Source", changes: Mapping["problems.Path", "guarantees.Change"], stack: str, folder: Path
) -> None:
    """Writes the numbers; the file is as before if it would say anything else then."""
    shown = source.file_of(("teams",))
    file = folder / shown
    within = () if "teams" in source.files else ("config", f"{spec.NAMESPACE}:teams")
    numbers = {(*within, *path[1:]): change.after for path, change in changes.items()}
    text = file.read_bytes().decode()
    write_text(file, guarantees.with_numbers(text, numbers, shown))
    if projects.read_stack(stack, folder).sections != guarantees.with_changes(source, changes).sections:
        write_text(file, text)
        raise ConsoleError(f"{shown}: these numbers cannot be changed alone", "change them by hand")


def _steps(giver: str, taker: str, flavor: str, left: int, used: int | None) -> list[str]:
    """How to deploy the change without preemption."""
    if used is not None and used <= left:
        return [f"{giver} uses {used} {flavor} GPUs and keeps {left}: deploy it at once, nobody is preempted for it."]
    now = "" if used is None else f" It uses {used} now."
    return [
        f"Once deployed, what {giver} uses beyond {left} {flavor} GPUs is borrowed, and {taker} can reclaim it.{now}",
        "To preempt nobody:",
        f"  1. tenancy cluster hold {giver}",
        f"  2. wait until `tenancy usage {giver}` shows at most {left} {flavor} GPUs used",
        "  3. deploy the stack",
        f"  4. tenancy cluster release {giver}",
    ]


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the new project, named as the project is to be called.")],
    cloud: Annotated[
        list[str] | None,
        typer.Option(help="Cloud of the stack, with its SDK: aws, azure or gcp. Repeat it for more SDKs."),
    ] = None,
    registry: Annotated[
        str, typer.Option(help="Registry of your images: its host, with the first part of the path if any.")
    ] = "registry.example.com",
    ci: Annotated[Literal["github", "gitlab"], typer.Option(help="Service that runs the pipelines.")] = "github",
) -> None:
    """Create a project: program, one commented stack, policy settings, workflows and a test.

    [dim]tenancy stack init my-platform --cloud aws --registry ghcr.io/example[/dim]
    """
    with terminal.errors():
        clouds = tuple(cloud or ())
        for file in starting.start(folder, clouds=clouds, registry=registry, ci=ci):
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
        affected = gitops_changed.changed(projects.project_folder(project), base)
        only = None if among is None else frozenset(gitops_changed.listed(among))
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
        previews = gitops_comment.read(reports)
        write_text(out, gitops_comment.comment(previews, limit))
        if code := gitops_comment.worst(previews):
            raise typer.Exit(code)
