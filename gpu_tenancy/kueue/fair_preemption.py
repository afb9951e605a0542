"""Preemption with fair sharing: targets are in the ClusterQueues with the largest dominant resource shares.

From the root down, the child with the largest share provides the next candidate, on which the first strategy decides.
If the targets do not suffice, the second strategy is tried once for each queue, on the rejected candidates. A queue
within its nominal quota reclaims regardless of shares.
Rules: pkg/scheduler/preemption of kubernetes-sigs/kueue at v0.19.2, KEP 1714.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu_tenancy.kueue.api import FairStrategy, Policy
from gpu_tenancy.kueue.candidate_cache import CandidateCache
from gpu_tenancy.kueue.preemption import (
    PreemptionContext,
    Reason,
    Target,
    candidates_ordering,
    exceeds_borrowing_limit,
    fill_back_workloads,
    restore_snapshot,
    same_queue_candidates,
)
from gpu_tenancy.kueue.resource_node import DominantResourceShare, Node, is_borrowing, path_edges, share
from gpu_tenancy.kueue.workload_info import Queue, WorkloadInfo


class TargetClusterQueueOrdering:
    """The candidates of one search by ClusterQueue; Kueue's `TargetClusterQueueOrdering`.

    Usage of the preemptor's queue includes the preemptor.
    Rules: pkg/scheduler/preemption/fairsharing of kubernetes-sigs/kueue at v0.19.2.
    """

    def __init__(
        self, preemptor: Queue, candidates: Mapping[Queue, Sequence[WorkloadInfo]], resources: list[int]
    ) -> None:
        self._preemptor, self._resources = preemptor, resources
        self._preemptor_nodes: frozenset[Node] = frozenset((preemptor, *preemptor.path))
        # The first candidate is last.
        self._candidates = {queue: list(reversed(own)) for queue, own in candidates.items()}
        # For each cohort: its children with candidates at or below them.
        self._children: dict[Node, dict[Node, None]] = {}
        for queue in candidates:
            for node, cohort in path_edges(queue):
                self._children.setdefault(cohort, {})[node] = None
        self._shares: dict[Node, DominantResourceShare] = {}  # until usage below the node is removed

    def retry(self, retry_candidates: Sequence[WorkloadInfo]) -> "TargetClusterQueueOrdering":
        """An ordering of these candidates alone, in the tree's present state."""
        candidates: dict[Queue, list[WorkloadInfo]] = {}
        for workload in sorted(retry_candidates, key=lambda candidate: candidates_ordering(None, candidate)):
            candidates.setdefault(workload.queue, []).append(workload)
        return TargetClusterQueueOrdering(self._preemptor, candidates, self._resources)

    @property
    def queues(self) -> Collection[Queue]:
        """The queues that have candidates."""
        return self._candidates.keys()

    def share(self, node: Node) -> DominantResourceShare:
        """A node's share in the tree's present state."""
        if node not in self._shares:
            self._shares[node] = share(node, self._resources)
        return self._shares[node]

    def first_candidate(self, queue: Queue) -> WorkloadInfo | None:
        """A queue's first candidate; None if it has none left."""
        candidates = self._candidates[queue]
        return candidates[-1] if candidates else None

    def skip_candidate(self, queue: Queue) -> None:
        """Drops a queue's first candidate."""
        self._candidates[queue].pop()

    def remove_candidate(self, queue: Queue) -> WorkloadInfo:
        """Drops a queue's first candidate and removes its usage from the tree."""
        workload = self._candidates[queue].pop()
        queue.remove_usage(workload.usage)
        for node in (queue, *queue.path):
            self._shares.pop(node, None)
        return workload

    def share_after_removal(self, node: Node, workload: WorkloadInfo) -> DominantResourceShare:
        """The share that a node has without a workload below it."""
        workload.queue.remove_usage(workload.usage)
        new_share = share(node, self._resources)
        workload.queue.add_usage(workload.usage)
        return new_share

    def drop_queue(self, queue: Queue) -> list[WorkloadInfo]:
        """Drops and returns all candidates of a queue, in their order."""
        if queue.parent is not None:
            self._children[queue.parent].pop(queue)
        return self._candidates.pop(queue)[::-1]

    def next_target(self) -> Queue | None:
        """The ClusterQueue of the next candidate; None if no candidates are left."""
        if self._preemptor.parent is None:
            return self._preemptor if self._candidates.get(self._preemptor) else None
        return self._next_target_below(self._preemptor.root)

    def _next_target_below(self, cohort: Node) -> Queue | None:
        children = self._children.get(cohort, {})
        while children:
            child = min(children, key=self._rank)
            if child in self._preemptor_nodes or is_borrowing(child):
                if not isinstance(child, Queue):
                    if (target := self._next_target_below(child)) is not None:
                        return target
                elif self._candidates[child]:
                    return child
            # Usage only falls during a search, so it stays without targets.
            del children[child]
        return None

    def _rank(self, node: Node) -> tuple[Any, ...]:
        """Sort key of a cohort's children: the largest share first.

        With equal shares Kueue prefers a cohort, to find the largest share inside, and of two queues the one with the
        first candidate. Its choice of two cohorts depends on the order of a map; here the first in the tenancy wins.
        """
        own = self.share(node)
        order: tuple[int, ...] = (node.position,)
        if isinstance(node, Queue):
            candidate = self.first_candidate(node)
            order = () if candidate is None else candidates_ordering(self._preemptor, candidate)
        return -own.weightless, -own.value, node.leaf, order


def find_targets(
    context: PreemptionContext, strategies: tuple[FairStrategy, ...], resources: list[int], cache: CandidateCache
) -> list[Target]:
    """The workloads to preempt so that the preemptor fits, empty if none suffice; Kueue's `fairPreemptions`."""
    same_queue = same_queue_candidates(context)
    if exceeds_borrowing_limit(context, same_queue):
        return []
    queue, reclaim = context.queue, context.queue.spec.preemption.reclaim
    candidates: dict[Queue, Sequence[WorkloadInfo]] = {}
    if queue.parent is not None and reclaim is not Policy.NEVER:
        candidates |= cache.reclaim_candidates(context.needs_preemption).by_queue(reclaim, context.preemptor.priority)
    candidates.pop(queue, None)
    if same_queue:
        candidates[queue] = same_queue
    if not candidates:
        return []
    # Shares include the preemptor.
    queue.add_usage(context.amounts)
    search = _Search(context, strategies, TargetClusterQueueOrdering(queue, candidates, resources))
    fits = search.run()
    queue.remove_usage(context.amounts)
    if not fits:
        restore_snapshot(search.targets)
        return []
    needed = fill_back_workloads(search.targets, lambda: queue.fits(context.amounts))
    restore_snapshot(needed)
    return needed


@dataclass(slots=True)
class _Search:
    """One search, which removes its targets from the tree."""

    context: PreemptionContext
    strategies: tuple[FairStrategy, ...]
    ordering: TargetClusterQueueOrdering
    targets: list[Target] = field(default_factory=list[Target])

    def run(self) -> bool:
        """Whether the preemptor fits without the targets."""
        # The preemptor's usage is included already.
        within_nominal = all(not self.context.queue.borrowing_with(key) for key in self.context.needs_preemption)
        own = self.context.queue
        if not within_nominal and own not in self.ordering.queues and not self._strategies_satisfiable():
            return False
        retry_candidates: list[WorkloadInfo] = []
        while (queue := self.ordering.next_target()) is not None:
            if queue is own:
                fits = self._preempt(self.ordering, queue, Reason.WITHIN_QUEUE)
            elif within_nominal:
                fits = self._preempt(self.ordering, queue, Reason.RECLAIM)
            else:
                fits = self._apply_first_strategy(queue, retry_candidates)
            if fits:
                return True
        return len(self.strategies) > 1 and self._run_second_strategy(retry_candidates)

    def _strategies_satisfiable(self) -> bool:
        """Whether a strategy may pass for any candidate in another queue while there are no targets."""
        pairs = map(self._almost_lowest_common_ancestors, self.ordering.queues)
        return any(self.ordering.share(preemptor) <= self.ordering.share(target) for preemptor, target in pairs)

    def _apply_first_strategy(self, queue: Queue, retry_candidates: list[WorkloadInfo]) -> bool:
        """Preempts only the first candidate that passes, since the next one may be in another queue."""
        ordering = self.ordering
        preemptor_node, target_node = self._almost_lowest_common_ancestors(queue)
        preemptor_new_share = ordering.share(preemptor_node)
        target_old_share = ordering.share(target_node)
        final_share = self.strategies[0] is FairStrategy.FINAL_SHARE
        if preemptor_new_share > target_old_share if final_share else preemptor_new_share >= target_old_share:
            # Preemption only lowers the target's share, so no candidate of this queue passes.
            retry_candidates += ordering.drop_queue(queue)
            return False
        while (workload := ordering.first_candidate(queue)) is not None:
            if not final_share or preemptor_new_share <= ordering.share_after_removal(target_node, workload):
                return self._preempt(ordering, queue, Reason.FAIR)
            retry_candidates.append(workload)
            ordering.skip_candidate(queue)
        return False

    def _run_second_strategy(self, retry_candidates: list[WorkloadInfo]) -> bool:
        ordering = self.ordering.retry(retry_candidates)
        while (queue := ordering.next_target()) is not None:
            preemptor_node, target_node = self._almost_lowest_common_ancestors(queue)
            if ordering.share(preemptor_node) < ordering.share(target_node) and self._preempt(
                ordering, queue, Reason.FAIR
            ):
                return True
            ordering.drop_queue(queue)
        return False

    def _preempt(self, ordering: TargetClusterQueueOrdering, queue: Queue, reason: Reason) -> bool:
        """Makes a queue's first candidate a target; returns whether the preemptor fits now."""
        self.targets.append(Target(ordering.remove_candidate(queue), reason))
        preemptor_queue, amounts = self.context.queue, self.context.amounts
        preemptor_queue.remove_usage(amounts)
        fits = preemptor_queue.fits(amounts)
        preemptor_queue.add_usage(amounts)
        return fits

    def _almost_lowest_common_ancestors(self, queue: Queue) -> tuple[Node, Node]:
        """The lowest common cohort's children above the preemptor and above the target; Kueue's `getAlmostLCAs`."""
        preemptor_nodes = {cohort: node for node, cohort in path_edges(self.context.queue)}
        return next((preemptor_nodes[cohort], node) for node, cohort in path_edges(queue) if cohort in preemptor_nodes)
