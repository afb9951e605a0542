"""Which proofs stand on what, so that a change finds those that it breaks without looking at the others."""

import heapq
from collections.abc import Iterator

from gpu_tenancy.model.admission.claims import Queue
from gpu_tenancy.model.admission.proofs import Proof, Standing
from gpu_tenancy.model.admission.quota import Node, edges
from gpu_tenancy.model.admission.shares import Share, borrows_any, share


class Watch:
    """Proofs of one tree.

    What happens in a queue breaks its own proofs at once. What it does to others counts when it is asked for: in
    between one may leave and another take its room.
    """

    def __init__(self, resources: list[int]) -> None:
        self._resources = resources
        self._count = 0
        self._own: dict[Queue, list[Proof]] = {}
        # The one that breaks first is first: of amounts the largest bound, of shares the smallest.
        self._bounds: dict[Node, dict[int, list[tuple[int, int, Proof]]]] = {}
        self._shares: dict[Node, list[tuple[Share, int, Proof]]] = {}
        self._lower: dict[int, list[tuple[int, int, Proof]]] = {}
        self._fallen: list[Proof] = []
        self._left: dict[Node, None] = {}
        self._came: dict[Node, Node] = {}
        self._grown: dict[Queue, None] = {}

    def add(self, proof: Proof) -> None:
        """Watches a new proof."""
        self._own.setdefault(proof.queue, []).append(proof)
        self.again(proof)

    def again(self, proof: Proof) -> None:
        """Watches a proof that holds, or holds again."""
        proof.standing = Standing.HOLDS
        self._count += 1
        for node, key, bound in proof.grounds.bounds:
            heap = self._bounds.setdefault(node, {}).setdefault(key, [])
            heapq.heappush(heap, (-bound, self._count, proof))
        for cohort, _, size in proof.grounds.shares:
            heapq.heappush(self._shares.setdefault(cohort, []), (size, self._count, proof))
        for key, priority in proof.grounds.lower:
            heapq.heappush(self._lower.setdefault(key, []), (-priority, self._count, proof))

    def left(self, queue: Queue) -> None:
        """Something that ran in a queue has left."""
        self._changed(queue)
        self._left.update(dict.fromkeys(queue.path))

    def came(self, queue: Queue) -> None:
        """Something runs in a queue that did not."""
        self._changed(queue)
        self._grown[queue] = None
        self._came.update(edges(queue))

    def broken(self) -> Iterator[Proof]:
        """The proofs that have fallen, and those that are doubtful in the state as it is, each once."""
        yield from self._fallen
        self._fallen.clear()
        yield from self._by_bounds()
        self._left.clear()
        yield from self._by_shares()
        self._came.clear()
        yield from self._by_priority()
        self._grown.clear()

    def _by_bounds(self) -> Iterator[Proof]:
        for node in self._left:
            for key, heap in self._bounds.get(node, {}).items():
                while heap and -heap[0][0] >= node.used[key]:
                    yield from _doubted(heapq.heappop(heap)[2])

    def _by_shares(self) -> Iterator[Proof]:
        for node, cohort in self._came.items():
            heap = self._shares.get(cohort)
            if not heap or not borrows_any(node):
                continue
            size = share(node, self._resources)
            while heap and heap[0][0] <= size:
                yield from _doubted(heapq.heappop(heap)[2])

    def _by_priority(self) -> Iterator[Proof]:
        for queue in self._grown:
            priorities = [each.priority for each in queue.running]
            for key, heap in self._lower.items():
                if queue.used[key] <= queue.subtree[key]:
                    continue
                while heap and any(each < -heap[0][0] for each in priorities):
                    yield from _doubted(heapq.heappop(heap)[2])

    def _changed(self, queue: Queue) -> None:
        for proof in self._own.pop(queue, ()):
            if proof.standing is not Standing.FALLEN:
                proof.standing = Standing.FALLEN
                self._fallen.append(proof)


def _doubted(proof: Proof) -> Iterator[Proof]:
    if proof.standing is Standing.HOLDS:
        proof.standing = Standing.DOUBTFUL
        yield proof
