"""Who waits in a queue, in which order, and who waits aside until something changes.

What a queue cannot admit goes aside, except from a StrictFIFO queue, whose head stays and blocks. Whatever ends
anywhere in the tree brings everything that is aside back. A workload that has just found nothing takes its equals with
it (the same priority and requests), and so do later arrivals of that shape: they would find nothing either.
Rules: pkg/cache/queue of kubernetes-sigs/kueue at v0.19.2.
"""

import heapq
from collections.abc import Hashable

from model.admission.claims import Claim
from model.admission.spec import Strategy
from model.admission.verdicts import Verdict


class Line:
    """The waiting side of one queue.

    Attributes:
        sticky: the workload that preempts others at the moment; it stays ahead of all, whatever their priority. Only
            where the strategy is BestEffortFIFO: a StrictFIFO queue needs no such help.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strict = strategy is Strategy.STRICT
        self.sticky: Claim | None = None
        self._heap: list[tuple[int, int, Claim]] = []
        self._in_line: dict[Claim, None] = {}
        self._shapes: dict[Hashable, dict[Claim, None]] = {}
        self._aside: dict[Claim, None] = {}
        self._hopeless: dict[Hashable, Verdict | None] = {}

    def __bool__(self) -> bool:
        """Whether a scheduling cycle finds a head here."""
        return bool(self._in_line)

    @property
    def head(self) -> Claim | None:
        """Who is next; None where nobody is in line."""
        if self.sticky is not None and self.sticky in self._in_line:
            return self.sticky
        # What was dropped is skipped when it surfaces; who came back is there twice, harmlessly.
        while self._heap and self._heap[0][2] not in self._in_line:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    @property
    def state(self) -> Hashable:
        """All that decides who is the next head."""
        sticky = None if self.sticky is None else self.sticky.born
        return sticky, frozenset(each.born for each in self._in_line), frozenset(self._hopeless)

    def arrive(self, claim: Claim) -> None:
        """A new workload, or one whose eviction is complete."""
        if not self.strict and claim.shape in self._hopeless:
            self._aside[claim] = None
            claim.verdict = self._hopeless[claim.shape]
        else:
            self._push(claim)

    def pop(self) -> Claim:
        """Takes the head: the sticky one, else the highest priority, else the oldest."""
        head = self.head
        if head is None:
            msg = "nobody waits in line"
            raise IndexError(msg)
        self._drop(head)
        return head

    def back(self, claim: Claim) -> None:
        """Returns a head to its place, to be tried in the next cycle."""
        self._push(claim)

    def aside(self, claim: Claim, *, hopeless: bool) -> None:
        """Puts a head aside until something changes; its equals too where there was nothing to find."""
        self._aside[claim] = None
        if hopeless and not self.strict:
            self._hopeless[claim.shape] = claim.verdict
            for equal in tuple(self._shapes.get(claim.shape, ())):
                self._drop(equal)
                self._aside[equal] = None
                equal.verdict = claim.verdict

    def wake(self) -> bool:
        """Brings back what is aside; whether there was anything."""
        self._hopeless.clear()
        found = bool(self._aside)
        for claim in self._aside:
            self._push(claim)
        self._aside = {}
        return found

    def forget(self, claim: Claim) -> None:
        """A workload that is admitted or has ended."""
        if claim in self._in_line:
            self._drop(claim)
        self._aside.pop(claim, None)
        if self.sticky is claim:
            self.sticky = None

    def _push(self, claim: Claim) -> None:
        self._in_line[claim] = None
        self._shapes.setdefault(claim.shape, {})[claim] = None
        heapq.heappush(self._heap, (-claim.priority, claim.born, claim))

    def _drop(self, claim: Claim) -> None:
        del self._in_line[claim]
        equals = self._shapes[claim.shape]
        del equals[claim]
        if not equals:
            del self._shapes[claim.shape]
        if self._heap and self._heap[0][2] is claim:
            heapq.heappop(self._heap)
