"""In which order the heads of the queues get their turn in one scheduling cycle.

Without fair sharing: who would not borrow before who would, and the nearer the better; then priority; then age. With
it: a tournament in which every cohort sends up the child whose share would be the smallest with its head admitted, but
first those that would not borrow what they ask for. It is played again after every turn, since that changed the shares.
Rules: pkg/scheduler of kubernetes-sigs/kueue at v0.19.2.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gpu_tenancy.model.admission.candidates import Victim
from gpu_tenancy.model.admission.flavors import Assignment
from gpu_tenancy.model.admission.quota import Node
from gpu_tenancy.model.admission.shares import Share, borrows_for, share
from gpu_tenancy.model.admission.workload_info import WorkloadInfo


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A queue's head with what it would be admitted with, and whom it would preempt for that."""

    claim: WorkloadInfo
    assignment: Assignment
    victims: Sequence[Victim]


_Rank: TypeAlias = tuple[bool, Share, int, int]
"""Borrowing for what is asked, the share after admission, priority (negative), age."""


def classical(heads: Iterable[Head]) -> Iterator[Head]:
    """The turns without fair sharing."""
    return iter(sorted(heads, key=lambda each: (each.assignment.level, -each.claim.priority, each.claim.born)))


class Tournament:
    """The turns with fair sharing, in one tree; iterate over it and change usage in between."""

    def __init__(self, heads: Iterable[Head], resources: list[int]) -> None:
        self._resources = resources
        self._queues: dict[Node, list[tuple[_Rank, int, Head]]] = {}
        self._cohorts: dict[Node, dict[Node, tuple[_Rank, Head]]] = {}
        self._lone: list[Head] = []
        found = list(heads)
        for each in found:
            queue = each.claim.queue
            if queue.parent is None:
                self._lone.append(each)
                continue
            # A queue's share changes by its own head's turn alone, so its rank stands until then.
            heapq.heappush(self._queues.setdefault(queue.parent, []), (self._rank(queue, each), each.claim.born, each))
        for cohort in sorted({node for each in found for node in each.claim.queue.path}, key=lambda one: one.height):
            self._send_up(cohort)

    def __iter__(self) -> Iterator[Head]:
        """Each head once; the usage that its turn leaves behind counts for the next."""
        yield from self._lone
        roots = sorted((each for each in (*self._queues, *self._cohorts) if each.parent is None), key=_position)
        for root in dict.fromkeys(roots):
            while (found := self._winner(root)) is not None:
                head = found[1]
                parent = head.claim.queue.path[0]
                heapq.heappop(self._queues[parent])
                yield head
                for cohort in head.claim.queue.path:
                    self._send_up(cohort)

    def _winner(self, cohort: Node) -> tuple[_Rank, Head] | None:
        queues = self._queues.get(cohort)
        contenders = list(self._cohorts.get(cohort, {}).values())
        if queues:
            contenders.append((queues[0][0], queues[0][2]))
        return min(contenders, key=lambda each: each[0], default=None)

    def _send_up(self, cohort: Node) -> None:
        """Settles whom a cohort sends to its parent."""
        if cohort.parent is None:
            return
        found = self._winner(cohort)
        contenders = self._cohorts.setdefault(cohort.parent, {})
        contenders.pop(cohort, None)
        if found is not None:
            contenders[cohort] = (self._rank(cohort, found[1]), found[1])

    def _rank(self, node: Node, head: Head) -> _Rank:
        """How a head does as the contender of a queue, or of a cohort above it."""
        claim, asks = head.claim, head.assignment.asks
        claim.queue.use(asks)
        rank = (borrows_for(node, asks), share(node, self._resources), -claim.priority, claim.born)
        claim.queue.free(asks)
        return rank


def _position(node: Node) -> int:
    return node.position
