"""The picture of jobs over time: a lane for each job, by team; below it the GPUs in use, by team and flavor.

All steps have the same width, in percent of the picture; heights are in pixels, so that the picture grows with the
number of jobs and the size of texts does not change.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.quantity import CPU, is_extended
from gpu_tenancy.base.texts import DASH, counted, plural
from gpu_tenancy.model.plan.measures import Measure, supply_of
from gpu_tenancy.simulation.scenarios import Moment, Running, Waiting, amount_of, meaning
from gpu_tenancy.whatif.bars import NAMED, OTHERS, flavor_hues, shades
from gpu_tenancy.whatif.narrative import Played, job_note, number

LANE: Final = 24
HEAD: Final = 30
BAR: Final = 12
AREA: Final = 110
"""Height of a flavor's GPUs in use, in pixels."""
ABOVE: Final = 18
"""Space above them for the sums, in pixels."""
FEW: Final = 10
"""Steps above which labels and numbers are omitted."""
READABLE: Final = 15
"""Height of a number, in pixels."""


@dataclass(frozen=True, slots=True)
class Spell:
    """Consecutive steps in which a job is running or pending."""

    runs: bool
    left: float
    width: float
    says: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A job; without spells, the team of the jobs that follow.

    Attributes:
        colours: classes of the flavor's colour and the team's shade.
    """

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
class Block:
    """GPUs of a team and flavor in one step.

    Attributes:
        who: the team's name, where it fits beside the number.
    """

    left: float
    width: float
    top: float
    height: float
    shade: str
    who: str
    number: str
    says: str


@dataclass(frozen=True, slots=True)
class Area:
    """A flavor's GPUs in use over the steps.

    Attributes:
        sums: position and value of the sum of each step; empty for 0.
    """

    flavor: str
    hue: int
    supply: str
    blocks: tuple[Block, ...]
    sums: tuple[tuple[float, float, str], ...]
    says: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The whole picture."""

    steps: tuple[tuple[str, str], ...]
    lanes: tuple[Lane, ...]
    arrows: tuple[Arrow, ...]
    height: int
    areas: tuple[Area, ...]
    says: str


def timeline(played: Played) -> Timeline:
    """The jobs of a scenario over its steps."""
    lanes = tuple(_lanes(played))
    height = sum(lane.height for lane in lanes)
    jobs = sum(1 for lane in lanes if lane.spells)
    gone = sum(1 for _ in played.evicted())
    return Timeline(
        tuple((number(moment.label), moment.label.partition(". ")[2]) for moment in played.moments),
        lanes,
        tuple(_arrows(played, lanes)),
        height,
        tuple(_area(played, measure) for measure in played.counted),
        f"{plural(jobs, 'job')} over {plural(len(played.moments), 'step')}; {plural(gone, 'preemption')}.",
    )


def jobs_of(moments: tuple[Moment, ...]) -> dict[str, Running | Waiting]:
    """Every job, as it was in its first step, in the order of submission."""
    jobs: dict[str, Running | Waiting] = {}
    for moment in moments:
        for job in (*moment.running, *moment.waiting):
            jobs.setdefault(job.workload, job)
    return jobs


def state(moment: Moment, job: str) -> str:
    """`running`, `pending`, or empty where the job does not exist."""
    if any(running.workload == job for running in moment.running):
        return "running"
    return "pending" if any(waiting.workload == job for waiting in moment.waiting) else ""


def _lanes(played: Played) -> Iterator[Lane]:
    of_teams, of_flavors = shades(played), flavor_hues(played)
    jobs, top = jobs_of(played.moments), 0
    for team in played.tree.team_shares:
        own = [job for job in jobs.values() if job.team == team]
        if own:
            yield Lane(team, plural(len(own), "job"), of_teams[team], top, HEAD)
            top += HEAD
        for job in own:
            note = _lane_note(job)
            spells = tuple(_spells(played.moments, job.workload))
            yield Lane(job.workload, note, f"h{of_flavors.get(job.flavor, 0)} {of_teams[team]}", top, LANE, spells)
            top += LANE


def _lane_note(job: Running | Waiting) -> str:
    """What a job requests, beside its name, which needs the width: of a job without GPUs only its CPUs."""
    cpus = job.amounts.get(CPU)
    return counted(cpus, CPU) if cpus else job_note(job)


def _spells(moments: tuple[Moment, ...], job: str) -> Iterator[Spell]:
    states = [state(moment, job) for moment in moments]
    step, begin = 100 / len(states), 0
    for at in range(1, len(states) + 1):
        if at == len(states) or states[at] != states[begin]:
            if states[begin]:
                steps = f"step {begin + 1}" if at == begin + 1 else f"steps {begin + 1}{DASH}{at}"
                left, right = round(step * begin, 2), round(step * at, 2)
                yield Spell(states[begin] == "running", left, round(right - left, 2), f"{job} {states[begin]}: {steps}")
            begin = at


def _arrows(played: Played, lanes: tuple[Lane, ...]) -> Iterator[Arrow]:
    """Within a step, each preempting job has a line of its own."""
    middle = {lane.name: lane.top + lane.height // 2 for lane in lanes if lane.spells}
    for at, moment in enumerate(played.moments):
        preemptors = list(dict.fromkeys(job.by for job in moment.evicted))
        reasons = {(job.workload, job.by): job.reason for job in moment.evicted}
        for (gone, by), why in reasons.items():
            if gone in middle and by in middle:
                within = (preemptors.index(by) + 1) / (len(preemptors) + 1) * 0.6
                x = round(100 * (at + within) / len(played.moments), 2)
                side = -1 if middle[by] < middle[gone] else 1
                says = f"step {at + 1}: {gone} preempted by {by} ({why}): {meaning(why)}"
                yield Arrow(x, middle[by], middle[gone] + side * BAR // 2, says)


def _area(played: Played, measure: Measure) -> Area:
    of_teams, capacity, resource = shades(played), supply_of(played.tree, measure), measure.resource
    noun = f"{measure.label} GPUs" if is_extended(resource) else measure.label
    count, blocks = len(played.moments), list[Block]()
    sums: list[tuple[float, float, int]] = []
    tall = max(1, capacity, *(sum(_amounts(moment, measure).values()) for moment in played.moments))
    for at, moment in enumerate(played.moments):
        left, right, bottom = round(100 * at / count, 2), round(100 * (at + 1) / count, 2), float(ABOVE + AREA)
        for who, shade, gpus in _stack(played, moment, measure, of_teams):
            height = round(AREA * gpus / tall, 2)
            bottom = round(bottom - height, 2)
            shown = amount_text(resource, gpus) if height >= READABLE and count <= FEW else ""
            named = who if shown and (len(who) + len(shown) + 1) * NAMED * count < 100 else ""  # noqa: PLR2004 - percent
            says = f"step {at + 1}: {who}: {amount_text(resource, gpus)} {noun}"
            blocks.append(Block(left, round(right - left, 2), bottom, height, shade, named, shown, says))
        sums.append((round((left + right) / 2, 2), round(bottom - 4, 2), sum(_amounts(moment, measure).values())))
    says = ", ".join(f"step {at + 1} {amount_text(resource, total)}" for at, (_, _, total) in enumerate(sums))
    whole = amount_text(resource, capacity)
    texts = tuple((x, y, amount_text(resource, total) if total else "") for x, y, total in sums)
    return Area(
        measure.label,
        flavor_hues(played)[measure.flavor],
        whole,
        tuple(blocks),
        texts,
        f"{noun} in use, of {whole}: {says}.",
    )


def _stack(played: Played, moment: Moment, measure: Measure, shades: dict[str, str]) -> Iterator[tuple[str, str, int]]:
    """Amounts by team, from the bottom; teams without a shade of their own are one block on top."""
    gpus = _amounts(moment, measure)
    for team in played.tree.team_shares:
        if gpus.get(team) and shades[team] != OTHERS:
            yield team, shades[team], gpus[team]
    rest = {team: amount for team, amount in gpus.items() if amount and shades[team] == OTHERS}
    if rest:
        who = next(iter(rest)) if len(rest) == 1 else f"{len(rest)} other teams"
        yield who, OTHERS, sum(rest.values())


def _amounts(moment: Moment, measure: Measure) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for job in moment.running:
        if amount := amount_of(job, measure):
            amounts[job.team] = amounts.get(job.team, 0) + amount
    return amounts
