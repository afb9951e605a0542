"""One scheduling cycle of one tree: nominates all heads on the same state, then processes them in order.

Order without fair sharing: lowest borrowing level, highest priority, oldest workload. With fair sharing: a tournament
from the leaves to the root, repeated after every entry because admission changes shares. In each cohort the entry wins
whose child of the cohort has the smallest share after admission; a child that does not borrow the request wins first.

Usage of admitted entries counts for later entries, as does the usage of preemptors after their preemptions, and the
quota reserved by entries without preemption candidates in ClusterQueues that cannot always reclaim their quota.
Rules: pkg/scheduler/scheduler.go of kubernetes-sigs/kueue at v0.19.2.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gpu_tenancy.kueue import classical_preemption, fair_preemption
from gpu_tenancy.kueue.candidate_cache import CandidateCache, Entry
from gpu_tenancy.kueue.flavor_assigner import Assignment, Mode, assign
from gpu_tenancy.kueue.preemption import PreemptionContext, Target
from gpu_tenancy.kueue.resource_node import (
    Amounts,
    DominantResourceShare,
    Node,
    is_borrowing_any_of,
    lowest_subtree_that_fits,
    path_edges,
    share,
)
from gpu_tenancy.kueue.workload_info import CohortTree, Outcome, Queue, WorkloadInfo

MAX_KNOWN: Final = 100  # results of flavor searches that are kept for each ClusterQueue


_Rank: TypeAlias = tuple[bool, DominantResourceShare, int, int]
"""Whether the node borrows the request, its share after admission, negative priority, order of creation."""


class FairSharingIterator:
    """The order of one tree's entries with fair sharing; usage may change between two entries."""

    def __init__(self, entries: Iterable[Entry], resources: list[int]) -> None:
        self._resources = resources
        self._entries: dict[Node, Entry] = {entry.workload.queue: entry for entry in entries}
        # Only its own entry changes a queue's share, so the rank is valid until then.
        self._ranks = {queue: self._rank(queue, entry) for queue, entry in self._entries.items()}
        # For each cohort: its children with entries at or below them.
        self._children: dict[Node, dict[Node, None]] = {}
        for queue in self._entries:
            for node, cohort in path_edges(queue):
                self._children.setdefault(cohort, {})[node] = None

    def __iter__(self) -> Iterator[Entry]:
        yield from (entry for queue, entry in self._entries.items() if queue.parent is None)
        roots = [cohort for cohort in self._children if cohort.parent is None]
        for root in sorted(roots, key=lambda root: root.position):
            while (entry := self._winner(root)) is not None:
                yield entry
                del self._entries[entry.workload.queue]

    def _winner(self, node: Node) -> Entry | None:
        if node.leaf:
            return self._entries.get(node)
        best: tuple[_Rank, Entry] | None = None
        for child in self._children[node]:
            if (entry := self._winner(child)) is not None:
                rank = self._ranks[child] if child.leaf else self._rank(child, entry)
                if best is None or rank < best[0]:
                    best = rank, entry
        return best[1] if best else None

    def _rank(self, node: Node, entry: Entry) -> _Rank:
        """The rank of an entry that competes for a ClusterQueue or a cohort above it; Kueue's `entryComparer`."""
        workload, amounts = entry.workload, entry.assignment.amounts
        workload.queue.add_usage(amounts)
        rank = (is_borrowing_any_of(node, amounts), share(node, self._resources), -workload.priority, workload.created)
        workload.queue.remove_usage(amounts)
        return rank


@dataclass(slots=True)
class _Cycle:
    # Usage that is removed at the end of the cycle.
    reserved: list[tuple[Queue, Amounts]] = field(default_factory=list[tuple[Queue, Amounts]])
    preempted: dict[WorkloadInfo, None] = field(default_factory=dict[WorkloadInfo, None])


def run_cycle(
    tree: CohortTree, heads: Sequence[WorkloadInfo], number: int, cache: CandidateCache
) -> list[tuple[Entry, Outcome]]:
    """Nominates and processes heads, one for each ClusterQueue; outcomes in processing order; admitted usage stays."""
    nominated = [_nominate(tree, workload, number, cache) for workload in heads]
    entries = [entry for entry in nominated if not entry.outcome]
    ordered: Iterable[Entry]
    if tree.fair is None:
        ordered = sorted(
            entries, key=lambda one: (one.assignment.borrowing, -one.workload.priority, one.workload.created)
        )
    else:
        ordered = FairSharingIterator(entries, tree.resources)
    cycle = _Cycle()
    processed = [(entry, entry.outcome) for entry in nominated if entry.outcome]
    processed += [(entry, _process_entry(cycle, entry)) for entry in ordered]
    for queue, amounts in cycle.reserved:
        queue.remove_usage(amounts)
    return processed


def _nominate(tree: CohortTree, workload: WorkloadInfo, number: int, cache: CandidateCache) -> Entry:
    queue, last = workload.queue, workload.last_assignment
    if last is not None and number - last.cycle > 1 and queue.generation > last.generation:
        last = workload.last_assignment = None
    if last is not None and last.pending_flavors:
        return _search(tree, workload, number, cache)
    # In a full tree, the same heads are evaluated in the same state again and again.
    state = (workload, *(tuple(cohort.usage) for cohort in queue.path))
    known, reads = cache.known[queue], cache.reads
    if (earlier := known.get(state)) is not None:
        return earlier
    entry = _search(tree, workload, number, cache)
    mode, last = entry.assignment.mode, entry.assignment.last_assignment
    if entry.targets or cache.reads > reads or (last and last.pending_flavors):
        return entry
    if len(known) >= MAX_KNOWN:
        known.clear()
    known[state] = entry
    if mode is Mode.NO_FIT:
        entry.outcome = Outcome.NO_FIT
    elif mode is not Mode.FIT and queue.can_always_reclaim:
        entry.outcome = Outcome.NO_CANDIDATES
    return entry


def _search(tree: CohortTree, workload: WorkloadInfo, number: int, cache: CandidateCache) -> Entry:
    queue = workload.queue
    # The flavor search and the search for targets often have the same arguments.
    targets_of: dict[tuple[frozenset[int], Amounts], list[Target]] = {}

    def find_targets(needs_preemption: frozenset[int], amounts: Amounts) -> list[Target]:
        if (needs_preemption, amounts) not in targets_of:
            context = PreemptionContext(workload, needs_preemption, amounts)
            targets_of[needs_preemption, amounts] = (
                classical_preemption.find_targets(context, cache)
                if tree.fair is None
                else fair_preemption.find_targets(context, tree.fair, tree.resources, cache)
            )
        return targets_of[needs_preemption, amounts]

    def simulate_preemption(needs_preemption: frozenset[int], amounts: Amounts) -> tuple[Mode, int]:
        targets = find_targets(needs_preemption, amounts)
        ((key, amount),) = amounts
        for target in targets:
            target.workload.queue.remove_usage(target.workload.usage)
        borrowing, _ = lowest_subtree_that_fits(queue, key, amount)
        for target in targets:
            target.workload.queue.add_usage(target.workload.usage)
        if not targets:
            return Mode.NO_PREEMPTION_CANDIDATES, borrowing
        same_queue = any(target.workload.queue is queue for target in targets)
        return (Mode.PREEMPT if same_queue else Mode.RECLAIM), borrowing

    assignment = assign(workload, simulate_preemption, number, fair=tree.fair is not None)
    targets = find_targets(assignment.needs_preemption, assignment.amounts) if assignment.mode is Mode.PREEMPT else []
    return Entry(workload, assignment, targets)


def _process_entry(cycle: _Cycle, entry: Entry) -> Outcome:
    queue, assignment = entry.workload.queue, entry.assignment
    amounts = assignment.amounts
    if assignment.mode is Mode.NO_FIT:
        return Outcome.NO_FIT
    if assignment.mode is Mode.PREEMPT and not entry.targets:
        if not queue.can_always_reclaim:
            _reserve(cycle, queue, _quota_to_reserve(queue, assignment))
        return Outcome.NO_CANDIDATES
    if any(target.workload in cycle.preempted for target in entry.targets):
        return Outcome.OVERLAPPING_TARGETS
    if not _fits(cycle, entry):
        return Outcome.NO_LONGER_FITS
    cycle.preempted |= dict.fromkeys(target.workload for target in entry.targets)
    if assignment.mode is Mode.PREEMPT:
        _reserve(cycle, queue, amounts)
        return Outcome.PREEMPTING
    queue.add_usage(amounts)
    return Outcome.ADMITTED


def _reserve(cycle: _Cycle, queue: Queue, amounts: Amounts) -> None:
    queue.add_usage(amounts)
    cycle.reserved.append((queue, amounts))


def _fits(cycle: _Cycle, entry: Entry) -> bool:
    queue, amounts = entry.workload.queue, entry.assignment.amounts
    if queue.fits(amounts):
        return True
    preempted = [*cycle.preempted, *(target.workload for target in entry.targets)]
    for workload in preempted:
        workload.queue.remove_usage(workload.usage)
    fits = queue.fits(amounts)
    for workload in preempted:
        workload.queue.add_usage(workload.usage)
    return fits


def _quota_to_reserve(queue: Queue, assignment: Assignment) -> Amounts:
    """At most the unused nominal quota; while borrowing, up to the limit; Kueue's `quotaResourcesToReserve`."""
    reserved: list[tuple[int, int]] = []
    for key, amount in assignment.amounts:
        limit = queue.borrowing_limit[key]
        unused = queue.nominal[key] - queue.usage[key]
        if assignment.borrowing > 0:
            reserved.append((key, amount if limit is None else max(0, min(amount, unused + limit))))
        else:
            reserved.append((key, max(0, min(amount, unused))))
    return reserved
