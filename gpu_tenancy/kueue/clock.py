"""The logical clock: when evictions complete, and when inadmissible workloads are queued again.

Kueue uses goroutines and a wall clock; a simulation needs one order of events. The assumptions:

- A scheduling cycle takes no time. Cycles repeat as long as one changes anything.
- An eviction completes `EVICTION_DELAY` after the preemption, since the job has to be stopped first. Until then the
  workload keeps its quota and is not pending. The workloads of one preemption complete one after another, with
  `EVICTION_INTERVAL` and cycles in between, in the order in which they were chosen, since each is stopped on its own.
- Inadmissible workloads are queued `REQUEUE_BATCH_PERIOD` after a workload of the tree has released quota. Further
  releases until then do not move that moment. It is Kueue's own `requeueBatchPeriod`.
- Reservations are compared in whole seconds, as the API stores them. Two actions are `ACTION_INTERVAL` apart, so they
  never share a second; in a replay, actions have times of their own.
"""

import heapq
from typing import Final

from gpu_tenancy.kueue.workload_info import WorkloadInfo

EVICTION_DELAY: Final = 100
"""Milliseconds from a preemption until the workload is pending again."""
EVICTION_INTERVAL: Final = 5
"""Milliseconds between the evictions of two workloads."""
REQUEUE_BATCH_PERIOD: Final = 1000
"""Milliseconds from a release of quota until inadmissible workloads are queued."""
ACTION_INTERVAL: Final = 1200
"""Milliseconds between two actions."""


class Clock:
    """The logical clock of one tree, in milliseconds, with the events that are due."""

    def __init__(self) -> None:
        self.now = 0
        self._evictions: list[tuple[int, int, WorkloadInfo]] = []
        self._requeue_at: int | None = None
        self._eviction_count = 0

    @property
    def second(self) -> int:
        """The present second."""
        return self.now // 1000

    @property
    def due(self) -> tuple[int | None, frozenset[tuple[int, int]]]:
        """The requeueing and the evictions that are due, in milliseconds from now."""
        requeue_in = None if self._requeue_at is None else self._requeue_at - self.now
        return requeue_in, frozenset((moment - self.now, workload.created) for moment, _, workload in self._evictions)

    @property
    def next_event(self) -> int | None:
        """The moment of the next event that is due."""
        moments = (self._evictions[0][0] if self._evictions else None, self._requeue_at)
        return min((moment for moment in moments if moment is not None), default=None)

    def start_eviction(self, workload: WorkloadInfo) -> None:
        """Schedules the completion of an eviction."""
        self._eviction_count += 1
        moment = self.now + EVICTION_DELAY + EVICTION_INTERVAL * len(self._evictions)
        heapq.heappush(self._evictions, (moment, self._eviction_count, workload))

    def start_requeueing(self) -> None:
        """Schedules that inadmissible workloads are queued, unless that is scheduled already."""
        if self._requeue_at is None:
            self._requeue_at = self.now + REQUEUE_BATCH_PERIOD

    def pause(self) -> None:
        """Waits until the next action."""
        self.now += ACTION_INTERVAL

    def advance(self) -> tuple[list[WorkloadInfo], bool] | None:
        """Moves to the next event; one that is overdue happens now.

        Returns:
            The workloads whose eviction completes, and whether inadmissible workloads are queued; None if nothing is
            due.
        """
        moment = self.next_event
        if moment is None:
            return None
        self.now = max(self.now, moment)
        evicted: list[WorkloadInfo] = []
        while self._evictions and self._evictions[0][0] <= self.now:
            evicted.append(heapq.heappop(self._evictions)[2])
        requeue = self._requeue_at is not None and self._requeue_at <= self.now
        if requeue:
            self._requeue_at = None
        return evicted, requeue
