"""Lets one tree come to rest after something has happened to it, with a guard for the case that it never does."""

from collections import Counter
from collections.abc import Hashable
from typing import Final

from gpu_tenancy.model.admission.candidates import Victim
from gpu_tenancy.model.admission.clock import Clock
from gpu_tenancy.model.admission.cohort_tree import Tree
from gpu_tenancy.model.admission.cycle import Turn, run_cycle
from gpu_tenancy.model.admission.pool import Pool
from gpu_tenancy.model.admission.verdicts import Outcome, Verdict
from gpu_tenancy.model.admission.workload_info import Eviction, Scan, WorkloadInfo

PATIENCE: Final = 64
"""Events after which the guard begins to compare states: most settle in a few."""
TIMES: Final = 25
"""Evictions of one workload after which it is called endless although no state came again: where several circles turn
in one tree, each at its own pace, the whole state may not come again for very long."""

_FOUND: Final = (Outcome.ADMITTED, Outcome.PREEMPTING)
_BEATEN: Final = (Outcome.OVERTAKEN, Outcome.CONTESTED_VICTIMS)
"""Another was faster."""


class Runner:
    """One tree in motion.

    Attributes:
        endless: whether it went round in circles when it was last to come to rest, as the real Kueue would.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.clock = Clock()
        self.endless = False
        self._dirty = False
        self._pool = Pool(tree.queues.values(), tree.resources)
        self._cycle = 0
        self._evicted: Counter[WorkloadInfo] = Counter()

    def submit(self, claim: WorkloadInfo) -> None:
        """A workload arrives."""
        self.tree.lines[claim.queue].arrive(claim)
        self._dirty = True

    def finish(self, claim: WorkloadInfo) -> None:
        """A workload ends, whether it ran or waited; either way those aside are looked at again."""
        self.tree.lines[claim.queue].forget(claim)
        if claim.running:
            self._release(claim)
        self.clock.ended()
        self._dirty = True

    def rest(self) -> None:
        """Runs cycles, and lets time pass, until nothing changes any more or the guard sees that it never ends."""
        self.endless = False
        if not self._dirty:
            return
        self._dirty = False
        self._evicted.clear()
        seen: set[Hashable] = set()
        events = 0
        self._cycles()
        while (due := self.clock.advance()) is not None:
            self._happen(*due)
            self._cycles()
            events += 1
            most = max(self._evicted.values(), default=0)
            # What goes round in circles evicts the same workloads again and again.
            if events > PATIENCE and most > 1:
                state = self._state()
                if state in seen or most > TIMES:
                    self.endless = True
                    return
                seen.add(state)

    def _happen(self, gone: list[WorkloadInfo], woken: bool) -> None:  # noqa: FBT001 - a pair, as the clock gives it
        for claim in gone:
            if not claim.evicting:
                continue  # It has ended in the meantime.
            self._release(claim)
            self.tree.lines[claim.queue].arrive(claim)
        if gone:
            self.clock.ended()
        if woken:
            for line in self.tree.lines.values():
                line.wake()

    def _release(self, claim: WorkloadInfo) -> None:
        queue = claim.queue
        queue.free(claim.usage)
        del queue.running[claim]
        queue.generation += 1
        claim.running = claim.evicting = False
        claim.usage, claim.flavors, claim.scan, claim.verdict = (), (), None, None
        self._pool.touch(queue)

    def _cycles(self) -> None:
        """Cycles until one changes nothing, or until only the progress through flavors goes round."""
        idle: set[Hashable] = set()
        while heads := [head for line in self.tree.lines.values() if (head := line.head)]:
            self._cycle += 1
            turns = run_cycle(self.tree, heads, self._cycle, self._pool)
            changed = [self._conclude(turn) for turn in turns]
            if any(changed):
                idle = set()
                continue
            mark = frozenset((head.born, _progress(head.scan)) for head in heads if _unfinished(head))
            if mark in idle:
                break
            idle.add(mark)

    def _conclude(self, turn: Turn) -> bool:
        """What follows from the turn of a head; whether anything has changed by it."""
        claim = turn.head.claim
        claim.verdict = _verdict(turn)
        claim.scan = None if turn.outcome in _FOUND else turn.head.assignment.scan
        if turn.outcome is Outcome.ADMITTED:
            self._admit(turn)
            return True
        if turn.outcome is Outcome.PREEMPTING:
            self.tree.lines[claim.queue].sticky = claim
            changed = [self._evict(each, claim) for each in turn.head.victims]
            return any(changed)
        line = self.tree.lines[claim.queue]
        if turn.outcome in _BEATEN or _unfinished(claim) or line.strict:
            return False
        line.aside(claim)
        return True

    def _admit(self, turn: Turn) -> None:
        claim, assignment = turn.head.claim, turn.head.assignment
        flavors = tuple({resource: each.flavor for resource, each in found.items()} for found in assignment.sets)
        claim.start(assignment.asks, flavors, second=self.clock.second)
        claim.queue.running[claim] = None
        self._pool.touch(claim.queue)
        self.tree.lines[claim.queue].forget(claim)

    def _evict(self, victim: Victim, by: WorkloadInfo) -> bool:
        claim = victim.claim
        if claim.evicting:
            return False
        claim.evicting = True
        self._pool.touch(claim.queue)
        self._evicted[claim] += 1
        claim.evictions.append(Eviction(by.name, victim.reason, self.clock.now / 1000))
        self.clock.evict(claim)
        return True

    def _state(self) -> Hashable:
        """All that decides what happens next, but for the time that it is."""
        running = [claim for queue in self.tree.queues.values() for claim in queue.running]
        newest_first = sorted({claim.reserved for claim in running}, reverse=True)
        seconds = {second: place for place, second in enumerate(newest_first)}
        return (
            frozenset((each.born, each.usage, each.evicting, seconds[each.reserved]) for each in running),
            tuple(line.state for line in self.tree.lines.values()),
            self.clock.pending,
        )


def _unfinished(claim: WorkloadInfo) -> bool:
    """Whether a head goes on with its next flavors in the next cycle."""
    return claim.scan is not None and claim.scan.unfinished


def _progress(scan: Scan | None) -> Hashable:
    return None if scan is None else tuple(tuple(each.items()) for each in scan.tried)


def _verdict(turn: Turn) -> Verdict:
    head = turn.head
    return Verdict(turn.outcome, tuple(head.assignment.lacks), tuple(each.claim.name for each in head.victims))
