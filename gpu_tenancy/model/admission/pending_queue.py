"""Who waits in a queue, in which order, and who waits aside until something changes.

What a queue cannot admit goes aside, except from a StrictFIFO queue, whose head stays and blocks. Whatever ends
anywhere in the tree brings everything that is aside back. A workload that has just found nothing takes its equals with
it (the same priority and requests), and so do later arrivals of that shape: they would find nothing either.
Rules: pkg/cache/queue of kubernetes-sigs/kueue at v0.19.2.
"""

import heapq
from collections.abc import Hashable

from gpu_tenancy.model.admission.spec import Strategy
from gpu_tenancy.model.admission.verdicts import Verdict
from gpu_tenancy.model.admission.workload_info import WorkloadInfo


class PendingQueue:
    """The waiting side of one queue.

    Attributes:
        sticky: the workload that preempts others at the moment; it stays ahead of all, whatever their priority. Only
            where the strategy is BestEffortFIFO: a StrictFIFO queue needs no such help.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strict = strategy is Strategy.STRICT
        self.sticky: WorkloadInfo | None = None
        self._heap: list[tuple[int, int, WorkloadInfo]] = []
        self._in_line: dict[WorkloadInfo, None] = {}
        self._shapes: dict[Hashable, dict[WorkloadInfo, None]] = {}
        self._aside: dict[WorkloadInfo, None] = {}
        self._hopeless: dict[Hashable, Verdict | None] = {}

    @property
    def head(self) -> WorkloadInfo | None:
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

    def arrive(self, claim: WorkloadInfo) -> None:
        """A new workload, or one whose eviction is complete."""
        if not self.strict and claim.shape in self._hopeless:
            self._aside[claim] = None
            claim.verdict = self._hopeless[claim.shape]
        else:
            self._push(claim)

    def aside(self, claim: WorkloadInfo) -> None:
        """Puts the head aside until something changes, and its equals with it: there is nothing to find for them."""
        self._drop(claim)
        self._aside[claim] = None
        self._hopeless[claim.shape] = claim.verdict
        for equal in tuple(self._shapes.get(claim.shape, ())):
            self._drop(equal)
            self._aside[equal] = None
            equal.verdict = claim.verdict

    def wake(self) -> None:
        """Brings back what is aside."""
        back, self._aside = self._aside, {}
        self._hopeless = {}
        for claim in back:
            self._push(claim)

    def forget(self, claim: WorkloadInfo) -> None:
        """A workload that is admitted or has ended."""
        if claim in self._in_line:
            self._drop(claim)
        self._aside.pop(claim, None)
        if self.sticky is claim:
            self.sticky = None

    def _push(self, claim: WorkloadInfo) -> None:
        self._in_line[claim] = None
        self._shapes.setdefault(claim.shape, {})[claim] = None
        heapq.heappush(self._heap, (-claim.priority, claim.born, claim))

    def _drop(self, claim: WorkloadInfo) -> None:
        del self._in_line[claim]
        equals = self._shapes[claim.shape]
        del equals[claim]
        if not equals:
            del self._shapes[claim.shape]
        if self._heap and self._heap[0][2] is claim:
            heapq.heappop(self._heap)
