"""Commands that simulate Kueue: `whatif` and `demo` with jobs over time, and `replay` with recorded jobs."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form, Output, for_programs, is_for_programs
from gpu_tenancy.base.errors import ConsoleError, UsageError
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.problems import unknown
from gpu_tenancy.base.quantity import seconds
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.cost import idle as cost_idle
    from gpu_tenancy.cost import prometheus as cost_prometheus
    from gpu_tenancy.cost import statement
    from gpu_tenancy.embedded import platform
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.model.plan import shares
    from gpu_tenancy.model.spec import teams
    from gpu_tenancy.review import base
    from gpu_tenancy.simulation import live as live_players
    from gpu_tenancy.simulation import outcome as outcomes
    from gpu_tenancy.simulation import player as players
    from gpu_tenancy.simulation import records as traces
    from gpu_tenancy.simulation import replay as replays
    from gpu_tenancy.simulation import scenario as scenario_files
    from gpu_tenancy.simulation import scenes, stage
    from gpu_tenancy.whatif import page, show
    from gpu_tenancy.whatif import replay as replay_page
    from gpu_tenancy.whatif import timeline as timelines


def whatif(
    stack: StackName,
    *,
    team: Annotated[str | None, typer.Option(help="Only this team submits jobs.")] = None,
    last: Annotated[
        str | None, typer.Option(metavar="TEAM", help="Everyone is busy, and this team submits last.")
    ] = None,
    workloads: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML file with jobs over time: steps, each with `finish` and `submit`."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for `whatif.html`, a page with pictures.")] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Simulate Kueue: who gets which GPUs if everyone is busy, one team is alone, or jobs start and end over time.

    [dim]tenancy whatif local --last ml-research[/dim]
    """
    with terminal.errors(stack):
        chosen = [name for name, value in {"--team": team, "--workloads": workloads, "--last": last}.items() if value]
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)} cannot be combined", "use one of them")
        tree = options.tree_of(stack, project)
        for name in (team, last):
            _known(tree, name)
        if workloads:
            timeline = _played(stack, tree, _read(workloads, tree), f"jobs of {workloads.name}", output=output)
        else:
            moment = scenes.alone(tree, team) if team else scenes.busy(tree, last=last)
            steps, left_out = (players.StepResult(stage.JobStep(moment.label), moment),), scenes.unmodelled_of(tree)
            notes = tuple(scenes.tried(tree, named, moment)) if (named := team or last) else ()
            timeline = timelines.Timeline(stack, moment.label, tree, steps, False, left_out, notes)  # noqa: FBT003
        if is_for_programs(output):
            for_programs(output, timelines.timeline_data(timeline), tree.team_shares)
        elif not workloads:
            show.show_load(terminal.out, timeline)
        if out:
            write_text(out / "whatif.html", page.timeline_page(timeline))
            if not is_for_programs(output):
                terminal.out.print(f"page {escape(str(out / 'whatif.html'))}", highlight=False)


def _known(tree: "shares.Tree", name: str | None) -> None:
    if name is None or name in tree.team_shares:
        return
    if name in tree.stack.teams:
        raise ConsoleError(f"team {name} has no queue of its own", f"use {tree.queue_of(name)}, whose queue it shares")
    raise ConsoleError(*unknown("team", name, tree.team_shares))


def _played(
    stack: str,
    tree: "shares.Tree",
    scenario: "list[stage.JobStep]",
    title: str,
    *,
    output: Form | None,
    live: "live_players.LivePlayer | None" = None,
) -> "timelines.Timeline":
    """Plays a scenario, and prints it meanwhile if a person reads it."""
    left_out = scenes.unmodelled_of(tree)
    if is_for_programs(output):
        steps = timelines.play(tree, scenario, live=live)
    else:
        where = "on Kueue and in its simulation" if live else "in the simulation of Kueue"
        terminal.out.print(f"{escape(stack)}, {escape(title)}, {where}\n", highlight=False)
        display = show.Display(terminal.out, tree, scenario)
        steps = timelines.play(tree, scenario, display, live)
        display.summary(steps, left_out)
    return timelines.Timeline(stack, title, tree, steps, scenario=True, left_out=left_out)


def _read(file: Path, tree: "shares.Tree") -> "list[stage.JobStep]":
    try:
        return scenario_files.read_scenario(file, tree)
    except scenario_files.ScenarioError as error:
        terminal.problems(error.lines, str(file))
        raise typer.Exit(terminal.ExitCode.ERROR) from error


def demo(
    stack: StackName = "example-elastic",
    *,
    workloads: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML file with jobs over time, as for `whatif`. Default: stacks/scenarios/STACK.yaml; if that does"
            " not exist, each team submits jobs up to its limits, one team after another.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Play it on the Kueue of the embedded platform as well.")
    ] = False,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Play a scenario of jobs on a stack, in the simulation of Kueue: who borrows, who gives way to whom, and why.

    With `--live`, Kueue itself decides, and each step shows whether the simulation foresaw it. Exit code 3 if not.

    [dim]tenancy local demo example-elastic --live[/dim]
    """
    with terminal.errors(stack):
        tree = options.tree_of(stack, project)
        scenario, source = _steps(tree, projects.project_folder(project), stack, workloads)
        playing: AbstractContextManager[live_players.LivePlayer | None] = nullcontext()
        if live:
            playing = live_players.live_player(platform.Platform(), stack, tree, terminal.report)
        with playing as player:
            timeline = _played(stack, tree, scenario, source, output=output, live=player)
        if is_for_programs(output):
            for_programs(output, timelines.timeline_data(timeline), tree.team_shares)
        if not timeline.agrees:
            raise typer.Exit(terminal.ExitCode.BLOCKED)


def _steps(tree: "shares.Tree", folder: Path, stack: str, given: Path | None) -> "tuple[list[stage.JobStep], str]":
    """The steps, and where they come from."""
    own = folder / "stacks" / "scenarios" / f"{stack}.yaml"
    file = given or (own if own.is_file() else None)
    if file is None:
        if not (steps := scenario_files.scenario_of(scenes.default_scenario(tree), tree)):
            raise ConsoleError(f"stack {stack}: no team has quota for jobs", "set gpus or quota of a team")
        return steps, "each team up to its limits"
    return _read(file, tree), f"scenario {file if given else file.relative_to(folder)}"


def replay(
    stack: StackName,
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--used",
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
    ref: Annotated[
        str | None,
        typer.Option("--base", metavar="REF", help="Also play the stack at this git ref: who gains, who loses."),
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

    From Prometheus, jobs end sooner as `idle` of the stack would have stopped them, beside the month as it was.

    [dim]tenancy replay prod-aws --used october.jsonl --base origin/main --out out/prod-aws[/dim]
    """
    with terminal.errors(stack):
        every = None if checkpoint is None else seconds("--checkpoint", checkpoint)
        before = None if ref is None else _at(stack, projects.project_folder(project), ref)
        tree = options.tree_of(stack, project)
        idle: Mapping[str, teams.Idle] = tree.stack.idle_teams if prometheus and ref is None else {}
        trace, name, missing = _jobs(tree, source, prometheus, month, idle)
        terminal.progress(f"playing {name} on {stack}")
        outcome = replays.replay(tree, trace, checkpoint=every)
        left_out = {**missing, **(trace.left_out if isinstance(trace, traces.Trace) else {})}
        comparison = None
        if before is not None and ref is not None:
            terminal.progress(f"playing {name} on {stack} at {ref}")
            comparison = outcomes.compare(ref, replays.replay(before, trace, checkpoint=every), outcome)
        elif idle:
            terminal.progress(f"playing {name} on {stack} with idle")
            recorded, sooner = outcome, (record.without_freed for record in trace)
            outcome = replays.replay(tree, sooner, checkpoint=every)
            comparison = outcomes.compare("", recorded, outcome)
        if not outcome.jobs:
            reasons = "; ".join({**left_out, **outcome.left_out}) or "the file is empty"
            place = f"--used: {source}" if source else name
            fix = "use another file or month, or another stack"
            raise ConsoleError(f"{place}: no job can be played: {reasons}", fix)
        left = tuple(scenes.unmodelled_of(tree))
        replayed = replay_page.Replayed(stack, name, outcome, left_out, left, comparison, tuple(tree.stack.teams))
        if is_for_programs(output):
            for_programs(output, replay_page.replayed_data(replayed), outcome.teams)
        else:
            show.show_replay(terminal.out, replayed)
        if out:
            write_text(out / "replay.html", page.replay_page(replayed))
            if not is_for_programs(output):
                terminal.out.print(f"page {escape(str(out / 'replay.html'))}", highlight=False)


def _jobs(
    tree: "shares.Tree",
    source: Path | None,
    prometheus: str | None,
    month: str | None,
    idle: "Mapping[str, teams.Idle]",
) -> "tuple[Iterable[replays.JobRecord], str, Mapping[str, int]]":
    """The recorded jobs, where they come from, and how many are known to be left out, by the reason.

    With `idle` of teams, each has the time that this would have freed.
    """
    if (prometheus is None) == (source is None):
        raise UsageError("specify one of --used and --prometheus", "set --used to a file of recorded jobs")
    if source is not None and month:
        raise UsageError("--month selects from --prometheus, not from a file", "remove --month")
    if source is not None:
        return traces.Trace(source), source.name, {}
    period = statement.Period.of(month, datetime.now(UTC))
    terminal.progress(f"asking {prometheus}")
    server = cost_prometheus.Prometheus(prometheus or "")
    freed: Mapping[tuple[str, str], float] = cost_idle.freed_seconds(idle, server, period) if idle else {}
    records, left_out = cost_prometheus.recorded_jobs(server, period, tree.stack.teams, freed)
    return records, f"{prometheus}, {period.month}", left_out


def _at(stack: str, folder: Path, ref: str) -> "shares.Tree":
    with base.checkout(folder, ref) as copy:
        if not projects.stack_file(copy.folder, stack).is_file():
            raise ConsoleError(f"--base {ref}: stack {stack} does not exist there", "use a ref that has the stack")
        return options.tree_of(stack, copy.folder)
