"""What happens by itself, and when: evictions that complete, and waiting workloads that are looked at again.

Kueue works by goroutines and a wall clock; a simulation needs one order of events. The assumptions:

- A scheduling cycle takes no time, and cycles follow one another as long as one changes anything.
- An eviction completes `EVICTION` after it was decided: the job has to be stopped first. Until then the victim keeps
  its quota and is absent from its queue. Victims that were chosen together leave one after another, `APART`, in the
  order in which they were chosen, with cycles in between: each is stopped by calls of its own.
- What waits aside comes back `BATCH` after anything has ended in the tree; what ends in between changes nothing about
  that moment. This is Kueue's own batching, one second.
- Reservations are compared by whole seconds, as the API stores them; an action comes `PAUSE` after the one before it
  has come to rest, so two of them never share a second.
"""

import heapq
from typing import Final

from gpu_tenancy.model.admission.workload_info import WorkloadInfo

EVICTION: Final = 100
"""Milliseconds from the decision to evict a workload to its return to the queue."""
APART: Final = 5
"""Milliseconds between two victims that leave."""
BATCH: Final = 1000
"""Milliseconds from the end of a workload until those aside are looked at again."""
PAUSE: Final = 1200
"""Milliseconds between two actions."""


class Clock:
    """The logical clock of one tree, in milliseconds, with what is due."""

    def __init__(self) -> None:
        self.now = 0
        self._leaving: list[tuple[int, int, WorkloadInfo]] = []
        self._wake: int | None = None
        self._order = 0

    @property
    def second(self) -> int:
        """The whole second that it is."""
        return self.now // 1000

    @property
    def pending(self) -> tuple[int | None, frozenset[tuple[int, int]]]:
        """What is due, counted from now."""
        wake = None if self._wake is None else self._wake - self.now
        return wake, frozenset((moment - self.now, claim.born) for moment, _, claim in self._leaving)

    def evict(self, claim: WorkloadInfo) -> None:
        """Lets a victim leave in a while."""
        self._order += 1
        heapq.heappush(self._leaving, (self.now + EVICTION + APART * len(self._leaving), self._order, claim))

    def ended(self) -> None:
        """Something has ended: those aside come back in a while, unless they do so sooner anyway."""
        if self._wake is None:
            self._wake = self.now + BATCH

    def pause(self) -> None:
        """Time until the next action."""
        self.now += PAUSE

    def advance(self) -> tuple[list[WorkloadInfo], bool] | None:
        """Moves on to what is due next: who leaves, and whether those aside come back; None where nothing is due."""
        due = [moment for moment in (self._leaving[0][0] if self._leaving else None, self._wake) if moment is not None]
        if not due:
            return None
        self.now = min(due)
        gone: list[WorkloadInfo] = []
        while self._leaving and self._leaving[0][0] <= self.now:
            gone.append(heapq.heappop(self._leaving)[2])
        woken = self._wake == self.now
        if woken:
            self._wake = None
        return gone, woken
