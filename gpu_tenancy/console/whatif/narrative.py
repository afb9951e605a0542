"""Texts of `tenancy whatif` for people; nothing reads them to find out what happened."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gpu_tenancy.console.review.review import Tone
from gpu_tenancy.console.texts import plural
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.whatif import GaveWay, Held, Moment, Running, Waiting, holdings, supply


@dataclass(frozen=True)
class Played:
    """A simulated scenario.

    Attributes:
        title: `everyone busy`, or the file of the jobs.
        moments: the state after each step; only one for a load on all queues.
        story: whether it has single jobs over time, not only load by team.
        left_out: what the stack uses and the simulation does not cover.
    """

    stack: str
    title: str
    tree: Tree
    moments: tuple[Moment, ...]
    story: bool
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
    def flavors(self) -> tuple[str, ...]:
        """GPU flavors that a job used or requested; if there are none, those that a team may use."""
        touched = {each.flavor for moment in self.moments for each in (*moment.running, *moment.waiting)}
        may = {each.flavor for each in self.held}
        return tuple(name for name in self.tree.flavors if name in (touched & may or may))

    @cached_property
    def restless(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Steps that end in a livelock, with their queues."""
        return tuple((moment.label, moment.restless) for moment in self.moments if moment.restless)

    def evicted(self) -> Iterator[tuple[str, GaveWay]]:
        """Evicted jobs, with the label of the step."""
        for moment in self.moments:
            for each in moment.evicted:
                yield moment.label, each


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
        ran, waited = {each.workload for each in before.running}, {each.workload for each in before.waiting}
        here = {each.workload for each in (*now.running, *now.waiting)}
        yield Turn(
            now,
            tuple(each for each in now.running if each.workload not in ran),
            tuple(each for each in now.waiting if each.workload not in waited),
            tuple(
                name
                for name in dict.fromkeys(each.workload for each in (*before.running, *before.waiting))
                if name not in here
            ),
        )


def waits(turn: Turn) -> dict[str, tuple[Waiting, ...]]:
    """Newly pending jobs of a step by their reason."""
    reasons = dict.fromkeys(each.why for each in turn.waits)
    return {why: tuple(each for each in turn.waits if each.why == why) for why in reasons}


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
    runs, capacity = (
        sum(_used(played, name) for name in played.flavors),
        sum(_most(played, name) for name in played.flavors),
    )
    jobs, teams = len(played.last.waiting), len({job.team for job in played.last.waiting})
    pending = plural(jobs, "job") if played.story else plural(teams, "team")
    state = f"{pending} {'pending' if played.story else 'with pending jobs'}" if jobs else "no jobs pending"
    return f"{'At the end: ' if played.story else ''}{runs} of {capacity} GPUs in use, {state}"


def sentences(played: Played) -> Iterator[str]:
    """Usage and pending jobs of each flavor, and evictions."""
    for _, queues in played.restless:
        yield livelock(queues)
    for name in played.flavors:
        parts = [_usage(held) for held in played.held if held.flavor == name and (held.runs or held.waits)]
        total = f"{_used(played, name)} of {_most(played, name)} {name} GPUs in use"
        yield f"{total}{': ' if parts else ''}{'; '.join(parts)}."
    if played.story:
        yield from _evictions(played)
    else:
        yield from _preempted(played)


def _evictions(played: Played) -> Iterator[str]:
    for moment in played.moments:
        running = {each.workload for each in moment.running}
        for each in moment.evicted:
            back = ", and admitted again in the same step" if each.workload in running else ""
            who = f"{each.workload} ({each.team}) was preempted by {each.by} ({each.by_team})"
            yield f"Step {number(moment.label)}: {who}{back}."


def _usage(held: Held) -> str:
    parts = [f"{held.borrowed} borrowed"] if held.borrowed else []
    parts += [f"{held.waits} pending"] if held.waits else []
    detail = f" ({', '.join(parts)})" if parts else ""
    return f"{held.team} uses {held.runs}{detail}"


def _preempted(played: Played) -> Iterator[str]:
    """How many GPUs each team preempted, and of which teams."""
    taken: Counter[tuple[str, str, str]] = Counter()
    for _, each in played.evicted():
        taken[each.by_team, each.flavor, each.team] += each.gpus
    for team, flavor in dict.fromkeys((by, flavor) for by, flavor, _ in taken):
        whom = {of: gpus for (by, what, of), gpus in taken.items() if (by, what) == (team, flavor)}
        listed = ", ".join(f"{gpus} of {of}" for of, gpus in whom.items())
        yield f"{team} preempted jobs with {sum(whom.values())} {flavor} GPUs: {listed}."


def livelock(queues: tuple[str, ...]) -> str:
    """Queues whose jobs preempt one another endlessly."""
    return f"Jobs of {', '.join(queues)} preempt one another endlessly, as in Kueue; this is one of several states."


def _used(played: Played, flavor: str) -> int:
    return sum(each.runs for each in played.held if each.flavor == flavor)


def _most(played: Played, flavor: str) -> int:
    return supply(played.tree, flavor)
