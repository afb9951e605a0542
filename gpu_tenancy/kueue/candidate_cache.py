"""Preemption candidates of a tree, cached until a workload of the ClusterQueue changes."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, TypeAlias

from gpu_tenancy.kueue.api import Policy
from gpu_tenancy.kueue.flavor_assigner import Assignment
from gpu_tenancy.kueue.preemption import Target, candidates_ordering, satisfies_reclaim_policy, uses_any_of
from gpu_tenancy.kueue.workload_info import Outcome, Queue, Verdict, WorkloadInfo

SortKey: TypeAlias = tuple[bool, bool, int, int, int]  # result of `candidates_ordering`

_NOT_EVICTING: Final = ((True,),)  # sorts between the candidates that are being evicted and all others


class ReclaimCandidates:
    """Admitted workloads of borrowing queues that use any of some keys, in preemption order."""

    def __init__(self, queues: Iterable[Queue], needs_preemption: frozenset[int]) -> None:
        self._needs_preemption = needs_preemption
        self._sorted: list[tuple[SortKey, WorkloadInfo]] = []
        self._by_queue: dict[Queue, list[tuple[SortKey, WorkloadInfo]]] = {}
        self._stale = dict.fromkeys(queues)

    def invalidate(self, queue: Queue) -> None:
        """Marks the candidates of a queue as changed."""
        self._stale[queue] = None

    def candidates(self, policy: Policy, priority: int, *, evicting: bool) -> Iterator[WorkloadInfo]:
        """The candidates that a preemptor of this priority may preempt, either being evicted or not."""
        self._refresh()
        boundary = bisect_left(self._sorted, _NOT_EVICTING)
        entries = islice(self._sorted, 0, boundary) if evicting else islice(self._sorted, boundary, None)
        workloads = (workload for _, workload in entries)
        # They are sorted by priority, lowest first.
        return takewhile(lambda workload: satisfies_reclaim_policy(policy, priority, workload), workloads)

    def by_queue(self, policy: Policy, priority: int) -> dict[Queue, list[WorkloadInfo]]:
        """The candidates that a preemptor of this priority may preempt, of each queue that has some."""
        self._refresh()
        allowed = {
            queue: [workload for _, workload in entries if satisfies_reclaim_policy(policy, priority, workload)]
            for queue, entries in self._by_queue.items()
        }
        return {queue: workloads for queue, workloads in allowed.items() if workloads}

    def _refresh(self) -> None:
        for queue in self._stale:
            for entry in self._by_queue.pop(queue, ()):
                del self._sorted[bisect_left(self._sorted, entry)]
            if queue.within_quota(self._needs_preemption):
                continue
            candidates = (workload for workload in queue.workloads if uses_any_of(workload, self._needs_preemption))
            entries = sorted((candidates_ordering(None, workload), workload) for workload in candidates)
            self._by_queue[queue] = entries
            for entry in entries:
                insort(self._sorted, entry)
        self._stale.clear()


@dataclass(slots=True, eq=False)
class Entry:
    """A ClusterQueue's head in one cycle, with its flavors and preemption targets; Kueue's `entry`."""

    workload: WorkloadInfo
    assignment: Assignment
    targets: Sequence[Target]
    outcome: Outcome | None = None  # if known before the cycle, which it then does not change
    verdict: Verdict | None = None  # of a known outcome


class CandidateCache:
    """Candidates of one tree, valid between cycles; do not read it while usage is changed tentatively.

    Attributes:
        reads: how often candidates in other queues were asked for.
        known: entries whose search read no other queues, by the workload and the usage of the cohorts above.
    """

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._queues = tuple(queues)
        self._reclaim_candidates: dict[frozenset[int], ReclaimCandidates] = {}
        self.reads = 0
        self.known: dict[Queue, dict[Hashable, Entry]] = {queue: {} for queue in self._queues}

    def invalidate(self, queue: Queue) -> None:
        """Marks a queue as changed after one of its workloads was admitted, evicted or finished."""
        self.known[queue].clear()
        for reclaim_candidates in self._reclaim_candidates.values():
            reclaim_candidates.invalidate(queue)

    def reclaim_candidates(self, needs_preemption: frozenset[int]) -> ReclaimCandidates:
        """Candidates in borrowing queues."""
        self.reads += 1
        candidates = self._reclaim_candidates.get(needs_preemption)
        if candidates is None:
            candidates = self._reclaim_candidates[needs_preemption] = ReclaimCandidates(self._queues, needs_preemption)
        return candidates
