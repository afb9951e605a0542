"""What lets a waiting workload in: the smallest thing that has to happen, found by playing the cluster's own state.

Each workload that runs in its tree ends once by itself, the nearest first. Where no such end suffices, they end one
after another, those of the lowest priority and the newest first. Where that does not help either, what waits ahead of
it is taken back. Whatever comes free is fought for by all that wait, as in the real Kueue: so an end whose room
somebody else takes is no help, however large it is.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.console.live import ranking
from gpu_tenancy.console.live.foreseen import ENDLESS, LEFT_OUT, named
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.scene import scene
from gpu_tenancy.console.live.workloads import Workload, ahead
from gpu_tenancy.model import admission

TRIES: Final = 64
"""The most ends that are tried, each by itself, and again one after another."""
WORK: Final = 24_000
"""The most workloads that are on the stage in all tries of one kind together: in a large tree less is tried."""
_LEAST: Final = 8
"""Tries in the largest tree."""
_ENOUGH: Final = 5
"""Ends that suffice by themselves, after which no more are looked for."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the simulation says of a workload that waits. Workloads are named `namespace/name`.

    Attributes:
        admitted: whether it is admitted as soon as Kueue looks at it.
        gone: who gives way for it then.
        why: why it waits; empty where it does not.
        ends: the end of each of these is enough by itself.
        together: where no end is: these are enough, one after another in this order.
        ahead: where those are not: what waits ahead of it, and has to be taken back.
        takers: who gets what the ends leave that were tried in vain.
        tried: how many ends were tried by themselves.
        running: how many workloads run in its tree.
        in_turn: how many ends were tried one after another.
        left_out: what the simulation does not know and the cluster uses; empty for nothing.
    """

    admitted: bool
    gone: tuple[str, ...] = ()
    why: str = ""
    ends: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    takers: tuple[str, ...] = ()
    tried: int = 0
    running: int = 0
    in_turn: int = 0
    left_out: str = ""

    @property
    def behind(self) -> bool:
        """Whether it waits for the head of its StrictFIFO queue, and not for itself."""
        return self.why.startswith("waits behind ")

    @property
    def reason(self) -> str:
        """Why it waits, as a sentence of its own."""
        return f"it {self.why}" if self.why.startswith(("waits ", "was ")) else self.why

    @property
    def words(self) -> Iterator[str]:
        """It in sentences."""
        if self.admitted:
            who = f"{named(self.gone)} {'give' if len(self.gone) > 1 else 'gives'} way" if self.gone else ""
            yield f"simulated, Kueue admits it at its next look, and {who or 'nobody gives way'}"
        else:
            yield f"simulated, {self.reason if self.reason != self.why else f'it waits: {self.why}'}"
            yield from self._opening
        if self.left_out:
            yield f"{LEFT_OUT}: {self.left_out}"

    @property
    def _opening(self) -> Iterator[str]:
        tried = f"{self.tried} of the {self.running} that run in its tree"
        if self.ends:
            who = f"{self.ends[0]}" if len(self.ends) == 1 else f"any one of these: {named(self.ends)}"
            yield f"simulated, it is let in by the end of {who} (tried: {tried})"
        elif self.running:
            yield f"simulated, no end of one workload lets it in (tried: {tried})"
        if self.takers:
            whose = "the others leave" if self.ends else "they leave"
            yield f"what {whose} goes to those who come first: {named(self.takers)}"
        if self.together:
            yield f"simulated, it is let in once these {len(self.together)} have ended: {named(self.together)}"
        elif self.in_turn > 1:
            yield f"simulated, {self.in_turn} that end one after another, the lowest priority first, do not let it in"
        if self.ahead:
            yield f"simulated, it is let in once this is taken back, which waits ahead of it: {named(self.ahead)}"


def find_entry(queues: Queues, workload: Workload) -> Entry | str:
    """Plays the tree of a workload that waits, or says why it cannot be played."""
    target = queues.queue_of(workload)
    found = scene(queues, target)
    if isinstance(found, str):
        return found
    simulation = found.play()
    if simulation.rest():
        return ENDLESS
    start = simulation.settled()
    waits = next((each for each in start.pending if each.name == workload.label), None)
    if waits is None:
        return Entry(admitted=True, gone=_gone(start, workload.label), left_out=found.left_out)
    there = {each.name for each in start.pending}
    before = [each for each in ahead(workload, queues.members.get(target, ())) if each.label in there]
    search = _Search(simulation.fork(), workload.label, start, max(_LEAST, min(TRIES, WORK // len(found.actors))))
    blocked = before[0] if before and queues.tree.queues[target].strict else workload
    ends, takers, tried = search.alone(ranking.alone(queues, found, blocked, start))
    together, turns = ((), 0) if ends else search.in_turn(ranking.in_turn(queues, found, blocked, start))
    if len(together) == 1:  # It was too far away to be tried by itself.
        ends, together = together, ()
    first = () if ends or together else search.in_turn([each.label for each in before])[0]
    return Entry(
        admitted=False,
        why=waits.why,
        ends=ends,
        together=together,
        ahead=first,
        takers=takers,
        tried=tried,
        running=len(start.admitted),
        in_turn=turns,
        left_out=found.left_out,
    )


def _gone(state: admission.Settled, name: str) -> tuple[str, ...]:
    """Who was preempted for a workload and does not run again."""
    running = {each.name for each in state.admitted}
    return tuple(dict.fromkeys(each.name for each in state.evicted if each.by == name and each.name not in running))


class _Search:
    """Ends of workloads, each from the same start."""

    def __init__(
        self, fork: Callable[[], admission.Simulation], name: str, start: admission.Settled, bound: int
    ) -> None:
        self._fork = fork
        self._name = name
        self._running = {each.name for each in start.admitted}
        self._bound = bound

    def alone(self, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """The ends that suffice by themselves, who took what the others left, and how many were tried."""
        enough: list[str] = []
        takers: Counter[str] = Counter()
        tried = 0
        for name in names[: self._bound]:
            tried += 1
            running = _after(self._fork(), name)
            if self._name in running:
                enough.append(name)
                if len(enough) == _ENOUGH:
                    break
            else:
                takers.update(running - self._running)
        return tuple(enough), tuple(name for name, _ in takers.most_common()), tried

    def in_turn(self, names: Sequence[str]) -> tuple[tuple[str, ...], int]:
        """Those whose ends, one after another, let it in, without such as are not needed; and how many were tried."""
        found = self._prefix(names[: self._bound])
        if not found:
            return (), min(self._bound, len(names))
        tried = len(found)
        left = 2 * self._bound  # Ends that may still be played to find out who is not needed.
        for name in found[:-1]:
            fewer = [each for each in found if each != name]
            if len(fewer) > left:
                break
            left -= len(fewer)
            if self._prefix(fewer) == fewer:
                found = fewer
        return tuple(found), tried

    def _prefix(self, names: Sequence[str]) -> list[str]:
        """The first of these whose ends let it in; none where all of them do not."""
        simulation = self._fork()
        for count, name in enumerate(names, 1):
            if self._name in _after(simulation, name):
                return list(names[:count])
        return []


def _after(simulation: admission.Simulation, name: str) -> frozenset[str]:
    """Who runs after a workload has ended; nobody where the tree does not come to rest any more."""
    simulation.finish(name)
    if simulation.rest():
        return frozenset()
    return frozenset(each.name for each in simulation.settled().admitted)
