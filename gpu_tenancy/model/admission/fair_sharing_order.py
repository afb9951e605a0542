"""Which queue is the next to lose a workload to fair sharing: the largest share, level by level from the root."""

from collections.abc import Iterable

from gpu_tenancy.model.admission.candidates import order
from gpu_tenancy.model.admission.pool import Pool, Rank, Ranked
from gpu_tenancy.model.admission.quota import Node, edges
from gpu_tenancy.model.admission.shares import Share, borrows_any, share
from gpu_tenancy.model.admission.workload_info import Queue, WorkloadInfo

_NONE = Share(weightless=False, value=-1.0)


class Ranking:
    """The candidates of one search, on top of what a pool knows about them.

    What the search changes is kept here: queues that have lost a workload or a candidate, and every node whose share
    is no longer that of the pool, which begins with the path of the preemptor.
    """

    def __init__(self, preemptor: Queue, mine: list[WorkloadInfo], pool: Pool, elsewhere: Ranked | None) -> None:
        self._preemptor = preemptor
        self._pool = pool
        self._base = elsewhere or Ranked(pool, None)
        self._touched: set[Node] = {preemptor, *preemptor.path}
        # In place of the pool's, for the queues that this search has had to do with; the first claim is last.
        self._claims: dict[Queue, list[WorkloadInfo]] = {preemptor: mine[::-1]}
        self._read: dict[Node, int] = {}
        self._back: dict[Node, dict[Queue, None]] = {}
        self._done: set[Node] = set()
        # Children of a cohort whose share is not the pool's.
        self._near: dict[Node, dict[Node, None]] = {}
        self._read_far: dict[Node, int] = {}
        if mine and preemptor.path:
            self._back[preemptor.path[0]] = {preemptor: None}
        for child, cohort in zip(preemptor.path, preemptor.path[1:], strict=False):
            if mine or child in self._base.holders:
                self._near[cohort] = {child: None}

    def again(self, spared: Iterable[WorkloadInfo]) -> "Ranking":
        """Another search over these alone, in the state that this one has left behind."""
        # What the first search removed has changed shares, so nothing of the pool stands.
        other = Ranking(self._preemptor, [], Pool((), self._pool.resources), None)
        claims: dict[Queue, list[WorkloadInfo]] = {}
        for claim in sorted(spared, key=lambda each: order(None, each), reverse=True):
            claims.setdefault(claim.queue, []).append(claim)
        other._claims |= claims
        for queue in claims:
            other._back.setdefault(queue.path[0], {})[queue] = None
            other._touch(queue)
        return other

    def share(self, node: Node) -> Share:
        """A node's share at this point of the search."""
        return share(node, self._pool.resources) if node in self._touched else self._pool.share(node)

    def smaller_somewhere(self) -> bool:
        """Whether the preemptor's side is no larger than the largest other side, in any cohort above it.

        Where it is larger everywhere, no strategy lets it preempt anybody in another queue.
        """
        for node, cohort in edges(self._preemptor):
            mine = self.share(node)
            queues = (queue for _, queue in self._base.queues.get(cohort, ()) if queue is not node)
            cohorts = (each for *_, each in reversed(self._base.cohorts.get(cohort, ())) if each is not node)
            others = (next(queues, None), next(cohorts, None))
            if any(other is not None and mine <= self._pool.share(other) for other in others):
                return True
        return False

    def first(self, queue: Queue) -> WorkloadInfo | None:
        """A queue's first candidate."""
        claims = self._of(queue)
        return claims[-1] if claims else None

    def skip(self, queue: Queue) -> None:
        """Leaves out a queue's first candidate."""
        self._own(queue).pop()

    def take(self, queue: Queue) -> WorkloadInfo:
        """Removes a queue's first candidate from the tree."""
        claim = self._own(queue).pop()
        queue.free(claim.usage)
        self._touch(queue)
        return claim

    def rest(self, queue: Queue) -> list[WorkloadInfo]:
        """All candidates that a queue has left, which has none then."""
        found = self._of(queue)[::-1]
        self._claims[queue] = []
        return found

    def close(self, cohort: Node) -> None:
        """Leaves out all candidates below a cohort."""
        self._done.add(cohort)

    def next(self) -> Queue | None:
        """The next queue; None where there is none left."""
        if self._preemptor.parent is None:
            return self._preemptor if self._of(self._preemptor) else None
        return self._largest(self._preemptor.root)

    def _of(self, queue: Queue) -> list[WorkloadInfo]:
        found = self._claims.get(queue)
        return self._base.claims.get(queue, []) if found is None else found

    def _own(self, queue: Queue) -> list[WorkloadInfo]:
        """A queue's candidates, to be changed by this search."""
        if queue not in self._claims:
            self._claims[queue] = list(self._base.claims[queue])
            self._back.setdefault(queue.path[0], {})[queue] = None
        return self._claims[queue]

    def _largest(self, cohort: Node) -> Queue | None:
        while cohort not in self._done:
            queue, queues = self._queue(cohort)
            child, cohorts = self._cohort(cohort)
            # Of equal shares the cohort's goes first, since the choice goes on inside.
            if child is None or (queue is not None and queues > cohorts):
                return queue
            found = self._largest(child)
            if found is not None:
                return found
            self._done.add(child)
        return None

    def _queue(self, cohort: Node) -> tuple[Queue | None, Share]:
        best: tuple[Rank, Queue] | None = None
        for queue in tuple(self._back.get(cohort, ())):
            if not self._stands(queue):
                del self._back[cohort][queue]
                continue
            rank = Rank.of(self.share(queue), order(self._preemptor, self._of(queue)[-1]))
            if best is None or rank < best[0]:
                best = rank, queue
        fresh = self._fresh(cohort)
        if fresh is not None and (best is None or fresh[0] < best[0]):
            best = fresh
        return (None, _NONE) if best is None else (best[1], self.share(best[1]))

    def _fresh(self, cohort: Node) -> tuple[Rank, Queue] | None:
        """The next queue as the pool ranks it, of those that this search has not had to do with."""
        queues = self._base.queues.get(cohort, [])
        read = self._read.get(cohort, 0)
        while read < len(queues) and queues[read][1] in self._claims:
            read += 1
        self._read[cohort] = read
        return queues[read] if read < len(queues) else None

    def _stands(self, queue: Queue) -> bool:
        return bool(self._of(queue)) and (queue is self._preemptor or borrows_any(queue))

    def _cohort(self, cohort: Node) -> tuple[Node | None, Share]:
        """Kueue takes any of the cohorts with equal shares, by the order of a hash; here the first in the tenancy."""
        best: tuple[Share, int, Node] | None = None
        for node in self._near.get(cohort, ()):
            if node in self._done or not (node in self._preemptor.path or borrows_any(node)):
                continue
            rank = (self.share(node), -node.position, node)
            if best is None or rank[:2] > best[:2]:
                best = rank
        far = self._far(cohort)
        if far is not None and (best is None or far[:2] > best[:2]):
            best = far
        return (None, _NONE) if best is None else (best[2], best[0])

    def _far(self, cohort: Node) -> tuple[Share, int, Node] | None:
        """The next cohort as the pool ranks it, of those that this search has not had to do with."""
        cohorts = self._base.cohorts.get(cohort, [])
        read = self._read_far.get(cohort, 0)
        while read < len(cohorts) and (cohorts[-1 - read][2] in self._touched or cohorts[-1 - read][2] in self._done):
            read += 1
        self._read_far[cohort] = read
        return cohorts[-1 - read] if read < len(cohorts) else None

    def _touch(self, queue: Queue) -> None:
        """A queue's share, and those of the cohorts above it, are no longer the pool's."""
        self._touched.add(queue)
        for child, cohort in zip(queue.path, queue.path[1:], strict=False):
            self._near.setdefault(cohort, {})[child] = None
        self._touched.update(queue.path)
