"""Who could be preempted in a tree, and every node's share, kept from cycle to cycle.

A cluster's queues are many and a cycle changes few of them. So what is known about the others stays, and a queue is
looked at again after something in it has changed: a workload was admitted, was told to leave, or has left.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeAlias

from gpu_tenancy.model.admission.candidates import order, permits_elsewhere, uses
from gpu_tenancy.model.admission.quota import Node
from gpu_tenancy.model.admission.shares import Share, borrows_any, share
from gpu_tenancy.model.admission.spec import Policy
from gpu_tenancy.model.admission.workload_info import Queue, WorkloadInfo

Place: TypeAlias = tuple[bool, bool, int, int, int]
"""Where a workload stands in the order of victims."""

Key: TypeAlias = tuple[frozenset[int], Policy, int]
"""What is contested, by which policy and priority: all that decides who is a candidate elsewhere."""

_STAYS: Final = ((True,),)
"""Stands between those whose eviction is under way and the others."""


class Rank(NamedTuple):
    """A queue's turn to lose a workload: the largest share first, then the first candidate in the order of victims."""

    weightless: int
    value: float
    victim: Place

    @classmethod
    def of(cls, size: Share, victim: Place) -> "Rank":
        """A rank sorts ascending, a share descending."""
        return cls(-int(size.weightless), -size.value, victim)


class _Kept:
    """Something about the queues of a tree that is put right, when it is read, for those that have changed."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._stale = dict.fromkeys(queues)

    def touch(self, queue: Queue) -> None:
        """A queue has changed."""
        self._stale[queue] = None

    def _freshen(self) -> None:
        for queue in self._stale:
            self._put_right(queue)
        self._stale.clear()

    def _put_right(self, queue: Queue) -> None:
        raise NotImplementedError


class Running(_Kept):
    """What runs from borrowing queues and uses something that is contested, in the order of victims."""

    def __init__(self, queues: Iterable[Queue], contested: frozenset[int]) -> None:
        super().__init__(queues)
        self._contested = contested
        self._entries: list[tuple[Place, WorkloadInfo]] = []
        self._of: dict[Queue, list[tuple[Place, WorkloadInfo]]] = {}

    def reclaimable(self, policy: Policy, priority: int, *, evicting: bool) -> Iterator[WorkloadInfo]:
        """Those that a workload of a priority may preempt: whose eviction is under way, or the others."""
        self._freshen()
        border = bisect_left(self._entries, _STAYS)
        side = islice(self._entries, 0, border) if evicting else islice(self._entries, border, None)
        claims = (claim for _, claim in side)
        # They are in the order of their priorities, lowest first.
        return takewhile(lambda each: permits_elsewhere(policy, priority, each), claims)

    def _put_right(self, queue: Queue) -> None:
        for entry in self._of.pop(queue, ()):
            del self._entries[bisect_left(self._entries, entry)]
        if queue.within(self._contested):
            return
        found = [(order(None, each), each) for each in queue.running if uses(each, self._contested)]
        self._of[queue] = found
        for entry in found:
            insort(self._entries, entry)


class Ranked(_Kept):
    """The candidates elsewhere, for fair sharing.

    Attributes:
        claims: of each queue, the first one last.
        queues: of each cohort its queues, the next to lose a workload first.
        cohorts: of each cohort those below it that borrow and hold any of these queues, the next one last.
        holders: how many of these queues a cohort holds, whether it borrows or not; only those that hold any.
    """

    def __init__(self, pool: "Pool", key: Key | None) -> None:
        super().__init__(() if key is None else pool.queues)
        self._pool = pool
        self._key = key
        self.claims: dict[Queue, list[WorkloadInfo]] = {}
        self.queues: dict[Node, list[tuple[Rank, Queue]]] = {}
        self.cohorts: dict[Node, list[tuple[Share, int, Node]]] = {}
        self.holders: dict[Node, int] = {}
        self._ranks: dict[Queue, Rank] = {}
        self._shares: dict[Node, tuple[Share, int, Node]] = {}

    def now(self) -> "Ranked":
        """Itself, put right."""
        self._freshen()
        return self

    def _put_right(self, queue: Queue) -> None:
        if queue.parent is None:
            return
        self._drop(queue, queue.parent)
        claims = self._candidates(queue)
        if claims:
            self.claims[queue] = claims
            rank = self._ranks[queue] = Rank.of(self._pool.share(queue), order(None, claims[-1]))
            insort(self.queues.setdefault(queue.parent, []), (rank, queue))
            for cohort in queue.path:
                self.holders[cohort] = self.holders.get(cohort, 0) + 1
        for cohort in queue.path:
            self._place(cohort)

    def _drop(self, queue: Queue, parent: Node) -> None:
        rank = self._ranks.pop(queue, None)
        if rank is None:
            return
        del self.claims[queue]
        queues = self.queues[parent]
        del queues[bisect_left(queues, (rank,))]
        for cohort in queue.path:
            self.holders[cohort] -= 1
            if not self.holders[cohort]:
                del self.holders[cohort]

    def _candidates(self, queue: Queue) -> list[WorkloadInfo]:
        if self._key is None:
            return []
        contested, policy, priority = self._key
        if queue.within(contested):
            return []
        found = [each for each in queue.running if uses(each, contested) and permits_elsewhere(policy, priority, each)]
        return sorted(found, key=lambda each: order(None, each), reverse=True)

    def _place(self, cohort: Node) -> None:
        """A cohort among its siblings."""
        if cohort.parent is None:
            return
        siblings = self.cohorts.setdefault(cohort.parent, [])
        old = self._shares.pop(cohort, None)
        if old is not None:
            del siblings[bisect_left(siblings, old[:2], key=lambda each: each[:2])]
        if cohort in self.holders and borrows_any(cohort):
            new = self._shares[cohort] = (self._pool.share(cohort), -cohort.position, cohort)
            insort(siblings, new, key=lambda each: each[:2])


class Pool:
    """Candidates and shares of one tree.

    It is read between the cycles' changes, never while one of them is under way.

    Attributes:
        queues: of the tree.
        resources: for each number of a flavor and resource, the number of the resource.
    """

    def __init__(self, queues: Iterable[Queue], resources: list[int]) -> None:
        self.queues = tuple(queues)
        self.resources = resources
        self._running: dict[frozenset[int], Running] = {}
        self._ranked: dict[Key, Ranked] = {}
        self._shares: dict[Node, Share] = {}

    def touch(self, queue: Queue) -> None:
        """A workload of a queue was admitted, was told to leave, or has left."""
        for running in self._running.values():
            running.touch(queue)
        for ranked in self._ranked.values():
            ranked.touch(queue)
        for node in (queue, *queue.path):
            self._shares.pop(node, None)

    def share(self, node: Node) -> Share:
        """A node's share."""
        found = self._shares.get(node)
        if found is None:
            found = self._shares[node] = share(node, self.resources)
        return found

    def running(self, contested: frozenset[int]) -> Running:
        """What runs from borrowing queues and uses something that is contested."""
        found = self._running.get(contested)
        if found is None:
            found = self._running[contested] = Running(self.queues, contested)
        return found

    def ranked(self, contested: frozenset[int], policy: Policy, priority: int) -> Ranked:
        """The candidates of these queues by share."""
        # Whom the policy Any lets a workload preempt is no matter of its priority.
        key = contested, policy, 0 if policy is Policy.ANY else priority
        found = self._ranked.get(key)
        if found is None:
            found = self._ranked[key] = Ranked(self, key)
        return found.now()


def borrowed(root: Node, contested: frozenset[int]) -> bool:
    """Whether any queue of a tree uses more than it has of something that is contested."""
    todo = [root]
    while todo:
        node = todo.pop()
        # A cohort within its quota may still hold a queue that borrows from its siblings.
        todo += node.cohorts
        if any(each.leaf for each in node.over_in(contested)):
            return True
    return False
