"""Lets one tree come to rest after something has happened to it, with a guard for the case that it never does."""

from collections import Counter
from collections.abc import Hashable
from typing import Final

from gpu_tenancy.model.admission.attention import Attention
from gpu_tenancy.model.admission.candidates import Victim
from gpu_tenancy.model.admission.claims import Claim, Eviction, Scan
from gpu_tenancy.model.admission.clock import Clock
from gpu_tenancy.model.admission.cycle import LeftOut, Turn, run_cycle
from gpu_tenancy.model.admission.forest import Tree
from gpu_tenancy.model.admission.pool import Pool
from gpu_tenancy.model.admission.verdicts import Outcome, Verdict

PATIENCE: Final = 64
"""Events after which the guard begins to compare states: most settle in a few."""
TIMES: Final = 25
"""Evictions of one workload after which it is called endless although no state came again: where several circles turn
in one tree, each at its own pace, the whole state may not come again for very long."""

_NOTHING: Final = (Outcome.NO_FIT, Outcome.NO_VICTIMS)
"""There is nothing to find as long as nothing changes."""
_BEATEN: Final = (Outcome.OVERTAKEN, Outcome.CONTESTED_VICTIMS)
"""Another was faster."""


class Realm:
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
        self._attention = Attention(tree, self._pool)
        self._evicted: Counter[Claim] = Counter()

    def submit(self, claim: Claim) -> None:
        """A workload arrives."""
        self._attention.arrive(claim)
        self._dirty = True

    def finish(self, claim: Claim) -> None:
        """A workload ends, whether it ran or waited; either way those aside are looked at again."""
        self._attention.forget(claim)
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

    def _happen(self, gone: list[Claim], woken: bool) -> None:  # noqa: FBT001 - a pair, as the clock gives it
        for claim in gone:
            if not claim.evicting:
                continue  # It has ended in the meantime.
            self._release(claim)
            self._attention.arrive(claim)
        if gone:
            self.clock.ended()
        if woken:
            self._attention.bring_back()

    def _release(self, claim: Claim) -> None:
        queue = claim.queue
        queue.free(claim.usage)
        del queue.running[claim]
        queue.generation += 1
        claim.running = claim.evicting = False
        claim.usage, claim.flavors, claim.scan, claim.verdict = (), (), None, None
        self._pool.touch(queue)
        self._attention.left(queue)

    def _cycles(self) -> None:
        """Cycles until one changes nothing, or until only the progress through flavors goes round."""
        attention = self._attention
        idle: set[Hashable] = set()
        while heads := attention.heads():
            known = {head: None for head in heads if attention.knows(head)}
            asked = [head for head in heads if head not in known]
            turns = run_cycle(self.tree, asked, attention.cycle, self._pool, LeftOut(attention, known))
            # Who finds nothing is judged once more, when it is known who runs now.
            changed = [self._goes_on(turn) for turn in turns if turn.outcome not in _NOTHING]
            changed += [self._found_nothing(turn) for turn in turns if turn.outcome in _NOTHING]
            changed += [attention.nothing_again(head) for head in known]
            if any(changed) or attention.more_turns():
                idle = set()
                continue
            mark = frozenset((head.born, _progress(head.scan)) for head in heads if _unfinished(head))
            if mark in idle:
                break
            idle.add(mark)
        attention.rest()

    def _goes_on(self, turn: Turn) -> bool:
        """What follows from the turn of a head that found something; whether anything has changed by it."""
        claim = turn.head.claim
        claim.verdict = _verdict(turn)
        claim.scan = turn.head.assignment.scan if turn.outcome in _BEATEN else None
        if turn.outcome is Outcome.ADMITTED:
            self._admit(turn)
            return True
        if turn.outcome is Outcome.PREEMPTING:
            self.tree.lines[claim.queue].sticky = claim
            changed = [self._evict(each, claim) for each in turn.head.victims]
            return any(changed)
        return False

    def _found_nothing(self, turn: Turn) -> bool:
        """What follows from the turn of a head that found nothing; whether anything has changed by it."""
        claim = turn.head.claim
        claim.verdict = _verdict(turn)
        claim.scan = turn.head.assignment.scan
        if _unfinished(claim):
            return False
        return self._attention.nothing(claim)

    def _admit(self, turn: Turn) -> None:
        claim, assignment = turn.head.claim, turn.head.assignment
        flavors = tuple({resource: each.flavor for resource, each in found.items()} for found in assignment.sets)
        claim.start(assignment.asks, flavors, second=self.clock.second)
        claim.queue.running[claim] = None
        self._pool.touch(claim.queue)
        self._attention.came(claim)

    def _evict(self, victim: Victim, by: Claim) -> bool:
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


def _unfinished(claim: Claim) -> bool:
    """Whether a head goes on with its next flavors in the next cycle."""
    return claim.scan is not None and claim.scan.unfinished


def _progress(scan: Scan | None) -> Hashable:
    return None if scan is None else tuple(tuple(each.items()) for each in scan.tried)


def _verdict(turn: Turn) -> Verdict:
    head = turn.head
    return Verdict(turn.outcome, tuple(head.assignment.lacks), tuple(each.claim.name for each in head.victims))
