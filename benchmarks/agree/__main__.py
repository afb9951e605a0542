"""`python -m benchmarks.agree`: plays scenarios on the real Kueue and in the simulation, and reports the agreement."""

import datetime as dt
import json
import re
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.agree import kueue
from benchmarks.agree.comparing import Compared, Verdict, compare
from benchmarks.agree.drawing import Data, classes, draw
from benchmarks.agree.playing import Pace, Played, stage
from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.progress import measured
from gpu_tenancy.embedded.processes import alone
from gpu_tenancy.kueue.scenarios import read_steps, read_tenancy

MINIMUM: Final = 200  # scenarios of a run that may be written into the docs
REQUIRED: Final = 0.99  # the part of the counted scenarios that must agree in every step
PAGE: Final = Path("docs/simulation.md")
_MEASURED: Final = re.compile(
    r"(?P<start><!-- accuracy: written by `make agree DOCS=yes` -->\n).*?(?=<!-- end of accuracy -->)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Run:
    """All scenarios of one run; `source` is `seed 1`, or a file, and `date` an ISO date."""

    kueue: str
    source: str
    date: str
    scenarios: Sequence[Compared]

    @property
    def counted(self) -> list[Compared]:
        """The scenarios in the agreement."""
        return [one for one in self.scenarios if one.counted]

    @property
    def agreement(self) -> float:
        """The part of the counted scenarios that agree; 0 if none counts."""
        return len(self.of("agrees")) / len(self.counted) if self.counted else 0.0

    @property
    def enough(self) -> bool:
        """Whether the agreement is at least `REQUIRED`."""
        return self.agreement >= REQUIRED

    def of(self, verdict: Verdict) -> list[Compared]:
        """The scenarios with a verdict."""
        return [one for one in self.scenarios if one.verdict == verdict]

    def sentences(self) -> Iterator[str]:
        """The result in words."""
        steps = [step for one in self.counted for step in one.steps]
        preemptions = sum(same for one in self.counted for same in one.preemptions)
        preempting = sum(
            any(text[0] == "-" for step in one.plays[-1].trace for _, text in step) for one in self.scenarios
        )
        yield (
            f"{len(self.of('agrees'))} of {len(self.counted)} scenarios agree in every step "
            f"({self.agreement:.1%}; required: {REQUIRED:.0%}), {sum(steps)} of {len(steps)} steps."
        )
        yield f"Kueue preempted workloads in {preempting} of {len(self.scenarios)} scenarios."
        yield (
            "The preempted workloads and those that they were preempted for agree in "
            f"{preemptions} of {len(steps)} steps."
        )
        uncounted: dict[Verdict, str] = {
            "unstable": "Kueue itself decides differently from play to play",
            "livelock": "neither Kueue nor the simulation comes to rest",
        }
        for verdict, reason in uncounted.items():
            if found := self.of(verdict):
                names = ", ".join(one.scenario["id"] for one in found)
                yield f"Not counted, because {reason}: {len(found)} ({names})."

    def markdown(self) -> str:
        """The result for the docs: a paragraph, and the number of scenarios of each class that agree."""
        measured = (
            f"On {self.date}, {len(self.scenarios)} random scenarios ({self.source}) were played on Kueue "
            f"{self.kueue} and in the simulation."
        )
        text = " ".join([measured, *self.sentences()])
        lines = ["", textwrap.fill(text, 130, break_long_words=False, break_on_hyphens=False), ""]
        lines += ["| class | fair sharing off | fair sharing on |", "|---|---|---|"]
        for name in [*sorted({one.scenario["class"] for one in self.scenarios}), "all"]:
            cells: list[str] = []
            for fair in (False, True):
                verdicts = [
                    one.verdict
                    for one in self.counted
                    if one.scenario["fairSharing"] is fair and name in {"all", one.scenario["class"]}
                ]
                cells.append(f"{verdicts.count('agrees')} of {len(verdicts)}" if verdicts else "-")
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join([*lines, "", ""])


def main(  # noqa: PLR0913 - options of a command
    *,
    seed: Annotated[int, typer.Option(help="Seed of the scenarios.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="Number of scenarios, of all classes together.")] = 230,
    only: Annotated[str | None, typer.Option(metavar="CLASS", help="Scenarios of this class only.")] = None,
    scenarios: Annotated[
        Path | None, typer.Option(help="File with one JSON scenario per line, to play instead of random ones.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for misses.jsonl and the platform's data.")] = Path("out/agree"),
    docs: Annotated[bool, typer.Option("--docs", help="Write the result into docs/simulation.md.")] = False,
) -> None:
    """Play random scenarios on the real Kueue and in the simulation, and report the agreement.

    Exit code 3: less than 99 % of the scenarios agree.
    """
    with terminal.errors():
        if docs and (scenarios or only or count < MINIMUM):
            fix = f"specify --count {MINIMUM} or more"
            raise ConsoleError(f"--docs: fewer than {MINIMUM} random scenarios of all classes", fix)
        known = dict(classes())
        if only and only not in known:
            raise ConsoleError(f"--only: class {only} not found", nearest(only, known))
        chosen = _read(scenarios) if scenarios else draw(seed, count, only=only)
        began = time.monotonic()
        with alone(out / "lock", terminal.report, "comparing the simulation with Kueue"):
            results = [one for fair in (False, True) for one in play_mode(chosen, out / "platform", fair=fair)]
        minutes, seconds = divmod(round(time.monotonic() - began), 60)
        source = str(scenarios) if scenarios else f"seed {seed}"
        run = Run(kueue.version(), source, dt.datetime.now(dt.UTC).date().isoformat(), results)
        terminal.out.print(f"{run.markdown()}played in {minutes} min {seconds} s", highlight=False, markup=False)
        for one in run.of("differs"):
            terminal.out.print(f"differs: {difference(one)}", highlight=False)
        if misses := write_misses(run, out):
            terminal.out.print(f"misses: {misses}", highlight=False)
        if docs:
            update_page(run)
        if not run.enough:
            raise typer.Exit(terminal.ExitCode.BLOCKED)


def _read(file: Path) -> list[Data]:
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


def play_mode(scenarios: Sequence[Data], home: Path, *, fair: bool) -> list[Compared]:
    """Plays the scenarios of one mode, on a new platform: leftovers of others would be scheduled again."""
    chosen = [scenario for scenario in scenarios if scenario["fairSharing"] is fair]
    if not chosen:
        return []
    what = f"playing with fair sharing {'on' if fair else 'off'}"
    with kueue.platform(home, terminal.report) as platform, stage(platform, chosen, terminal.report, fair=fair) as on:

        def play(some: Sequence[Data], pace: Pace) -> list[Played]:
            with measured(terminal.report, what, len(some), "scenarios") as advance:
                return on.play_all(some, pace, advance)

        return compare(chosen, play)


def difference(one: Compared) -> str:
    """The place where a scenario differs."""
    wrong = [str(number) for number, agrees in enumerate(one.steps, start=1) if not agrees]
    places = [f"step {', '.join(wrong)}"] if wrong else []
    if one.livelock:
        places.append("only the simulation does not come to rest")
    elif not one.plays[-1].settled:
        places.append("only Kueue does not come to rest")
    return f"{one.scenario['id']}: {'; '.join(places)}"


def write_misses(run: Run, out: Path) -> Path | None:
    """Writes `misses.jsonl`: the scenarios that differ, as recordings; None if none does."""
    file = out / "misses.jsonl"
    out.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(one.recording)}\n" for one in run.of("differs")), encoding="utf-8")
    return file if run.of("differs") else None


def update_page(run: Run, page: Path = PAGE) -> None:
    """Replaces the page's section about accuracy; a ValueError says that it has none."""
    text = page.read_text(encoding="utf-8")
    if not _MEASURED.search(text):
        raise ValueError(f"{page}: no lines `<!-- accuracy: written by … -->` and `<!-- end of accuracy -->`; add them")
    page.write_text(_MEASURED.sub(lambda match: match["start"] + run.markdown(), text), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
