"""Who waits in a queue, in which order, and who waits aside until something changes.

What a queue cannot admit goes aside, except from a StrictFIFO queue, whose head stays and blocks. Whatever ends
anywhere in the tree brings everything that is aside back. A workload that has just found nothing takes its equals with
it (the same priority and requests), and so do later arrivals of that shape: they would find nothing either.
Rules: pkg/cache/queue of kubernetes-sigs/kueue at v0.19.2.
"""

import heapq
from collections.abc import Hashable

from gpu_tenancy.model.admission.claims import Claim
from gpu_tenancy.model.admission.proofs import Proof, Standing
from gpu_tenancy.model.admission.spec import Strategy
from gpu_tenancy.model.admission.verdicts import Verdict


class Line:
    """The waiting side of one queue.

    Attributes:
        sticky: the workload that preempts others at the moment; it stays ahead of all, whatever their priority. Only
            where the strategy is BestEffortFIFO: a StrictFIFO queue needs no such help.
        proofs: for shapes of which a workload was looked at: that it would find nothing again.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strict = strategy is Strategy.STRICT
        self.sticky: Claim | None = None
        self._heap: list[tuple[int, int, Claim]] = []
        self._in_line: dict[Claim, None] = {}
        self._shapes: dict[Hashable, dict[Claim, None]] = {}
        self._aside: dict[Claim, None] = {}
        self._hopeless: dict[Hashable, Verdict | None] = {}
        self.proofs: dict[Hashable, Proof] = {}
        self._turns: list[Claim] | None = None

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
            self._put_aside(claim)
            claim.verdict = self._hopeless[claim.shape]
        else:
            self._push(claim)

    def aside(self, claim: Claim) -> None:
        """Puts the head aside until something changes, and its equals with it: there is nothing to find for them."""
        self._drop(claim)
        self._put_aside(claim)
        self._hopeless[claim.shape] = claim.verdict
        for equal in tuple(self._shapes.get(claim.shape, ())):
            self._drop(equal)
            self._put_aside(equal)
            equal.verdict = claim.verdict

    @property
    def proven(self) -> bool:
        """Whether a look would change nothing: nobody is in line, and all who are aside would find nothing."""
        return not self._in_line and all(map(self.knows, self._hopeless))

    def knows(self, shape: Hashable) -> bool:
        """Whether it is proven that workloads of a shape find nothing."""
        proof = self.proofs.get(shape)
        return proof is not None and proof.standing is Standing.HOLDS

    def turns(self) -> list[Claim]:
        """Of those aside, the first of each shape, in the order in which they would be looked at."""
        if self._turns is None:
            found: dict[Hashable, Claim] = {}
            for claim in sorted(self._aside, key=lambda each: (each is not self.sticky, -each.priority, each.born)):
                found.setdefault(claim.shape, claim)
            self._turns = list(found.values())
        return self._turns

    def wake(self, after: int = 0) -> None:
        """Brings back what is aside, but for the shapes that have had their turn since all of them came back."""
        had = {claim.shape for claim in self.turns()[:after]} if after else set[Hashable]()
        back = [claim for claim in self._aside if claim.shape not in had]
        self._hopeless = {shape: verdict for shape, verdict in self._hopeless.items() if shape in had}
        for claim in back:
            self._take_back(claim)
            self._push(claim)

    def forget(self, claim: Claim) -> None:
        """A workload that is admitted or has ended."""
        if claim in self._in_line:
            self._drop(claim)
        if claim in self._aside:
            self._take_back(claim)
            # The last of its shape may have been the one that was looked at.
            self.proofs.pop(claim.shape, None)
        if self.sticky is claim:
            self.sticky = None

    def _put_aside(self, claim: Claim) -> None:
        self._aside[claim] = None
        self._turns = None

    def _take_back(self, claim: Claim) -> None:
        del self._aside[claim]
        self._turns = None

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
