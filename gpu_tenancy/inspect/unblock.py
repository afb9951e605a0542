"""What would get a pending workload admitted: the smallest change, found by simulating the cluster's current state.

First each running workload of its cohort tree ends alone, the nearest first. If no such end is enough, they end in
sequence, lowest priority and newest first. If that is not enough either, the workloads ahead of it are removed. All
pending workloads compete for the freed quota, as in Kueue: an end whose quota another workload gets does not count.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy import kueue
from gpu_tenancy.inspect import ranking
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.snapshot import NotSimulated, settled
from gpu_tenancy.inspect.workloads import Workload, ahead
from gpu_tenancy.kueue import Unmodelled

TRIES: Final = 64
"""Upper bound of ends that are tested alone, and of those that are tested in sequence."""
WORK: Final = 24_000
"""Upper bound of simulated workloads in all tests of one kind together: fewer ends are tested in a large tree."""
_LEAST: Final = 8
"""Ends that are tested in the largest tree."""
_ENOUGH: Final = 5
"""Sufficient ends after which the search stops."""


@dataclass(frozen=True, slots=True)
class Unblock:
    """The simulated outcome for a pending workload. Workloads are named `namespace/name`.

    Attributes:
        admitted: whether the next scheduling cycle admits it.
        gone: workloads that are preempted for it then.
        why: why it is pending; empty where it is admitted.
        ends: the end of any one of these is enough.
        together: the end of all of these, in this order, is enough; only where there are no `ends`.
        ahead: the removal of these pending workloads ahead of it is enough; only where nothing else is.
        takers: who gets the quota that the other tested ends free.
        tried: how many ends were tested alone.
        running: how many workloads run in its cohort tree.
        in_turn: how many ends were tested in sequence.
        left_out: what the cluster uses and the simulation does not cover.
        behind: the head of its StrictFIFO queue, if it waits for that one.
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
    left_out: tuple[Unmodelled, ...] = ()
    behind: str = ""


def find_unblock(queues: Queues, workload: Workload) -> Unblock | NotSimulated:
    """Simulates the cohort tree of a pending workload."""
    target = queues.queue_of(workload)
    begun = settled(queues, target)
    if isinstance(begun, NotSimulated):
        return begun
    snapshot, simulation = begun
    start = simulation.settled()
    pending = {each.name: each for each in start.pending}
    if workload.label not in pending:
        return Unblock(admitted=True, gone=_gone(start, workload.label), left_out=snapshot.left_out)
    before = [other for other in ahead(workload, queues.members.get(target, ())) if other.label in pending]
    head = before[0] if before and queues.cluster_queues[target].strict else None
    blocked = head or workload
    bound = max(_LEAST, min(TRIES, WORK // len(snapshot.participants)))
    search = _Search(simulation.fork(), workload.label, start, bound)
    ends, takers, tried = search.alone(ranking.alone(queues, snapshot, blocked, start))
    together, turns = ((), 0) if ends else search.in_turn(ranking.in_turn(queues, snapshot, blocked, start))
    if len(together) == 1:  # It ranked too low to be tested alone.
        ends, together = together, ()
    first = () if ends or together else search.in_turn([other.label for other in before])[0]
    return Unblock(
        admitted=False,
        why=pending[workload.label].why,
        ends=ends,
        together=together,
        ahead=first,
        takers=takers,
        tried=tried,
        running=len(start.admitted),
        in_turn=turns,
        left_out=snapshot.left_out,
        behind=head.label if head else "",
    )


def _gone(state: kueue.Settled, name: str) -> tuple[str, ...]:
    """Workloads that were preempted for one and not admitted again."""
    running = {workload.name for workload in state.admitted}
    evicted = (eviction.name for eviction in state.evicted if eviction.by == name)
    return tuple(dict.fromkeys(workload for workload in evicted if workload not in running))


class _Search:
    """Simulates ends of workloads, each from the same state."""

    def __init__(self, fork: Callable[[], kueue.Simulation], name: str, start: kueue.Settled, bound: int) -> None:
        self._fork = fork
        self._name = name
        self._running = {workload.name for workload in start.admitted}
        self._bound = bound

    def alone(self, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """Ends that are enough alone, who gets the quota of the others, and how many ends were tested."""
        enough: list[str] = []
        takers: Counter[str] = Counter()
        tried = 0
        for name in names[: self._bound]:
            tried += 1
            running = _after(self._fork(), name) or frozenset()
            if self._name in running:
                enough.append(name)
                if len(enough) == _ENOUGH:
                    break
            else:
                takers.update(running - self._running)
        return tuple(enough), tuple(name for name, _ in takers.most_common()), tried

    def in_turn(self, names: Sequence[str]) -> tuple[tuple[str, ...], int]:
        """A minimal sequence of ends that is enough, and how many ends were tested."""
        sequence = self._prefix(names[: self._bound])
        if not sequence:
            return (), min(self._bound, len(names))
        tried = len(sequence)
        left = 2 * self._bound  # Ends that may still be simulated to find those that are not needed.
        for name in sequence[:-1]:
            fewer = [other for other in sequence if other != name]
            if len(fewer) > left:
                break
            left -= len(fewer)
            if self._prefix(fewer) == fewer:
                sequence = fewer
        return tuple(sequence), tried

    def _prefix(self, names: Sequence[str]) -> list[str]:
        """The shortest prefix whose ends are enough; empty where all of them are not.

        A livelock ends the search: nobody knows what runs when the next one ends.
        """
        simulation = self._fork()
        for count, name in enumerate(names, 1):
            running = _after(simulation, name)
            if running is None:
                return []
            if self._name in running:
                return list(names[:count])
        return []


def _after(simulation: kueue.Simulation, name: str) -> frozenset[str] | None:
    """Workloads that run after one has ended; None where the tree ends in a livelock."""
    simulation.finish(name)
    if simulation.rest():
        return None
    return frozenset(workload.name for workload in simulation.settled().admitted)
