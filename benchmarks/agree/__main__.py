"""`python -m benchmarks.agree`: plays scenarios on the real Kueue and in the simulation, and reports the agreement."""

import datetime as dt
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.agree import kueue, reporting
from benchmarks.agree.comparing import Compared, compare
from benchmarks.agree.drawing import draw
from benchmarks.agree.playing import Pace, Played, Stage
from benchmarks.agree.reporting import Run
from benchmarks.agree.tenancies import Data
from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import measured
from gpu_tenancy.embedded.processes import alone
from gpu_tenancy.kueue.scenarios import read_steps, read_tenancy

MINIMUM: Final = 200
"""Scenarios of a run that may be written into the docs."""


def main(
    seed: Annotated[int, typer.Option(help="Seed of the scenarios.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="Number of scenarios, of all classes together.")] = 210,
    scenarios: Annotated[
        Path | None, typer.Option(help="File with one JSON scenario per line, to play instead of random ones.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.json, misses.jsonl and the platform's data.")] = Path(
        "out/agree"
    ),
    docs: Annotated[bool, typer.Option("--docs", help="Write the result into docs/simulation.md.")] = False,  # noqa: FBT002
) -> None:
    """Play random scenarios on the real Kueue and in the simulation, and report the agreement.

    Exit code 2: less than 99 % of the scenarios agree.
    """
    with terminal.errors():
        if docs and (scenarios or count < MINIMUM):
            raise ConsoleError(f"--docs: fewer than {MINIMUM} random scenarios", f"specify --count {MINIMUM} or more")
        played = _read(scenarios) if scenarios else draw(seed, count)
        began = time.monotonic()
        with alone(out / "lock", terminal.report, "comparing the simulation with Kueue"):
            results = [one for fair in (False, True) for one in _mode(played, out / "platform", fair=fair)]
        run = Run(
            kueue=kueue.version(),
            source=str(scenarios) if scenarios else f"seed {seed}",
            date=dt.datetime.now(dt.UTC).date().isoformat(),
            seconds=time.monotonic() - began,
            scenarios=results,
        )
        _show(run, reporting.write(run, out))
        if docs:
            reporting.update_page(run)
        if not run.enough:
            raise typer.Exit(terminal.PROMISE_BROKEN)


def _read(file: Path) -> list[Data]:
    """The scenarios of a file.

    Raises:
        ConsoleError: a line is no scenario.
    """
    found: list[Data] = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ConsoleError(
            f"--scenarios: {file} is not a file", "specify a file with one JSON scenario per line"
        ) from error
    for number, line in enumerate(lines, start=1):
        try:
            scenario = {"fairSharing": False, "class": "own", **json.loads(line)}
            read_tenancy(scenario)
            read_steps(scenario)
        except (KeyError, TypeError, ValueError) as error:
            raise ConsoleError(f"{file}:{number}: invalid scenario: {error}", "correct the scenario") from error
        found.append(scenario)
    return found


def _mode(scenarios: Sequence[Data], home: Path, *, fair: bool) -> list[Compared]:
    """Plays the scenarios of one mode, on a platform of their own: what others have left would be scheduled again."""
    chosen = [scenario for scenario in scenarios if scenario["fairSharing"] is fair]
    if not chosen:
        return []
    with (
        kueue.platform(home, terminal.report) as platform,
        kueue.stage(platform, chosen, terminal.report, fair=fair) as stage,
    ):
        return compare(chosen, partial(_play, stage))


def _play(stage: Stage, scenarios: Sequence[Data], pace: Pace) -> list[Played]:
    mode = "on" if scenarios[0]["fairSharing"] else "off"
    with measured(terminal.report, f"playing with fair sharing {mode}", len(scenarios), "scenarios") as advance:
        return stage.play_all(scenarios, pace, advance)


def _show(run: Run, files: Sequence[Path]) -> None:
    minutes, seconds = divmod(round(run.seconds), 60)
    title = f"Kueue {run.kueue}, {len(run.scenarios)} scenarios ({run.source}), {minutes} min {seconds} s"
    table = terminal.table("class", "fair sharing off#", "fair sharing on#", title=title)
    for row in reporting.rows(run):
        table.add_row(*row)
    terminal.out.print(table)
    for sentence in reporting.sentences(run):
        terminal.out.print(sentence, highlight=False)
    for one in run.of("differs"):
        terminal.out.print(f"differs: {reporting.difference(one)}", highlight=False)
    terminal.out.print(f"files: {', '.join(str(file) for file in files)}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
