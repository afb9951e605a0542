"""The order in which a scheduling cycle processes its entries, one for each ClusterQueue with a head.

Without fair sharing: the lowest borrowing level first, then the highest priority, then the oldest workload.
With fair sharing: a tournament from the leaves to the root. In each cohort the entry wins whose child of the cohort has
the smallest share with the entry admitted; entries whose child does not borrow what they request win over all others.
The tournament is repeated after every entry, since admission changes shares.
Rules: pkg/scheduler of kubernetes-sigs/kueue at v0.19.2.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gpu_tenancy.kueue.fair_sharing import DominantResourceShare, is_borrowing_any_of, share
from gpu_tenancy.kueue.flavor_assigner import Assignment
from gpu_tenancy.kueue.preemption import Target
from gpu_tenancy.kueue.resource_node import Node
from gpu_tenancy.kueue.workload_info import WorkloadInfo


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """The head of a ClusterQueue in one cycle; Kueue's `entry`.

    Attributes:
        assignment: the flavors that nomination found.
        targets: the workloads to preempt for it.
    """

    workload: WorkloadInfo
    assignment: Assignment
    targets: Sequence[Target]


_Rank: TypeAlias = tuple[bool, DominantResourceShare, int, int]
"""Whether the node borrows what is requested, its share after admission, priority (negative), order of creation."""


def classical_iterator(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The order without fair sharing."""
    return iter(sorted(entries, key=_classical_rank))


class FairSharingIterator:
    """The order with fair sharing in one tree; usage may change between two entries.

    Args:
        entries: at most one for each ClusterQueue.
        resources: the number of each key's resource.
    """

    def __init__(self, entries: Iterable[Entry], resources: list[int]) -> None:
        self._resources = resources
        # For each cohort: the entries of its queues as a heap, and the winner of each child cohort.
        self._queues: dict[Node, list[tuple[_Rank, int, Entry]]] = {}
        self._cohorts: dict[Node, dict[Node, tuple[_Rank, Entry]]] = {}
        self._without_cohort: list[Entry] = []
        entries = list(entries)
        for entry in entries:
            workload, queue = entry.workload, entry.workload.queue
            if queue.parent is None:
                self._without_cohort.append(entry)
                continue
            # Only its own entry changes a queue's share, so the rank is valid until then.
            ranked = (self._rank(queue, entry), workload.created, entry)
            heapq.heappush(self._queues.setdefault(queue.parent, []), ranked)
        cohorts = {cohort for entry in entries for cohort in entry.workload.queue.path}
        for cohort in sorted(cohorts, key=lambda node: node.height):
            self._update_winner(cohort)

    def __iter__(self) -> Iterator[Entry]:
        """Each entry once; usage that is added meanwhile counts for the next."""
        yield from self._without_cohort
        roots = sorted((cohort for cohort in (*self._queues, *self._cohorts) if cohort.parent is None), key=_position)
        for root in dict.fromkeys(roots):
            while (winner := self._winner(root)) is not None:
                entry = winner[1]
                path = entry.workload.queue.path
                heapq.heappop(self._queues[path[0]])
                yield entry
                for cohort in path:
                    self._update_winner(cohort)

    def _winner(self, cohort: Node) -> tuple[_Rank, Entry] | None:
        queues = self._queues.get(cohort)
        candidates = list(self._cohorts.get(cohort, {}).values())
        if queues:
            candidates.append((queues[0][0], queues[0][2]))
        return min(candidates, key=lambda ranked: ranked[0], default=None)

    def _update_winner(self, cohort: Node) -> None:
        """Updates the entry with which a cohort competes in its parent."""
        if cohort.parent is None:
            return
        winner = self._winner(cohort)
        siblings = self._cohorts.setdefault(cohort.parent, {})
        siblings.pop(cohort, None)
        if winner is not None:
            siblings[cohort] = (self._rank(cohort, winner[1]), winner[1])

    def _rank(self, node: Node, entry: Entry) -> _Rank:
        """The rank of an entry that competes for a ClusterQueue, or for a cohort above it; `entryComparer`."""
        workload, amounts = entry.workload, entry.assignment.amounts
        workload.queue.add_usage(amounts)
        rank = (
            is_borrowing_any_of(node, amounts),
            share(node, self._resources),
            -workload.priority,
            workload.created,
        )
        workload.queue.remove_usage(amounts)
        return rank


def _classical_rank(entry: Entry) -> tuple[int, int, int]:
    return entry.assignment.borrowing, -entry.workload.priority, entry.workload.created


def _position(node: Node) -> int:
    return node.position
