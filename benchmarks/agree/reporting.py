"""The report of a run: a table for the terminal and for `docs/simulation.md`, JSON, and the misses as scenarios."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.agree.comparing import Compared, Verdict

REQUIRED: Final = 0.99
"""The part of the counted scenarios that must agree in every step."""
PAGE: Final = Path("docs/simulation.md")
_MEASURED: Final = re.compile(
    r"(?P<start><!-- accuracy: written by `make agree DOCS=yes` -->\n).*?(?=<!-- end of accuracy -->)", re.DOTALL
)
_NOTED: Final[Mapping[Verdict, str]] = {"differs": "misses", "unstable": "unstable", "livelock": "livelocks"}
"""The verdicts whose scenarios are written, and the names of the files."""
_MODES: Final = {False: "fair sharing off", True: "fair sharing on"}


@dataclass(frozen=True, slots=True)
class Run:
    """All scenarios of one run.

    Attributes:
        kueue: version of Kueue.
        source: where the scenarios come from: `seed 1`, or a file.
        date: ISO date of the run.
        seconds: how long it took.
    """

    kueue: str
    source: str
    date: str
    seconds: float
    scenarios: Sequence[Compared]

    @property
    def counted(self) -> list[Compared]:
        """The scenarios that count."""
        return [one for one in self.scenarios if one.counted]

    @property
    def agreement(self) -> float:
        """The part of the counted scenarios that agree; 0 if none counts."""
        counted = self.counted
        return sum(one.verdict == "agrees" for one in counted) / len(counted) if counted else 0.0

    @property
    def steps(self) -> tuple[int, int]:
        """Number of steps that agree, and of all steps of the counted scenarios."""
        steps = [step for one in self.counted for step in one.steps]
        return sum(steps), len(steps)

    @property
    def preemptions(self) -> int:
        """Number of these steps in which the same workloads were preempted for the same workloads."""
        return sum(same for one in self.counted for same in one.preemptions)

    @property
    def enough(self) -> bool:
        """Whether the simulation is right often enough."""
        return self.agreement >= REQUIRED

    def of(self, verdict: Verdict) -> list[Compared]:
        """The scenarios with a verdict."""
        return [one for one in self.scenarios if one.verdict == verdict]

    @property
    def with_preemptions(self) -> int:
        """Number of scenarios in which Kueue preempted."""
        return sum(any(text[0] == "-" for step in one.plays[-1].trace for _, text in step) for one in self.scenarios)


def rows(run: Run) -> Iterator[tuple[str, str, str]]:
    """Class, and how many of its scenarios agree without and with fair sharing; the last row is the sum."""
    for name in sorted({one.scenario["class"] for one in run.scenarios}):
        yield name, _cell(run, name, fair=False), _cell(run, name, fair=True)
    yield "all", _cell(run, "", fair=False), _cell(run, "", fair=True)


def _cell(run: Run, name: str, *, fair: bool) -> str:
    """How many scenarios of a class agree; the empty name is all classes."""
    counted = [one for one in run.counted if _fair(one) is fair and name in {"", one.scenario["class"]}]
    return f"{sum(one.verdict == 'agrees' for one in counted)} of {len(counted)}" if counted else "-"


def _fair(one: Compared) -> bool:
    return one.scenario["fairSharing"]


def _is(one: Compared, name: str, *, fair: bool) -> bool:
    return one.scenario["class"] == name and _fair(one) is fair


def sentences(run: Run) -> Iterator[str]:
    """The result in words."""
    agreeing, steps = run.steps
    yield (
        f"{len(run.counted) - len(run.of('differs'))} of {len(run.counted)} scenarios agree in every step "
        f"({run.agreement:.1%}; required: {REQUIRED:.0%}), {agreeing} of {steps} steps."
    )
    yield f"Kueue preempted workloads in {run.with_preemptions} of {len(run.scenarios)} scenarios."
    yield f"The preempted workloads and those that they were preempted for agree in {run.preemptions} of {steps} steps."
    if unstable := run.of("unstable"):
        yield f"Not counted, because Kueue itself decides differently from play to play: {_ids(unstable)}."
    if livelocks := run.of("livelock"):
        yield f"Not counted, because neither Kueue nor the simulation comes to rest: {_ids(livelocks)}."


def _ids(scenarios: Sequence[Compared]) -> str:
    return f"{len(scenarios)} ({', '.join(one.scenario['id'] for one in scenarios)})"


def difference(one: Compared) -> str:
    """Where a scenario differs."""
    wrong = [str(number) for number, agrees in enumerate(one.steps, start=1) if not agrees]
    places = [f"step {', '.join(wrong)}"] if wrong else []
    if one.livelock:
        places.append("only the simulation does not come to rest")
    elif not one.plays[-1].settled:
        places.append("only Kueue does not come to rest")
    return f"{one.scenario['id']}: {'; '.join(places)}"


def as_json(run: Run) -> Mapping[str, Any]:
    """The report for other programs."""
    agreeing, steps = run.steps
    return {
        "kueue": run.kueue,
        "scenariosFrom": run.source,
        "date": run.date,
        "seconds": round(run.seconds),
        "scenarios": len(run.scenarios),
        "agreement": run.agreement,
        "required": REQUIRED,
        "steps": {"agree": agreeing, "preemptionsAgree": run.preemptions, "of": steps},
        "scenariosWithPreemptions": run.with_preemptions,
        "classes": [
            {
                "class": name,
                "fairSharing": fair,
                "verdicts": _verdicts([one for one in run.scenarios if _is(one, name, fair=fair)]),
            }
            for name in sorted({one.scenario["class"] for one in run.scenarios})
            for fair in _MODES
        ],
        **{verdict: [one.scenario["id"] for one in run.of(verdict)] for verdict in ("differs", "unstable", "livelock")},
    }


def _verdicts(scenarios: Sequence[Compared]) -> Mapping[str, int]:
    verdicts: tuple[Verdict, ...] = ("agrees", "differs", "unstable", "livelock")
    return {verdict: sum(one.verdict == verdict for one in scenarios) for verdict in verdicts}


def write(run: Run, out: Path) -> list[Path]:
    """Writes `report.json`, and a file for each kind of scenario that does not agree; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    texts = {"report.json": json.dumps(as_json(run), indent=2) + "\n"}
    for verdict, name in _NOTED.items():
        texts[f"{name}.jsonl"] = "".join(f"{json.dumps(one.recording)}\n" for one in run.of(verdict))
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name, text in texts.items() if text]


def update_page(run: Run, page: Path = PAGE) -> None:
    """Replaces what the page says about accuracy.

    Raises:
        ValueError: the page has no place for it.
    """
    text = page.read_text(encoding="utf-8")
    if not _MEASURED.search(text):
        msg = f"{page}: no lines `<!-- accuracy: written by … -->` and `<!-- end of accuracy -->`; add them"
        raise ValueError(msg)
    page.write_text(_MEASURED.sub(lambda match: match["start"] + markdown(run), text), encoding="utf-8")


def markdown(run: Run) -> str:
    """The result as Markdown."""
    measured = (
        f"On {run.date}, {len(run.scenarios)} random scenarios ({run.source}) were played on Kueue {run.kueue} and in "
        "the simulation."
    )
    text = " ".join([measured, *sentences(run)])
    wrapped = textwrap.fill(text, 130, break_long_words=False, break_on_hyphens=False)
    table = ["| class | " + " | ".join(_MODES.values()) + " |", "|---|---|---|"]
    table += [f"| {' | '.join(row)} |" for row in rows(run)]
    return "\n".join(["", wrapped, "", *table, "", ""])
