"""Texts of `tenancy whatif` for people; nothing reads them to find out what happened."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.quantity import CPU, MEMORY, is_extended
from gpu_tenancy.base.texts import counted, plural, unit
from gpu_tenancy.model.plan.shares import Measure, Tree, supply_of
from gpu_tenancy.pages.tables import Tone
from gpu_tenancy.simulation.scenarios import (
    GaveWay,
    Held,
    Moment,
    Running,
    Waiting,
    amount_of,
    every_measure,
    holdings,
)


@dataclass(frozen=True)
class Played:
    """A simulated scenario.

    Attributes:
        title: `everyone busy`, or the file of the jobs.
        moments: the state after each step; only one for a load on all queues.
        scenario: whether it has single jobs over time, not only load by team.
        left_out: what the stack uses and the simulation does not cover.
    """

    stack: str
    title: str
    tree: Tree
    moments: tuple[Moment, ...]
    scenario: bool
    left_out: tuple[str, ...] = ()

    @property
    def last(self) -> Moment:
        """The state at the end."""
        return self.moments[-1] if self.moments else Moment("no steps", (), (), (), ())

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """Usage of each team at the end."""
        return holdings(self.tree, self.last)

    @cached_property
    def counted(self) -> tuple[Measure, ...]:
        """GPUs of flavors, or CPU and memory, that a job used or requested; if none, what a team may use."""
        jobs = [job for moment in self.moments for job in (*moment.running, *moment.waiting)]
        may = {held.flavor for held in self.held}
        known = [measure for measure in every_measure(self.tree) if measure.label in may]
        touched = [measure for measure in known if any(amount_of(job, measure) for job in jobs)]
        return tuple(touched or known)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of what is counted."""
        return tuple(measure.label for measure in self.counted)

    @cached_property
    def restless(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Steps that end in a livelock, with their queues."""
        return tuple((moment.label, moment.restless) for moment in self.moments if moment.restless)

    def evicted(self) -> Iterator[tuple[str, GaveWay]]:
        """Evicted jobs, with the label of the step."""
        for moment in self.moments:
            for job in moment.evicted:
                yield moment.label, job


@dataclass(frozen=True, slots=True)
class Turn:
    """What changes in a step.

    Attributes:
        starts: newly admitted jobs.
        waits: newly pending jobs.
        ended: names of jobs that ended.
    """

    moment: Moment
    starts: tuple[Running, ...]
    waits: tuple[Waiting, ...]
    ended: tuple[str, ...]


def turns(moments: tuple[Moment, ...]) -> Iterator[Turn]:
    """What changes in each step."""
    for before, now in pairwise((Moment("", (), (), (), ()), *moments)):
        ran, waited = {job.workload for job in before.running}, {job.workload for job in before.waiting}
        here = {job.workload for job in (*now.running, *now.waiting)}
        yield Turn(
            now,
            tuple(job for job in now.running if job.workload not in ran),
            tuple(job for job in now.waiting if job.workload not in waited),
            tuple(
                name
                for name in dict.fromkeys(job.workload for job in (*before.running, *before.waiting))
                if name not in here
            ),
        )


def waits(turn: Turn) -> dict[str, tuple[Waiting, ...]]:
    """Newly pending jobs of a step by their reason."""
    reasons = dict.fromkeys(job.why for job in turn.waits)
    return {why: tuple(job for job in turn.waits if job.why == why) for why in reasons}


def number(label: str) -> str:
    """The number with which a step's label begins."""
    return label.partition(".")[0]


def tone(played: Played) -> Tone:
    """Colour of the headline: good where no job is pending or evicted."""
    if played.restless:
        return "bad"
    return "notice" if played.last.waiting or any(played.evicted()) else "good"


def headline(played: Played) -> str:
    """The state at the end, in one line."""
    if played.restless:
        return "Some queues end in a livelock"
    gpus = [measure for measure in played.counted if is_extended(measure.resource)]
    others = ([measure for measure in played.counted if measure.resource == resource] for resource in (CPU, MEMORY))
    summed = [gpus] if gpus else others
    usage = " and ".join(_sum_text(played, listed) for listed in summed if listed) or "0 of 0 GPUs"
    jobs, teams = len(played.last.waiting), len({job.team for job in played.last.waiting})
    pending = plural(jobs, "job") if played.scenario else plural(teams, "team")
    state = f"{pending} {'pending' if played.scenario else 'with pending jobs'}" if jobs else "no jobs pending"
    return f"{'At the end: ' if played.scenario else ''}{usage} in use, {state}"


def _sum_text(played: Played, listed: Sequence[Measure]) -> str:
    """`8 of 32 GPUs`: what is used and what the queues share, of one resource in several flavors."""
    resource = listed[0].resource
    used, capacity = (sum(of(played, measure) for measure in listed) for of in (_used, _most))
    return f"{amount_text(resource, used)} of {amount_text(resource, capacity)} {unit(resource)}"


def sentences(played: Played) -> Iterator[str]:
    """Usage and pending jobs of each flavor, and evictions."""
    for _, queues in played.restless:
        yield livelock(queues)
    for measure in played.counted:
        parts = [_usage(held) for held in played.held if held.flavor == measure.label and (held.runs or held.waits)]
        used = amount_text(measure.resource, _used(played, measure))
        total = f"{used} of {counted(_most(played, measure), measure.resource, measure.label)} in use"
        yield f"{total}{': ' if parts else ''}{'; '.join(parts)}."
    if played.scenario:
        yield from _evictions(played)
    else:
        yield from _preempted(played)


def _evictions(played: Played) -> Iterator[str]:
    for moment in played.moments:
        running = {job.workload for job in moment.running}
        for job in moment.evicted:
            back = ", and admitted again in the same step" if job.workload in running else ""
            who = f"{job.workload} ({job.team}) was preempted by {job.by} ({job.by_team})"
            yield f"Step {number(moment.label)}: {who}{back}."


def _usage(held: Held) -> str:
    runs, borrowed, waits = (amount_text(held.resource, n) for n in (held.runs, held.borrowed, held.waits))
    parts = [f"{borrowed} borrowed"] if held.borrowed else []
    parts += [f"{waits} pending"] if held.waits else []
    detail = f" ({', '.join(parts)})" if parts else ""
    return f"{held.team} uses {runs}{detail}"


def _preempted(played: Played) -> Iterator[str]:
    """How many GPUs, CPUs and how much memory each team preempted, and of which teams."""
    taken: Counter[tuple[str, Measure, str]] = Counter()
    for _, job in played.evicted():
        for measure in played.counted:
            if amount := amount_of(job, measure):
                taken[job.by_team, measure, job.team] += amount
    for team, measure in dict.fromkeys((by, measure) for by, measure, _ in taken):
        whom = {of: amount for (by, what, of), amount in taken.items() if (by, what) == (team, measure)}
        listed = ", ".join(f"{amount_text(measure.resource, amount)} of {of}" for of, amount in whom.items())
        total = sum(whom.values())
        yield f"{team} preempted jobs with {_of_flavor(total, measure)}: {listed}."


def _of_flavor(amount: int, measure: Measure) -> str:
    """`1 a100 GPUs`: the noun of a sum, always in the plural; `40 general CPUs`."""
    text = amount_text(measure.resource, amount)
    return f"{text} {measure.label} GPUs" if is_extended(measure.resource) else f"{text} {measure.label}"


def job_amount(job: Running | Waiting | GaveWay) -> str:
    """What a job uses or requests: `8 a100 GPUs`; without GPUs `40 general CPUs, 64Gi general memory`."""
    if job.amounts:
        labels = {resource: Measure(job.flavor, resource).label for resource in job.amounts} if job.flavor else {}
        parts = (counted(amount, name, labels.get(name, "")) for name, amount in job.amounts.items())
        return ", ".join(parts)
    return plural(job.gpus, f"{job.flavor} GPU") if job.flavor else f"{job.gpus} GPUs"


def job_note(job: Running | Waiting | GaveWay) -> str:
    """The same without the noun of GPUs, for narrow places: `8 a100`, `40 CPUs, 64Gi memory of general`."""
    if job.amounts:
        text = ", ".join(counted(amount, name) for name, amount in job.amounts.items())
        return f"{text} of {job.flavor}" if job.flavor else text
    return f"{job.gpus} {job.flavor}" if job.gpus else job.flavor


def livelock(queues: tuple[str, ...]) -> str:
    """Queues whose jobs preempt one another endlessly."""
    return f"Jobs of {', '.join(queues)} preempt one another endlessly, as in Kueue; this is one of several states."


def _used(played: Played, measure: Measure) -> int:
    return sum(held.runs for held in played.held if held.flavor == measure.label)


def _most(played: Played, measure: Measure) -> int:
    return supply_of(played.tree, measure)
