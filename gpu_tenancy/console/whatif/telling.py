"""What was played, and what a reader should know of it first, in sentences."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gpu_tenancy.console.review.review import Tone
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.whatif import GaveWay, Held, Moment, Running, Waiting, holdings, supply


@dataclass(frozen=True)
class Played:
    """A question that was put to the simulation, with its answer.

    Attributes:
        title: `everyone busy`, or the file of the jobs.
        moments: after each step; one of a scene.
        story: whether single jobs matter, not only teams.
        left_out: what the stack uses and the simulation does not have, in words.
    """

    stack: str
    title: str
    tree: Tree
    moments: tuple[Moment, ...]
    story: bool
    left_out: tuple[str, ...] = ()

    @property
    def last(self) -> Moment:
        """How it ends."""
        return self.moments[-1] if self.moments else Moment("nothing happens", (), (), (), ())

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """What each team has at the end."""
        return holdings(self.tree, self.last)

    @cached_property
    def flavors(self) -> tuple[str, ...]:
        """Flavors of GPUs that anybody had or wanted; where nobody did, those that anybody may have."""
        touched = {each.flavor for moment in self.moments for each in (*moment.running, *moment.waiting)}
        may = {each.flavor for each in self.held}
        return tuple(name for name in self.tree.flavors if name in (touched & may or may))

    @cached_property
    def restless(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The steps in which some queues never came to rest, and those queues."""
        return tuple((moment.label, moment.restless) for moment in self.moments if moment.restless)

    def evicted(self) -> Iterator[tuple[str, GaveWay]]:
        """Who gave way, with the step's label."""
        for moment in self.moments:
            for each in moment.evicted:
                yield moment.label, each


@dataclass(frozen=True, slots=True)
class Turn:
    """What is other after a step than before it.

    Attributes:
        waits: jobs that wait and did not before.
        ended: names.
    """

    moment: Moment
    starts: tuple[Running, ...]
    waits: tuple[Waiting, ...]
    ended: tuple[str, ...]


def turns(moments: tuple[Moment, ...]) -> Iterator[Turn]:
    """Each moment with what is new in it."""
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
    """Who waits from a step on, by the reason that they have in common."""
    reasons = dict.fromkeys(each.why for each in turn.waits)
    return {why: tuple(each for each in turn.waits if each.why == why) for why in reasons}


def number(label: str) -> str:
    """The number with which a step's label begins."""
    return label.partition(".")[0]


def tone(played: Played) -> Tone:
    """Whether all is well: nobody waits and nobody gave way."""
    if played.restless:
        return "bad"
    return "notice" if played.last.waiting or any(played.evicted()) else "good"


def headline(played: Played) -> str:
    """How it ends, in one line."""
    if played.restless:
        return "Some queues never come to rest"
    runs, most = (
        sum(_used(played, name) for name in played.flavors),
        sum(_most(played, name) for name in played.flavors),
    )
    wait = len(played.last.waiting) if played.story else len({each.team for each in played.last.waiting})
    what = "job" if played.story else "team"
    waiting = "nobody waits" if not wait else f"{wait} {what} waits" if wait == 1 else f"{wait} {what}s wait"
    used = f"All {most} GPUs are in use" if runs == most else f"{runs} of {most} GPUs are in use"
    return f"{'At the end ' if played.story else ''}{used[0].lower() if played.story else used[0]}{used[1:]}, {waiting}"


def sentences(played: Played) -> Iterator[str]:
    """Each flavor, who waits, and who gave way to whom."""
    for _, queues in played.restless:
        listed = ", ".join(queues)
        yield f"In {listed} jobs evict one another for ever, as in the real Kueue; what is shown is one state of many."
    for name in played.flavors:
        parts = [_has(each) for each in played.held if each.flavor == name and (each.runs or each.waits)]
        used, most = _used(played, name), _most(played, name)
        whole = f"All {most}" if used == most else f"{used} of {most}"
        yield f"{whole} {name} are in use{': ' if parts else ''}{'; '.join(parts)}."
    if played.story:
        yield from _gave_way(played)
    else:
        yield from _taken(played)


def _gave_way(played: Played) -> Iterator[str]:
    for moment in played.moments:
        running = {each.workload for each in moment.running}
        for each in moment.evicted:
            back = ", and ran again at once" if each.workload in running else ""
            yield (
                f"In step {number(moment.label)} {each.workload} ({each.team}) gave way to {each.by} ({each.by_team})"
                f"{back}."
            )


def _has(each: Held) -> str:
    if not each.runs:
        return f"{each.team} has none and waits for {each.waits}"
    of = f" ({each.own} its own, {each.borrowed} borrowed)" if each.own and each.borrowed else ""
    has = f"{each.team} has {each.runs}{of}{', all borrowed' if not each.own else ''}"
    return f"{has}{',' if not each.own else ''} and waits for {each.waits} more" if each.waits else has


def _taken(played: Played) -> Iterator[str]:
    """Who took how much from whom, team by team."""
    taken: Counter[tuple[str, str, str]] = Counter()
    for _, each in played.evicted():
        taken[each.by_team, each.flavor, each.team] += each.gpus
    for team, flavor in dict.fromkeys((by, flavor) for by, flavor, _ in taken):
        whom = {of: gpus for (by, what, of), gpus in taken.items() if (by, what) == (team, flavor)}
        listed = ", ".join(f"{gpus} from {of}" for of, gpus in whom.items())
        yield f"As it came, {team} took {sum(whom.values())} {flavor}: {listed}."


def _used(played: Played, flavor: str) -> int:
    return sum(each.runs for each in played.held if each.flavor == flavor)


def _most(played: Played, flavor: str) -> int:
    return supply(played.tree, flavor)
