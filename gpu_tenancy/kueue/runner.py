"""Runs one tree until it settles, and detects livelocks."""

import heapq
from collections import Counter
from collections.abc import Hashable
from typing import Final, Protocol

from gpu_tenancy.kueue.candidate_cache import CandidateCache, Entry
from gpu_tenancy.kueue.cycle import run_cycle
from gpu_tenancy.kueue.flavor_assigner import Assignment
from gpu_tenancy.kueue.pending_queue import PendingQueue
from gpu_tenancy.kueue.preemption import Target
from gpu_tenancy.kueue.workload_info import CohortTree, Evicted, Outcome, Verdict, WorkloadInfo

EVENTS_UNCHECKED: Final = 64  # events before livelock detection compares states; most trees settle after a few
MAX_EVICTIONS: Final = 25
"""Evictions of one workload that count as a livelock, since some states take very long to recur."""

_CLEARS_LAST_ASSIGNMENT: Final = (Outcome.ADMITTED, Outcome.PREEMPTING)
_SKIPPED: Final = (Outcome.NO_LONGER_FITS, Outcome.OVERLAPPING_TARGETS)
"""Outcomes caused by an earlier entry of the cycle; the workload stays in the heap."""


class Watcher(Protocol):
    """Gets admissions and evictions as they happen."""

    def admitted(self, workload: WorkloadInfo) -> None:
        """Its quota is reserved now."""

    def preempted(self, workload: WorkloadInfo, by: WorkloadInfo) -> None:
        """Its eviction starts; it keeps its quota until the eviction is complete."""


class Runner:
    """One tree with its clock, pending workloads and cycles; `livelock` is of the last `rest` or `step`."""

    def __init__(self, tree: CohortTree, watcher: Watcher | None = None) -> None:
        self.tree = tree
        self.watcher = watcher
        self.clock = Clock()
        self.livelock = False
        self._changed = False
        self.pending = {queue: PendingQueue(queue.spec.strategy) for queue in tree.queues.values()}
        # All that can have a head.
        self._active: dict[PendingQueue, None] = dict.fromkeys(self.pending.values())
        self._cache = CandidateCache(tree.queues.values())
        self._cycle = 0
        self._eviction_counts: Counter[WorkloadInfo] = Counter()

    def submit(self, workload: WorkloadInfo) -> None:
        """Adds a new workload."""
        self._push(workload)
        self._changed = True

    def finish(self, workload: WorkloadInfo) -> None:
        """Removes an admitted or pending workload; inadmissible workloads are queued again."""
        self.pending[workload.queue].delete(workload)
        if workload.admitted:
            self._release_quota(workload)
        self.clock.start_requeueing()
        self._changed = True

    def _push(self, workload: WorkloadInfo) -> None:
        pending_queue = self.pending[workload.queue]
        pending_queue.push(workload)
        self._active[pending_queue] = None

    def rest(self) -> None:
        """Runs cycles and events until nothing changes, or until a livelock is detected."""
        self.livelock = False
        if not self._changed:
            return
        self._changed = False
        self._eviction_counts.clear()
        seen: set[Hashable] = set()
        events = 0
        self._run_cycles()
        while (event := self.clock.advance()) is not None:
            self._process_event(*event)
            self._run_cycles()
            events += 1
            max_evictions = max(self._eviction_counts.values(), default=0)
            # A livelock evicts the same workloads again and again.
            if events > EVENTS_UNCHECKED and max_evictions > 1:
                state = self._state()
                if state in seen or max_evictions > MAX_EVICTIONS:
                    self.livelock = True
                    return
                seen.add(state)

    @property
    def next_event(self) -> int | None:
        """Time of the next event in milliseconds; None in a livelock, whose events are all alike."""
        return None if self.livelock else self.clock.next_event

    def act(self, moment: int, *, finish: WorkloadInfo | None = None, submit: WorkloadInfo | None = None) -> None:
        """Finishes or submits a workload at a time in milliseconds, before which no event is due, and runs cycles."""
        self.clock.now = max(self.clock.now, moment)
        self.livelock = False
        self._eviction_counts.clear()
        if finish is not None:
            self.finish(finish)
        if submit is not None:
            self.submit(submit)
        self._run_cycles()

    def step(self) -> None:
        """Processes the next event, and runs cycles."""
        event = self.clock.advance()
        if event is not None:
            self._process_event(*event)
            self._run_cycles()
            self.livelock = max(self._eviction_counts.values(), default=0) > MAX_EVICTIONS

    def _process_event(self, evicted: list[WorkloadInfo], requeue: bool) -> None:  # noqa: FBT001 - as the clock returns
        for workload in evicted:
            if not workload.evicting:
                continue  # It has finished in the meantime.
            self._release_quota(workload)
            self._push(workload)
        if evicted:
            self.clock.start_requeueing()
        if requeue:
            self._active = dict.fromkeys(self.pending.values())
            for pending_queue in self._active:
                pending_queue.queue_inadmissible()

    def _release_quota(self, workload: WorkloadInfo) -> None:
        queue = workload.queue
        queue.remove_usage(workload.usage)
        del queue.workloads[workload]
        queue.generation += 1
        workload.admitted = workload.evicting = False
        self._cache.invalidate(queue)
        workload.usage, workload.flavors, workload.last_assignment, workload.verdict = (), (), None, None

    def _run_cycles(self) -> None:
        """Runs cycles until one changes nothing, or changes only the tried flavors and these recur."""
        seen: set[Hashable] = set()
        while heads := {pending_queue: head for pending_queue in self._active if (head := pending_queue.head)}:
            self._active = dict.fromkeys(heads)
            self._cycle += 1
            processed = run_cycle(self.tree, tuple(heads.values()), self._cycle, self._cache)
            changed = [self._apply(entry, outcome) for entry, outcome in processed]
            if any(changed):
                seen = set()
                continue
            tried = frozenset(
                (head.created, tuple(tuple(indices.items()) for indices in last.last_tried_flavor))
                for head in heads.values()
                if (last := head.last_assignment) and last.pending_flavors
            )
            if tried in seen:
                break
            seen.add(tried)

    def _apply(self, entry: Entry, outcome: Outcome) -> bool:
        """Returns whether the outcome changes the tree or the heads."""
        workload = entry.workload
        pending_queue = self.pending[workload.queue]
        verdict = entry.verdict or self._verdict(entry, outcome)
        resumed = workload.last_assignment and workload.last_assignment.pending_flavors
        pending_queue.judge(workload, verdict.after(pending_queue.verdict(workload)) if resumed else verdict)
        last = entry.assignment.last_assignment
        workload.last_assignment = None if outcome in _CLEARS_LAST_ASSIGNMENT else last
        if outcome is Outcome.ADMITTED:
            self._admit(workload, entry.assignment)
            return True
        if outcome is Outcome.PREEMPTING:
            pending_queue.sticky = workload
            evicted = [self._preempt(target, workload) for target in entry.targets]
            return any(evicted)
        if outcome in _SKIPPED or (last and last.pending_flavors) or pending_queue.strict_fifo:
            return False
        pending_queue.mark_inadmissible(workload)
        return True

    def _verdict(self, entry: Entry, outcome: Outcome) -> Verdict:
        targets = tuple(target.workload.name for target in entry.targets)
        reclaims = self.tree.fair is None and entry.workload.queue.can_always_reclaim
        verdict = Verdict(outcome, tuple(entry.assignment.reasons), targets, entry.assignment.amounts, reclaims)
        if entry.outcome:
            entry.verdict = verdict
        return verdict

    def _admit(self, workload: WorkloadInfo, assignment: Assignment) -> None:
        flavors = tuple(
            {resource: assigned.flavor for resource, assigned in pod_set.items()} for pod_set in assignment.pod_sets
        )
        workload.reserve_quota(assignment.amounts, flavors, second=self.clock.second)
        workload.queue.workloads[workload] = None
        self._cache.invalidate(workload.queue)
        self.pending[workload.queue].delete(workload)
        if self.watcher is not None:
            self.watcher.admitted(workload)

    def _preempt(self, target: Target, preemptor: WorkloadInfo) -> bool:
        workload = target.workload
        if workload.evicting:
            return False
        workload.evicting = True
        self._cache.invalidate(workload.queue)
        self._eviction_counts[workload] += 1
        workload.evictions.append(Evicted(workload.name, preemptor.name, target.reason, self.clock.now / 1000))
        self.clock.start_eviction(workload)
        if self.watcher is not None:
            self.watcher.preempted(workload, preemptor)
        return True

    def _state(self) -> Hashable:
        admitted = [workload for queue in self.tree.queues.values() for workload in queue.workloads]
        newest_first = sorted({workload.reserved_at for workload in admitted}, reverse=True)
        positions = {second: position for position, second in enumerate(newest_first)}
        return (
            frozenset(
                (workload.created, workload.usage, workload.evicting, positions[workload.reserved_at])
                for workload in admitted
            ),
            tuple(pending_queue.state for pending_queue in self.pending.values()),
            self.clock.due,
        )


EVICTION_DELAY: Final = 100  # milliseconds from a preemption until the workload is pending again
EVICTION_INTERVAL: Final = 5  # milliseconds between the evictions of two workloads
REQUEUE_BATCH_PERIOD: Final = 1000
"""Milliseconds from a release of quota until inadmissible workloads are queued; Kueue's `requeueBatchPeriod`."""
ACTION_INTERVAL: Final = 1200  # milliseconds between two actions


class Clock:
    """The logical clock of one tree in milliseconds, with the events that are due.

    Kueue uses goroutines and a wall clock; a simulation needs one order of events. The assumptions:

    - A scheduling cycle takes no time. Cycles repeat until one changes nothing.
    - An eviction completes `EVICTION_DELAY` after the preemption, since the job has to stop first; until then the
      workload keeps its quota and is not pending. Evictions of one preemption complete in the order of selection,
      `EVICTION_INTERVAL` apart and with cycles in between, since each job is stopped on its own.
    - Inadmissible workloads are queued `REQUEUE_BATCH_PERIOD` after a release of quota in the tree; further releases
      until then do not move that time.
    - Reservations are compared in whole seconds, as the API stores them. Actions are `ACTION_INTERVAL` apart, so that
      they never share a second; a replay sets its own times.
    """

    def __init__(self) -> None:
        self.now = 0
        self._evictions: list[tuple[int, int, WorkloadInfo]] = []
        self._requeue_at: int | None = None
        self._eviction_count = 0

    @property
    def second(self) -> int:
        """Present time in whole seconds."""
        return self.now // 1000

    @property
    def due(self) -> tuple[int | None, frozenset[tuple[int, int]]]:
        """Milliseconds from now until requeueing and until each eviction completes."""
        requeue_in = None if self._requeue_at is None else self._requeue_at - self.now
        return requeue_in, frozenset((moment - self.now, workload.created) for moment, _, workload in self._evictions)

    @property
    def next_event(self) -> int | None:
        """Time of the next event."""
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
        """Moves to the next event, or processes an overdue one now; None if nothing is due.

        Returns the workloads whose eviction completes, and whether inadmissible workloads are queued.
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
