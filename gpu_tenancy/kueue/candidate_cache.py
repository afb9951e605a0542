"""Preemption candidates and dominant resource shares of a tree, cached until a workload of the ClusterQueue changes."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeAlias

from gpu_tenancy.kueue.api import Policy
from gpu_tenancy.kueue.preemption import candidates_ordering, satisfies_reclaim_policy, uses_any_of
from gpu_tenancy.kueue.resource_node import Amounts, DominantResourceShare, Node, is_borrowing, share
from gpu_tenancy.kueue.workload_info import Queue, WorkloadInfo

SortKey: TypeAlias = tuple[bool, bool, int, int, int]  # result of `candidates_ordering`

CandidatesKey: TypeAlias = tuple[frozenset[int], Policy, int]
"""The keys that need preemption, the reclaim policy and the priority; they decide the candidates in other queues."""

_NOT_EVICTING: Final = ((True,),)  # sorts between the candidates that are being evicted and all others


class TargetRank(NamedTuple):
    """Sort key of ClusterQueues as preemption targets: the largest share, then the first candidate."""

    weightless: int
    value: float
    candidate: SortKey

    @classmethod
    def of(cls, queue_share: DominantResourceShare, candidate: SortKey) -> "TargetRank":
        """The rank of a ClusterQueue with this share and first candidate."""
        return cls(-int(queue_share.weightless), -queue_share.value, candidate)


class _CachedByQueue:
    """Data of a tree's ClusterQueues; access refreshes the data of changed queues."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._stale = dict.fromkeys(queues)

    def invalidate(self, queue: Queue) -> None:
        self._stale[queue] = None

    def _refresh_stale(self) -> None:
        for queue in self._stale:
            self._refresh(queue)
        self._stale.clear()

    def _refresh(self, queue: Queue) -> None:
        raise NotImplementedError


def _candidates_in(queue: Queue, needs_preemption: frozenset[int]) -> list[WorkloadInfo]:
    if queue.within_quota(needs_preemption):
        return []
    return [workload for workload in queue.workloads if uses_any_of(workload, needs_preemption)]


class ReclaimCandidates(_CachedByQueue):
    """Admitted workloads of borrowing queues that use any of some keys, in preemption order."""

    def __init__(self, queues: Iterable[Queue], needs_preemption: frozenset[int]) -> None:
        super().__init__(queues)
        self._needs_preemption = needs_preemption
        self._sorted: list[tuple[SortKey, WorkloadInfo]] = []
        self._by_queue: dict[Queue, list[tuple[SortKey, WorkloadInfo]]] = {}

    def candidates(self, policy: Policy, priority: int, *, evicting: bool) -> Iterator[WorkloadInfo]:
        """The candidates that a preemptor of this priority may preempt, either being evicted or not."""
        self._refresh_stale()
        boundary = bisect_left(self._sorted, _NOT_EVICTING)
        entries = islice(self._sorted, 0, boundary) if evicting else islice(self._sorted, boundary, None)
        workloads = (workload for _, workload in entries)
        # They are sorted by priority, lowest first.
        return takewhile(lambda workload: satisfies_reclaim_policy(policy, priority, workload), workloads)

    def _refresh(self, queue: Queue) -> None:
        for entry in self._by_queue.pop(queue, ()):
            del self._sorted[bisect_left(self._sorted, entry)]
        candidates = _candidates_in(queue, self._needs_preemption)
        entries = self._by_queue[queue] = [(candidates_ordering(None, workload), workload) for workload in candidates]
        for entry in entries:
            insort(self._sorted, entry)


class FairSharingCandidates(_CachedByQueue):
    """Candidates for fair sharing in ClusterQueues other than the preemptor's; the first candidate of a queue is last.

    Attributes:
        queues: for each cohort its queues with candidates, by rank.
        cohorts: for each cohort its borrowing child cohorts with candidates below them, the largest share last.
        queue_counts: for each cohort the number of queues below it with candidates; no entry if 0.
    """

    def __init__(self, cache: "CandidateCache", key: CandidatesKey | None) -> None:
        super().__init__(() if key is None else cache.queues)
        self._cache = cache
        self._key = key
        self.candidates: dict[Queue, list[WorkloadInfo]] = {}
        self.queues: dict[Node, list[tuple[TargetRank, Queue]]] = {}
        self.cohorts: dict[Node, list[tuple[DominantResourceShare, int, Node]]] = {}
        self.queue_counts: dict[Node, int] = {}
        self._queue_ranks: dict[Queue, TargetRank] = {}
        self._cohort_ranks: dict[Node, tuple[DominantResourceShare, int, Node]] = {}

    def refreshed(self) -> "FairSharingCandidates":
        """Refreshes the candidates and returns itself."""
        self._refresh_stale()
        return self

    def _refresh(self, queue: Queue) -> None:
        if queue.parent is None:
            return
        self._remove(queue, queue.parent)
        candidates = self._find_candidates(queue)
        if candidates:
            self.candidates[queue] = candidates
            rank = self._queue_ranks[queue] = TargetRank.of(
                self._cache.share(queue), candidates_ordering(None, candidates[-1])
            )
            insort(self.queues.setdefault(queue.parent, []), (rank, queue))
            for cohort in queue.path:
                self.queue_counts[cohort] = self.queue_counts.get(cohort, 0) + 1
        for cohort in queue.path:
            self._refresh_cohort(cohort)

    def _remove(self, queue: Queue, parent: Node) -> None:
        rank = self._queue_ranks.pop(queue, None)
        if rank is None:
            return
        del self.candidates[queue]
        queues = self.queues[parent]
        del queues[bisect_left(queues, (rank,))]
        for cohort in queue.path:
            self.queue_counts[cohort] -= 1
            if not self.queue_counts[cohort]:
                del self.queue_counts[cohort]

    def _find_candidates(self, queue: Queue) -> list[WorkloadInfo]:
        if self._key is None:
            return []
        needs_preemption, policy, priority = self._key
        candidates = _candidates_in(queue, needs_preemption)
        allowed = (workload for workload in candidates if satisfies_reclaim_policy(policy, priority, workload))
        return sorted(allowed, key=lambda workload: candidates_ordering(None, workload), reverse=True)

    def _refresh_cohort(self, cohort: Node) -> None:
        if cohort.parent is None:
            return
        siblings = self.cohorts.setdefault(cohort.parent, [])
        old = self._cohort_ranks.pop(cohort, None)
        if old is not None:
            del siblings[bisect_left(siblings, old[:2], key=lambda rank: rank[:2])]
        if cohort in self.queue_counts and is_borrowing(cohort):
            new = self._cohort_ranks[cohort] = (self._cache.share(cohort), -cohort.position, cohort)
            insort(siblings, new, key=lambda rank: rank[:2])


class CandidateCache:
    """Candidates and shares of one tree, valid between cycles; do not read it while usage is changed tentatively.

    `resources` has the number of each key's resource, `changes` how often the usage of each key, or the state of a
    workload that uses it, has changed.
    """

    def __init__(self, queues: Iterable[Queue], resources: list[int]) -> None:
        self.queues = tuple(queues)
        self.resources = resources
        self.changes = [0] * len(resources)
        self._reclaim_candidates: dict[frozenset[int], ReclaimCandidates] = {}
        self._fair_sharing_candidates: dict[CandidatesKey, FairSharingCandidates] = {}
        self._shares: dict[Node, DominantResourceShare] = {}

    def invalidate(self, queue: Queue, usage: Amounts) -> None:
        """Marks a queue as changed after one of its workloads, with this usage, was admitted, evicted or finished."""
        for key, _ in usage:
            self.changes[key] += 1
        for reclaim_candidates in self._reclaim_candidates.values():
            reclaim_candidates.invalidate(queue)
        for fair_sharing_candidates in self._fair_sharing_candidates.values():
            fair_sharing_candidates.invalidate(queue)
        for node in (queue, *queue.path):
            self._shares.pop(node, None)

    def share(self, node: Node) -> DominantResourceShare:
        """The dominant resource share of a node."""
        node_share = self._shares.get(node)
        if node_share is None:
            node_share = self._shares[node] = share(node, self.resources)
        return node_share

    def reclaim_candidates(self, needs_preemption: frozenset[int]) -> ReclaimCandidates:
        """Candidates in borrowing queues for classical preemption."""
        candidates = self._reclaim_candidates.get(needs_preemption)
        if candidates is None:
            candidates = self._reclaim_candidates[needs_preemption] = ReclaimCandidates(self.queues, needs_preemption)
        return candidates

    def fair_sharing_candidates(
        self, needs_preemption: frozenset[int], policy: Policy, priority: int
    ) -> FairSharingCandidates:
        """Candidates in borrowing queues for a preemptor of this priority, by share."""
        # With the policy Any the candidates do not depend on the preemptor's priority.
        key = needs_preemption, policy, 0 if policy is Policy.ANY else priority
        candidates = self._fair_sharing_candidates.get(key)
        if candidates is None:
            candidates = self._fair_sharing_candidates[key] = FairSharingCandidates(self, key)
        return candidates.refreshed()


def any_queue_borrows(root: Node, keys: frozenset[int]) -> bool:
    """Whether any ClusterQueue below a cohort borrows any of these."""
    cohorts = [root]
    while cohorts:
        cohort = cohorts.pop()
        # A cohort within its quota may have a queue that borrows from a sibling.
        cohorts += cohort.cohorts
        if any(child.leaf for child in cohort.borrowing_children_in(keys)):
            return True
    return False
