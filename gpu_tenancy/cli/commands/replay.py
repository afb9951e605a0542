"""The command `replay`: recorded jobs under a stack's queues."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, for_programs, is_for_programs
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.quantity import seconds
from gpu_tenancy.base.terminal import ProjectFolder, StackName

if TYPE_CHECKING:
    from gpu_tenancy.model.plan.shares import Tree
    from gpu_tenancy.simulation.records import JobRecord


def replay(
    stack: StackName,
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Recorded jobs: JSON lines or CSV with `at`, `duration`, `team`, `gpus`, `pods`, `flavor`, `cpu`,"
            " `memory`, `priority`; the output of `kubectl get workloads -A -o json`; or the CSV file of Alibaba's GPU"
            " cluster of 2023.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Instead of a file: the Jobs of a month that this Prometheus has seen."),
    ] = None,
    month: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="Month in UTC, with --prometheus. Default: last month.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="REF", help="Also play the stack at this git ref: who gains, who loses.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How often jobs save their progress, such as 30m. Default: a job that is preempted starts from the"
            " beginning.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for `replay.html`, a page with curves.")] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Play recorded jobs under a stack's queues: who waits how long, who is preempted, and what is lost.

    [dim]tenancy replay prod-aws --from october.jsonl --against origin/main --out out/prod-aws[/dim]
    """
    with terminal.errors(stack):
        from gpu_tenancy.model.load import load
        from gpu_tenancy.model.plan.shares import Tree
        from gpu_tenancy.model.project import project_folder, read_stack
        from gpu_tenancy.simulation.outcome import compare
        from gpu_tenancy.simulation.records import Trace, TraceError
        from gpu_tenancy.simulation.replay import replay as play
        from gpu_tenancy.simulation.scenes import unmodelled_of
        from gpu_tenancy.whatif.page import replay_page
        from gpu_tenancy.whatif.replay import Replayed, replayed_data
        from gpu_tenancy.whatif.show import show_replay

        folder = project_folder(project)
        every = None if checkpoint is None else seconds("--checkpoint", checkpoint)
        before = None if against is None else _at(stack, folder, against)
        tree = Tree(load(read_stack(stack, folder)))
        trace, name, missing = _jobs(tree, source, prometheus, month)
        try:
            terminal.progress(f"playing {name} on {stack}")
            outcome = play(tree, trace, checkpoint=every)
            left_out = {**missing, **(trace.left_out if isinstance(trace, Trace) else {})}
            comparison = None
            if before is not None and against is not None:
                terminal.progress(f"playing {name} on {stack} at {against}")
                comparison = compare(against, play(before, trace, checkpoint=every), outcome)
        except TraceError as error:
            raise ConsoleError(error.what, error.fix) from error
        if not outcome.jobs:
            reasons = "; ".join({**left_out, **outcome.left_out}) or "the file is empty"
            raise ConsoleError(
                f"{f'--from: {source}' if source else name}: no job can be played: {reasons}",
                "use another file or month, or another stack",
            )
        left = unmodelled_of(tree)
        replayed = Replayed(stack, name, outcome, left_out, tuple(left), comparison, tuple(tree.stack.teams))
        if is_for_programs(output):
            for_programs(output, replayed_data(replayed), outcome.teams)
        else:
            show_replay(terminal.out, replayed)
        if out:
            write_text(out / "replay.html", replay_page(replayed))
            if not is_for_programs(output):
                terminal.out.print(f"page {escape(str(out / 'replay.html'))}", highlight=False)


def _jobs(
    tree: "Tree", source: Path | None, prometheus: str | None, month: str | None
) -> "tuple[Iterable[JobRecord], str, Mapping[str, int]]":
    """The recorded jobs, where they come from, and how many are known to be left out, by the reason."""
    from gpu_tenancy.cost.prometheus import Prometheus, recorded_jobs
    from gpu_tenancy.cost.statement import Period
    from gpu_tenancy.simulation.records import Trace

    if (prometheus is None) == (source is None):
        raise ConsoleError("specify one of --from and --prometheus", "set --from to a file of recorded jobs")
    if source is not None:
        return Trace(source), source.name, {}
    period = Period.of(month, datetime.now(UTC))
    terminal.progress(f"asking {prometheus}")
    records, left_out = recorded_jobs(Prometheus(prometheus or ""), period, tree.stack.teams)
    return records, f"{prometheus}, {period.month}", left_out


def _at(stack: str, folder: Path, ref: str) -> "Tree":
    from gpu_tenancy.model.load import load
    from gpu_tenancy.model.plan.shares import Tree
    from gpu_tenancy.model.project import read_stack, stack_file
    from gpu_tenancy.review.base import checkout

    with checkout(folder, ref) as copy:
        if not stack_file(copy.folder, stack).is_file():
            raise ConsoleError(f"--against {ref}: stack {stack} does not exist there", "use a ref that has the stack")
        return Tree(load(read_stack(stack, copy.folder)))
