"""The command `preview`: resources, changes, policy violations, guarantees and costs of a stack."""

import traceback
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, for_programs, is_for_programs
from gpu_tenancy.base.errors import ConsoleError, UsageError
from gpu_tenancy.base.output import Unbounded, write_text
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.cli.commands.options import asking
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy import engine
    from gpu_tenancy.cluster import cluster_queues, contexts, reading
    from gpu_tenancy.embedded import platform
    from gpu_tenancy.engine import details, files
    from gpu_tenancy.engine import project as rendering
    from gpu_tenancy.explain import proposal, state_file
    from gpu_tenancy.local import show
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.model.catalogue import operators as catalogue_operators
    from gpu_tenancy.model.catalogue import releases as catalogue_releases
    from gpu_tenancy.model.checks import operators
    from gpu_tenancy.model.plan import environment, shares, signals
    from gpu_tenancy.model.spec import cluster as spec_cluster
    from gpu_tenancy.review import build, comment, page, verdict
    from gpu_tenancy.review import review as reviews
    from gpu_tenancy.review import text as review_text


def preview(
    stack: StackName,
    *,
    base: Annotated[
        str | None, typer.Option(metavar="REF", help="Git ref (branch, tag or commit) to compare with.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policy pack to evaluate: `workloads`, `clouds`, FOLDER or FOLDER=CONFIG.json. Can be repeated."
        ),
    ] = None,
    pulumi_preview: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Output of `pulumi preview --json`, to show the changes against the deployed resources.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Read the cluster, and show which workloads the change preempts or admits.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same from a file of `tenancy cluster snapshot`, without a cluster."),
    ] = None,
    used: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Output of `tenancy cost -o json`, to show what teams used beside their guarantees."
        ),
    ] = None,
    place: terminal.Place,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report (HTML, Markdown, JSON), the objects (YAML) and the exit code."),
    ] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Preview what a stack will create, without credentials, a cluster or the Pulumi CLI.

    Exit code 3 if the verdict is Blocked: a mandatory policy is violated, Pulumi or the cloud refuses the change since
    --base REF, it restarts nodes of a protected pool, or it removes a team that has claims. Policies are evaluated as
    at REF, too.

    [dim]tenancy preview prod-aws --base origin/main --policy workloads --policy clouds --out out/prod-aws[/dim]
    """
    with _recorded(out), terminal.errors(stack), engine.relaxed_collector():
        folder = projects.project_folder(project)
        terminal.progress(f"rendering {stack}")
        if live and state:
            raise UsageError("--live cannot be combined with --state", "remove one of them")
        running = _read(place) if live else state_file.from_file(state) if state else None
        month = build.read_used(used, stack) if used else None
        stack_preview = rendering.preview(stack, folder, onto=_onto(place) if live else None)
        if base:
            terminal.progress(f"rendering {stack} at {base}")
        seen = build.review(
            stack_preview, folder, ref=base, policies=policy or (), real=pulumi_preview, live=running, used=month
        )
        written = _write(stack_preview, seen, out) if out else ""
        if is_for_programs(output):
            names = ("/".join(filter(None, (one.kind, one.namespace, one.name))) for one in stack_preview.objects)
            for_programs(output, build.as_data(seen), names)
        else:
            _show(stack_preview, seen, written)
        if seen.verdict.title == verdict.BLOCKED:
            raise typer.Exit(terminal.ExitCode.BLOCKED)


def _read(place: terminal.Place) -> "reading.State":
    """The workloads of a running cluster, and what decides about them."""
    with asking(place) as cluster, terminal.reported_if_slow("reading the cluster"):
        state = cluster_queues.read_settled(cluster, proposal.KINDS)
        # The embedded platform has its own version, whatever the stack's.
        return replace(state, kubernetes="" if _onto(place) else cluster.server_version())


def _onto(place: terminal.Place) -> Path | None:
    """The kubeconfig of the embedded platform, if that is the cluster: a stack for any cloud runs there."""
    return platform.Platform().kubeconfig if contexts.resolved(place).embedded else None


def snapshot(
    *, out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")], place: terminal.Place
) -> None:
    """Write what decides about workloads of a cluster into a file, for `tenancy preview --state` in a pipeline.

    It has queues, quotas, nodes and what running and pending workloads request, with their names; no commands, images,
    environment variables or values of Secrets.

    [dim]tenancy cluster snapshot --out prod.json[/dim]
    """
    seen = _read(place)
    for missing in seen.refused("ClusterQueue", "LocalQueue", "Workload"):
        raise ConsoleError(missing.text, "use the kubeconfig of an administrator or of an auditor")
    state_file.to_file(seen, out)
    for missing in seen.refused():
        terminal.err.print(missing.text, highlight=False)
    terminal.out.print(f"{len(seen.of('Workload'))} workloads in {out}", highlight=False)


@contextmanager
def _recorded(folder: Path | None) -> Generator[None]:
    """Writes how a preview ends, for `tenancy stack comment`: `exit-code`, and its output."""
    if folder is None:
        yield
        return
    printed = {"report.txt": terminal.out, "errors.txt": terminal.err}
    for console in printed.values():
        console.record = True
    for stale in (*folder.glob("report.*"), folder / "errors.txt"):
        stale.unlink(missing_ok=True)
    code, crash = 0, ""
    try:
        yield
    except typer.Exit as end:
        code = end.exit_code
        raise
    except Exception:
        code, crash = terminal.ExitCode.ERROR, traceback.format_exc()
        raise
    finally:
        texts = {name: console.export_text() for name, console in printed.items()}
        for console in printed.values():
            console.record = False
        texts["errors.txt"] += crash
        with suppress(OSError) if code else nullcontext():  # A folder that cannot be written is reported once.
            for name, text in {**texts, "exit-code": f"{code}\n"}.items():
                if text:
                    write_text(folder / name, text)


def _show(stack_preview: "rendering.Preview", seen: "reviews.Review", written: str) -> None:
    """Prints the verdict; the changes, or the tree without a comparison; then guarantees, pools and policies."""
    out = terminal.out
    review_text.show_verdict(out, seen)
    out.print()
    changes = seen.real.changes if seen.real else seen.changes
    if seen.comparison or seen.real:
        review_text.show_changes(out, changes)
        if not changes:
            out.print("no changes")
    else:
        out.print(Unbounded(details.tree(stack_preview.rendered)))
    if seen.effect:
        out.print()
        review_text.show_work(out, seen.effect)
    out.print()
    out.print(review_text.promises(seen.now, seen.comparison.before if seen.comparison else None), highlight=False)
    review_text.show_hosts(out, seen.now)
    out.print()
    out.print(show.pools(stack_preview.stack))
    review_text.show_bill(out, seen.now.bill)
    if notes := _aging(stack_preview):
        out.print(f"[dim]old: {escape('; '.join(notes))}[/dim]", highlight=False)
    if starts := signals.cold_starts(environment.Environment(stack_preview.stack)):
        waits = f"from 0 replicas, the first request waits for a start: {', '.join(starts)}, and for a node"
        out.print(f"[dim]{escape(waits)}[/dim]", highlight=False)
    for warning in (*_chart_notes(stack_preview), *seen.now.warnings):
        out.print(f"[yellow]{escape(warning)}[/yellow]", highlight=False)
    if unchecked := operators.unknown_architectures(shares.Tree(stack_preview.stack)):
        out.print(f"[dim]not checked for arm64: {escape('; '.join(unchecked))}[/dim]", highlight=False)
    if written:
        out.print(f"\n{escape(written)}", highlight=False)
    if seen.rules is not None:
        out.print()
        review_text.show_rules(out, seen.rules)


def _aging(stack_preview: "rendering.Preview") -> list[str]:
    """What the stack uses of the catalogue that is older than half a year, where it creates nodes."""
    cluster = stack_preview.stack.cluster
    if not cluster.NODES_MADE:
        return []
    charts = [release.name for release in files.helm_releases(stack_preview.rendered)]
    return catalogue_releases.aging(spec_cluster.service_of(cluster), charts, datetime.now(UTC).date())


def _chart_notes(stack_preview: "rendering.Preview") -> list[str]:
    """Untested versions and advisories of the operators that the stack installs."""
    known = catalogue_operators.charts()
    releases = [release for release in files.helm_releases(stack_preview.rendered) if release.name in known]
    return [note for release in releases for note in known[release.name].notes(release.name, release.version)]


def _write(stack_preview: "rendering.Preview", seen: "reviews.Review", out: Path) -> str:
    """Writes the report, the objects and the Helm values; returns the lines that name the files."""
    objects = files.write(stack_preview.objects, out / "objects")
    releases = files.write_releases(stack_preview.rendered, out / "releases")
    texts = {"report.html": page.page(seen), "report.md": comment.comment(seen), "report.json": build.as_json(seen)}
    for name, content in texts.items():
        write_text(out / name, content)
    lines = [f"{len(objects)} objects in {out / 'objects'}"]
    lines += [f"{len(releases)} Helm releases (values) in {out / 'releases'}"] if releases else []
    return "\n".join([*lines, f"report in {out / 'report.html'} (also report.md and report.json)"])
