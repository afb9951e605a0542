"""The pending workloads of one ClusterQueue: a heap, and the inadmissible workloads.

A head that cannot be admitted becomes inadmissible; in a StrictFIFO queue it stays and blocks the queue. When quota is
released anywhere in the tree, all inadmissible workloads are queued again. Workloads with the head's scheduling hash
(priority and requests) become inadmissible with it, also those that are submitted later.
Rules: pkg/cache/queue of kubernetes-sigs/kueue at v0.19.2.
"""

import heapq
from collections.abc import Hashable

from gpu_tenancy.kueue.api import Strategy
from gpu_tenancy.kueue.verdicts import Verdict
from gpu_tenancy.kueue.workload_info import WorkloadInfo


class PendingQueue:
    """The pending workloads of one ClusterQueue.

    Attributes:
        strict_fifo: whether the queueing strategy is StrictFIFO.
        sticky: the workload that waits for its preemptions to complete; in a BestEffortFIFO queue it is the head
            regardless of priorities.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strict_fifo = strategy is Strategy.STRICT
        self.sticky: WorkloadInfo | None = None
        # Workloads that leave the queue stay in the heap until they are its first.
        self._heap: list[tuple[int, int, WorkloadInfo]] = []
        self._in_heap: dict[WorkloadInfo, None] = {}
        self._by_hash: dict[Hashable, dict[WorkloadInfo, None]] = {}
        self._inadmissible: dict[WorkloadInfo, None] = {}
        self._inadmissible_hashes: dict[Hashable, Verdict | None] = {}

    @property
    def head(self) -> WorkloadInfo | None:
        """The workload of the next cycle; None if the heap is empty."""
        if self.sticky is not None and self.sticky in self._in_heap:
            return self.sticky
        # A workload that left and came back is in the heap twice, which does no harm.
        while self._heap and self._heap[0][2] not in self._in_heap:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    @property
    def state(self) -> Hashable:
        """What the next heads depend on."""
        sticky = None if self.sticky is None else self.sticky.created
        return sticky, frozenset(workload.created for workload in self._in_heap), frozenset(self._inadmissible_hashes)

    def push(self, workload: WorkloadInfo) -> None:
        """Adds a new workload, or one whose eviction is complete."""
        if not self.strict_fifo and workload.scheduling_hash in self._inadmissible_hashes:
            self._inadmissible[workload] = None
            workload.verdict = self._inadmissible_hashes[workload.scheduling_hash]
        else:
            self._add_to_heap(workload)

    def mark_inadmissible(self, workload: WorkloadInfo) -> None:
        """Moves the head to the inadmissible workloads, and all others with its scheduling hash."""
        self._remove_from_heap(workload)
        self._inadmissible[workload] = None
        self._inadmissible_hashes[workload.scheduling_hash] = workload.verdict
        for equivalent in tuple(self._by_hash.get(workload.scheduling_hash, ())):
            self._remove_from_heap(equivalent)
            self._inadmissible[equivalent] = None
            equivalent.verdict = workload.verdict

    def queue_inadmissible(self) -> None:
        """Moves the inadmissible workloads back to the heap."""
        inadmissible, self._inadmissible = self._inadmissible, {}
        self._inadmissible_hashes = {}
        for workload in inadmissible:
            self._add_to_heap(workload)

    def delete(self, workload: WorkloadInfo) -> None:
        """Removes a workload that is admitted or finished."""
        if workload in self._in_heap:
            self._remove_from_heap(workload)
        self._inadmissible.pop(workload, None)
        if self.sticky is workload:
            self.sticky = None

    def _add_to_heap(self, workload: WorkloadInfo) -> None:
        self._in_heap[workload] = None
        self._by_hash.setdefault(workload.scheduling_hash, {})[workload] = None
        heapq.heappush(self._heap, (-workload.priority, workload.created, workload))

    def _remove_from_heap(self, workload: WorkloadInfo) -> None:
        del self._in_heap[workload]
        equivalents = self._by_hash[workload.scheduling_hash]
        del equivalents[workload]
        if not equivalents:
            del self._by_hash[workload.scheduling_hash]
        if self._heap and self._heap[0][2] is workload:
            heapq.heappop(self._heap)
