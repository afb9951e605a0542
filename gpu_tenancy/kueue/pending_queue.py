"""The pending workloads of one ClusterQueue: a heap, and the inadmissible workloads.

A head that cannot be admitted becomes inadmissible, with all workloads of the same scheduling hash (priority and
requests), also later ones; in a StrictFIFO queue it stays and blocks the queue. Released quota anywhere in the tree
queues all inadmissible workloads again. The heap has only the first workload of each hash, so a million equal
workloads cost as much as one.
Rules: pkg/cache/queue of kubernetes-sigs/kueue at v0.19.2.
"""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field

from gpu_tenancy.kueue.api import Strategy
from gpu_tenancy.kueue.workload_info import Verdict, WorkloadInfo


@dataclass(slots=True)
class _Alike:
    """Pending workloads with one scheduling hash; `evaluated` ones have their own verdict, the others `verdict`."""

    inadmissible: bool = False
    verdict: Verdict | None = None
    evaluated: dict[WorkloadInfo, None] = field(default_factory=dict[WorkloadInfo, None])
    members: dict[WorkloadInfo, None] = field(default_factory=dict[WorkloadInfo, None])
    # Workloads that left stay in it until they are its first.
    _by_age: list[tuple[int, WorkloadInfo]] = field(default_factory=list[tuple[int, WorkloadInfo]])

    @property
    def first(self) -> WorkloadInfo:
        # A workload that left and came back is in the list twice, which does no harm.
        while self._by_age[0][1] not in self.members:
            heapq.heappop(self._by_age)
        return self._by_age[0][1]

    def add(self, workload: WorkloadInfo) -> None:
        self.members[workload] = None
        heapq.heappush(self._by_age, (workload.created, workload))


class PendingQueue:
    """The pending workloads of one ClusterQueue; `sticky` waits for its preemptions to complete.

    A BestEffortFIFO queue has the sticky workload as head regardless of priorities.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strict_fifo = strategy is Strategy.STRICT
        self.sticky: WorkloadInfo | None = None
        self._alike: dict[Hashable, _Alike] = {}
        self._inadmissible: dict[Hashable, None] = {}
        # The first of each hash that is not inadmissible, and what was so before, until it is the heap's first.
        self._heap: list[tuple[int, int, WorkloadInfo]] = []

    @property
    def head(self) -> WorkloadInfo | None:
        """The workload of the next cycle; None if the heap is empty."""
        if self.sticky is not None and self._is_queued(self.sticky):
            return self.sticky
        while self._heap:
            workload = self._heap[0][2]
            if self._is_queued(workload) and self._alike[workload.scheduling_hash].first is workload:
                return workload
            heapq.heappop(self._heap)
        return None

    @property
    def state(self) -> Hashable:
        """All data on which the next heads depend."""
        sticky = None if self.sticky is None else self.sticky.created
        queued = frozenset(
            workload.created for alike in self._alike.values() if not alike.inadmissible for workload in alike.members
        )
        return sticky, queued, frozenset(self._inadmissible)

    def verdict(self, workload: WorkloadInfo) -> Verdict | None:
        """The last verdict on a workload, or on the head with which it became inadmissible; None before the first."""
        alike = self._alike.get(workload.scheduling_hash)
        return workload.verdict if alike is None or workload in alike.evaluated else alike.verdict

    def push(self, workload: WorkloadInfo) -> None:
        """Adds a new workload, or one whose eviction is complete."""
        alike = self._alike.setdefault(workload.scheduling_hash, _Alike())
        alike.add(workload)
        if not alike.inadmissible:
            alike.evaluated[workload] = None
            if alike.first is workload:
                self._offer(workload.scheduling_hash, alike)

    def judge(self, workload: WorkloadInfo, verdict: Verdict) -> None:
        """Records a cycle's verdict on the head."""
        workload.verdict = verdict
        self._alike[workload.scheduling_hash].evaluated[workload] = None

    def mark_inadmissible(self, workload: WorkloadInfo) -> None:
        """Makes the head and all others with its scheduling hash inadmissible."""
        alike = self._alike[workload.scheduling_hash]
        alike.inadmissible, alike.verdict = True, workload.verdict
        alike.evaluated.clear()
        self._inadmissible[workload.scheduling_hash] = None

    def queue_inadmissible(self) -> None:
        """Moves the inadmissible workloads back to the heap."""
        for scheduling_hash in self._inadmissible:
            alike = self._alike[scheduling_hash]
            alike.inadmissible = False
            self._offer(scheduling_hash, alike)
        self._inadmissible.clear()

    def delete(self, workload: WorkloadInfo) -> None:
        """Removes a workload that is admitted or finished."""
        if self.sticky is workload:
            self.sticky = None
        alike = self._alike.get(workload.scheduling_hash)
        if alike is None or workload not in alike.members:
            return
        first = alike.first is workload
        del alike.members[workload]
        alike.evaluated.pop(workload, None)
        if first and not alike.inadmissible:
            self._offer(workload.scheduling_hash, alike)

    def _is_queued(self, workload: WorkloadInfo) -> bool:
        alike = self._alike.get(workload.scheduling_hash)
        return alike is not None and not alike.inadmissible and workload in alike.members

    def _offer(self, scheduling_hash: Hashable, alike: _Alike) -> None:
        if alike.members:
            first = alike.first
            heapq.heappush(self._heap, (-first.priority, first.created, first))
        else:
            del self._alike[scheduling_hash]
