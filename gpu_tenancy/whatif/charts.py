"""Pictures over time: a lane for each job, with preemption arrows, and charts of amounts in columns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from gpu_tenancy.base.quantity import CPU, amount_text, is_extended
from gpu_tenancy.base.texts import DASH, counted, plural
from gpu_tenancy.model.plan.shares import Measure
from gpu_tenancy.pages.bars import hues
from gpu_tenancy.simulation.stage import Moment, amount_of, meaning
from gpu_tenancy.whatif.narrative import noun, request_text
from gpu_tenancy.whatif.timeline import Timeline, state

SHADES: Final = 6
"""Shades of a flavor's colour, one for each team; a flavor has the same colour on every page."""
OTHERS: Final = "sx"  # shade of teams beyond the number of shades
LANE: Final = 24
HEAD: Final = 30
BAR: Final = 12
WIDTH: Final = 1000  # width of a chart in its own units; the page stretches it
HEIGHT: Final = 110  # pixels
FEW: Final = 10  # steps above which labels and sums are omitted


@dataclass(frozen=True, slots=True)
class Band:
    """A team's part of a chart, on top of the bands below it, with an amount for each column."""

    who: str
    shade: str
    amounts: Sequence[float]


@dataclass(frozen=True)
class Chart:
    """Amounts over time; bands are from the bottom, at least one."""

    name: str
    note: str  # such as `in use, of 32`
    hue: int
    says: str  # text alternative
    bands: Sequence[Band]
    capacity: float = 0  # 0: no limit
    before: Sequence[float] = ()  # amounts at another ref
    sums: Sequence[str] = ()  # a text for each column

    @property
    def outlines(self) -> Iterator[tuple[Band, str]]:
        """Each band with its SVG path."""
        low = [0.0] * len(self.bands[0].amounts)
        for band in self.bands:
            high = [one + other for one, other in zip(low, band.amounts, strict=True)]
            wide = WIDTH / len(low)
            back = " ".join(f"V{self._height(low[at])}H{at * wide:.1f}" for at in reversed(range(len(low))))
            yield band, f"{self._line(high)} {back}Z"
            low = high

    @property
    def earlier(self) -> str:
        """The line of the other ref; empty without one."""
        return self._line(self.before) if self.before else ""

    @property
    def limit(self) -> float:
        """Position of the capacity."""
        return self._height(self.capacity)

    @cached_property
    def top(self) -> float:
        """The amount at the upper edge."""
        sums = [sum(column) for column in zip(*(band.amounts for band in self.bands), strict=True)]
        return max(self.capacity, *sums, *self.before) or 1

    def _height(self, amount: float) -> float:
        return round(HEIGHT - HEIGHT * amount / self.top, 1)

    def _line(self, amounts: Sequence[float]) -> str:
        wide = WIDTH / len(amounts)
        there = " ".join(f"V{self._height(amount)}H{(at + 1) * wide:.1f}" for at, amount in enumerate(amounts))
        return f"M0 {self._height(amounts[0])} {there}"


def flavor_hues(timeline: Timeline) -> dict[str, int]:
    """The colour of each flavor, as in the stack's report."""
    of_labels = hues({measure.label: measure.flavor for measure in timeline.counted})
    return {measure.flavor: of_labels[measure.label] for measure in timeline.counted}


def shades(timeline: Timeline) -> dict[str, str]:
    """A shade for each team; if teams exceed the shades, for the largest users of GPUs, or of CPUs without GPUs."""
    gpus = [measure for measure in timeline.counted if is_extended(measure.resource)]
    ranking = gpus or [measure for measure in timeline.counted if measure.resource == CPU]
    peak: dict[str, int] = dict.fromkeys(timeline.tree.team_shares, 0)
    for moment in timeline.moments:
        now = sum((_by_team(moment, measure) for measure in ranking), Counter[str]())
        peak |= {team: max(peak[team], amount) for team, amount in now.items()}
    teams = dict.fromkeys(held.team for held in timeline.held_of_counted)
    ranked = sorted(teams, key=lambda team: -peak[team])[:SHADES]
    shown = [team for team in peak if team in ranked]
    return {team: f"s{shown.index(team)}" if team in shown else OTHERS for team in peak}


def legend(timeline: Timeline) -> list[tuple[str, str]]:
    """Shades by team; teams without a shade of their own are one entry."""
    of_teams = shades(timeline)
    teams = dict.fromkeys(held.team for held in timeline.held_of_counted)
    named = [(team, of_teams[team]) for team in teams if of_teams[team] != OTHERS]
    return [*named, *([("other teams", OTHERS)] if len(named) < len(teams) else [])]


def usage_charts(timeline: Timeline) -> Iterator[Chart]:
    """One chart for each flavor: usage after each step, by team."""
    of_teams, of_flavors = shades(timeline), flavor_hues(timeline)
    for measure in timeline.counted:
        of_steps = [_by_team(moment, measure) for moment in timeline.moments]
        shown = {team: shade for team, shade in of_teams.items() if shade != OTHERS}
        others = of_teams.keys() - shown.keys()
        bands = [Band(team, shade, [amounts[team] for amounts in of_steps]) for team, shade in shown.items()]
        if others:
            bands.append(Band("other teams", OTHERS, [sum(amounts[team] for team in others) for amounts in of_steps]))
        texts = [amount_text(measure.resource, sum(amounts.values())) for amounts in of_steps]
        capacity = timeline.supply(measure)
        note = f"in use, of {amount_text(measure.resource, capacity)}"
        said = ", ".join(f"step {at + 1} {text}" for at, text in enumerate(texts))
        says = f"{noun(measure)} {note}: {said}."
        sums = texts if len(texts) <= FEW else ()
        yield Chart(measure.label, note, of_flavors[measure.flavor], says, bands, capacity, sums=sums)


def _by_team(moment: Moment, measure: Measure) -> Counter[str]:
    amounts: Counter[str] = Counter()
    for job in moment.running:
        amounts[job.team] += amount_of(job, measure)
    return amounts


@dataclass(frozen=True, slots=True)
class Spell:
    """Consecutive steps in which a job is running or pending."""

    runs: bool
    left: float
    width: float
    says: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A job in the colours of its flavor and team; without spells, the heading of a team's jobs."""

    name: str
    note: str
    colours: str
    top: int
    height: int
    spells: tuple[Spell, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    """From the preempting job to the preempted one."""

    x: float
    start: int
    end: int
    says: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """The jobs of a scenario over its steps, by number and title; heights in pixels, widths in percent."""

    steps: tuple[tuple[str, str], ...]
    lanes: tuple[Lane, ...]
    arrows: tuple[Arrow, ...]
    height: int
    says: str


def job_lanes(timeline: Timeline) -> Lanes:
    """A lane for each job, by team."""
    lanes = tuple(_lanes(timeline))
    jobs, gone = len(timeline.jobs), sum(1 for _ in timeline.preempted())
    return Lanes(
        tuple((step.step.number, step.label.partition(". ")[2]) for step in timeline.steps),
        lanes,
        tuple(_arrows(timeline, lanes)),
        sum(lane.height for lane in lanes),
        f"{plural(jobs, 'job')} over {plural(len(timeline.steps), 'step')}; {plural(gone, 'preemption')}.",
    )


def _lanes(timeline: Timeline) -> Iterator[Lane]:
    of_teams, of_flavors = shades(timeline), flavor_hues(timeline)
    top = 0
    for team in timeline.tree.team_shares:
        own = [job for job in timeline.jobs.values() if job.team == team]
        if own:
            yield Lane(team, plural(len(own), "job"), of_teams[team], top, HEAD)
            top += HEAD
        for job in own:
            colours = f"h{of_flavors.get(job.flavor, 0)} {of_teams[team]}"
            # The name needs the width: of a job without GPUs only its CPUs.
            cpus = job.amounts.get(CPU)
            note = counted(cpus, CPU) if cpus else request_text(job)
            yield Lane(job.workload, note, colours, top, LANE, tuple(_spells(timeline.moments, job.workload)))
            top += LANE


def _spells(moments: tuple[Moment, ...], job: str) -> Iterator[Spell]:
    wide, begin = 100 / len(moments), 0
    for name, alike in groupby(state(moment, job) for moment in moments):
        end = begin + len(list(alike))
        if name:
            steps = f"step {end}" if end == begin + 1 else f"steps {begin + 1}{DASH}{end}"
            left, right = round(wide * begin, 2), round(wide * end, 2)
            yield Spell(name == "running", left, round(right - left, 2), f"{job} {name}: {steps}")
        begin = end


def _arrows(timeline: Timeline, lanes: tuple[Lane, ...]) -> Iterator[Arrow]:
    """Within a step, each preempting job has a line of its own."""
    middle = {lane.name: lane.top + lane.height // 2 for lane in lanes if lane.spells}
    for at, moment in enumerate(timeline.moments):
        preemptors = list(dict.fromkeys(job.by for job in moment.evicted))
        for (gone, by), why in {(job.workload, job.by): job.reason for job in moment.evicted}.items():
            if gone in middle and by in middle:
                within = (preemptors.index(by) + 1) / (len(preemptors) + 1) * 0.6
                x = round(100 * (at + within) / len(timeline.moments), 2)
                side = -1 if middle[by] < middle[gone] else 1
                says = f"step {at + 1}: {gone} preempted by {by} ({why}): {meaning(why)}"
                yield Arrow(x, middle[by], middle[gone] + side * BAR // 2, says)
