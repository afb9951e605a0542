"""Lets one tree come to rest after something has happened to it, with a guard for the case that it never does."""

from collections import Counter
from collections.abc import Hashable
from typing import Final

from model.admission.candidates import Victim
from model.admission.claims import Claim, Eviction, Scan
from model.admission.clock import Clock
from model.admission.cycle import Turn, run_cycle
from model.admission.forest import Tree
from model.admission.verdicts import Outcome, Verdict

PATIENCE: Final = 64
"""Events after which the guard begins to compare states: most settle in a few."""
TIMES: Final = 25
"""Evictions of one workload after which it is called endless although no state came again: where several circles turn
in one tree, each at its own pace, the whole state may not come again for very long."""


class Realm:
    """One tree in motion.

    Attributes:
        endless: whether it went round in circles when it was last to come to rest, as the real Kueue would.
        cycles: how many scheduling cycles there were.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.clock = Clock()
        self.cycles = 0
        self.endless = False
        self._dirty = False
        self._evicted: Counter[Claim] = Counter()

    def submit(self, claim: Claim) -> None:
        """A workload arrives."""
        self.tree.lines[claim.queue].arrive(claim)
        self._dirty = True

    def finish(self, claim: Claim) -> None:
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
            if events > PATIENCE:
                state = self._state()
                if state in seen or max(self._evicted.values(), default=0) > TIMES:
                    self.endless = True
                    return
                seen.add(state)

    def _happen(self, gone: list[Claim], woken: bool) -> None:  # noqa: FBT001 - a pair, as the clock gives it
        for claim in gone:
            self._release(claim)
            self.tree.lines[claim.queue].arrive(claim)
        if gone:
            self.clock.ended()
        if woken:
            for line in self.tree.lines.values():
                line.wake()

    def _release(self, claim: Claim) -> None:
        queue = claim.queue
        queue.free(claim.usage)
        del queue.running[claim]
        queue.generation += 1
        claim.running = claim.evicting = False
        claim.usage, claim.flavors, claim.scan, claim.verdict = (), (), None, None

    def _cycles(self) -> None:
        """Cycles until one changes nothing, or until only the progress through flavors goes round."""
        idle: set[Hashable] = set()
        while True:
            lines = [line for line in self.tree.lines.values() if line]
            if not lines:
                return
            heads = [line.pop() for line in lines]
            self.cycles += 1
            changed = False
            for turn in run_cycle(self.tree, heads, self.cycles):
                changed = self._after(turn) or changed
            if changed:
                idle = set()
                continue
            mark = tuple((head.born, _progress(head.scan)) for head in heads)
            if mark in idle:
                return
            idle.add(mark)

    def _after(self, turn: Turn) -> bool:
        """What follows from a head's turn; whether anything has changed by it."""
        claim, assignment = turn.head.claim, turn.head.assignment
        line = self.tree.lines[claim.queue]
        claim.verdict = Verdict(
            turn.outcome, tuple(assignment.lacks), tuple(each.claim.name for each in turn.head.victims)
        )
        if turn.outcome is Outcome.ADMITTED:
            self._admit(turn)
            return True
        claim.scan = assignment.scan
        if turn.outcome is Outcome.PREEMPTING:
            claim.scan = None
            changed = [self._evict(each, claim) for each in turn.head.victims]
            if line.sticky is not claim:
                line.sticky = claim
            line.back(claim)
            return any(changed)
        found_nothing = turn.outcome in (Outcome.NO_FIT, Outcome.NO_VICTIMS)
        if line.strict or not found_nothing or (claim.scan is not None and claim.scan.unfinished):
            line.back(claim)
            return False
        line.aside(claim, hopeless=True)
        return True

    def _admit(self, turn: Turn) -> None:
        claim, assignment = turn.head.claim, turn.head.assignment
        claim.running = True
        claim.usage = assignment.asks
        claim.flavors = tuple({resource: each.flavor for resource, each in found.items()} for found in assignment.sets)
        claim.reserved = self.clock.second
        claim.scan = None
        claim.queue.running[claim] = None
        self.tree.lines[claim.queue].forget(claim)

    def _evict(self, victim: Victim, by: Claim) -> bool:
        claim = victim.claim
        if claim.evicting:
            return False
        claim.evicting = True
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


def _progress(scan: Scan | None) -> Hashable:
    return None if scan is None else tuple(tuple(each.items()) for each in scan.tried)
