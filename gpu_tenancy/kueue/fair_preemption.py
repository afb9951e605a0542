"""Preemption with fair sharing: targets are in the ClusterQueues with the largest dominant resource shares.

From the root down, the child with the largest share provides the next candidate, on which the first strategy decides.
If the targets do not suffice, the second strategy is tried once for each queue, on the rejected candidates. A queue
within its nominal quota reclaims regardless of shares.
Rules: pkg/scheduler/preemption of kubernetes-sigs/kueue at v0.19.2, KEP 1714.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpu_tenancy.kueue.api import FairStrategy, Policy
from gpu_tenancy.kueue.candidate_cache import CandidateCache, FairSharingCandidates, TargetRank, any_queue_borrows
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

_NEGATIVE_SHARE = DominantResourceShare(weightless=False, value=-1.0)  # below every share; Kueue's `NegativeDRS`


class TargetClusterQueueOrdering:
    """The candidates of one search by ClusterQueue; Kueue's `TargetClusterQueueOrdering`.

    Unchanged nodes are read from `cache`, the tree before the search; queues that lost a candidate and changed shares,
    at first above the preemptor, are kept here. Usage of the preemptor's queue includes the preemptor.
    Rules: pkg/scheduler/preemption/fairsharing of kubernetes-sigs/kueue at v0.19.2.
    """

    def __init__(
        self,
        preemptor: Queue,
        same_queue: list[WorkloadInfo],
        cache: CandidateCache,
        other_queues: FairSharingCandidates | None,
    ) -> None:
        self._preemptor = preemptor
        self._cache = cache
        self._cached = other_queues or FairSharingCandidates(cache, None)
        self._changed_nodes: set[Node] = {preemptor, *preemptor.path}
        # Replaces the cached candidates of a queue; the first candidate is last.
        self._candidates: dict[Queue, list[WorkloadInfo]] = {preemptor: same_queue[::-1]}
        # For each cohort: its queues in `_candidates`, and its child cohorts in `_changed_nodes`.
        self._changed_queues: dict[Node, dict[Queue, None]] = {}
        self._changed_cohorts: dict[Node, dict[Node, None]] = {}
        # For each cohort: how many of its cached queues, and of its cached cohorts, are changed or pruned.
        self._skipped_queues: dict[Node, int] = {}
        self._skipped_cohorts: dict[Node, int] = {}
        self._pruned_cohorts: set[Node] = set()
        if same_queue and preemptor.path:
            self._changed_queues[preemptor.path[0]] = {preemptor: None}
        for child, cohort in zip(preemptor.path, preemptor.path[1:], strict=False):
            if same_queue or child in self._cached.queue_counts:
                self._changed_cohorts[cohort] = {child: None}

    def retry(self, retry_candidates: Iterable[WorkloadInfo]) -> "TargetClusterQueueOrdering":
        """An ordering of these candidates alone, in the tree's present state."""
        # The targets so far have changed shares, so the cache does not apply.
        cache = CandidateCache((), self._cache.resources)
        ordering = TargetClusterQueueOrdering(self._preemptor, [], cache, None)
        candidates: dict[Queue, list[WorkloadInfo]] = {}
        for workload in sorted(
            retry_candidates, key=lambda candidate: candidates_ordering(None, candidate), reverse=True
        ):
            candidates.setdefault(workload.queue, []).append(workload)
        ordering._candidates |= candidates
        for queue in candidates:
            ordering._changed_queues.setdefault(queue.path[0], {})[queue] = None
            ordering._mark_changed(queue)
        return ordering

    def share(self, node: Node) -> DominantResourceShare:
        """A node's share in the tree's present state."""
        return share(node, self._cache.resources) if node in self._changed_nodes else self._cache.share(node)

    def strategies_satisfiable(self) -> bool:
        """Whether a strategy may pass for any candidate in another queue while there are no targets.

        True if, in any cohort above, the share of the preemptor's child is at most the share of another child.
        """
        for node, cohort in path_edges(self._preemptor):
            preemptor_share = self.share(node)
            queues = (queue for _, queue in self._cached.queues.get(cohort, ()) if queue is not node)
            cohorts = (child for *_, child in reversed(self._cached.cohorts.get(cohort, ())) if child is not node)
            largest = (next(queues, None), next(cohorts, None))
            if any(other is not None and preemptor_share <= self._cache.share(other) for other in largest):
                return True
        return False

    def first_candidate(self, queue: Queue) -> WorkloadInfo | None:
        """A queue's first candidate; None if it has none left."""
        candidates = self._candidates_of(queue)
        return candidates[-1] if candidates else None

    def skip_candidate(self, queue: Queue) -> None:
        """Drops a queue's first candidate."""
        self._own_candidates_of(queue).pop()

    def remove_candidate(self, queue: Queue) -> WorkloadInfo:
        """Drops a queue's first candidate and removes its usage from the tree."""
        workload = self._own_candidates_of(queue).pop()
        queue.remove_usage(workload.usage)
        self._mark_changed(queue)
        return workload

    def drop_queue(self, queue: Queue) -> list[WorkloadInfo]:
        """Drops and returns all candidates of a queue, in their order."""
        candidates = self._candidates_of(queue)[::-1]
        self._candidates[queue] = []
        return candidates

    def prune_cohort(self, cohort: Node) -> None:
        """Drops all candidates below a cohort."""
        self._pruned_cohorts.add(cohort)

    def next_target(self) -> Queue | None:
        """The ClusterQueue of the next candidate; None if no candidates are left."""
        if self._preemptor.parent is None:
            return self._preemptor if self._candidates_of(self._preemptor) else None
        return self._next_target_below(self._preemptor.root)

    def _candidates_of(self, queue: Queue) -> list[WorkloadInfo]:
        candidates = self._candidates.get(queue)
        return self._cached.candidates.get(queue, []) if candidates is None else candidates

    def _own_candidates_of(self, queue: Queue) -> list[WorkloadInfo]:
        if queue not in self._candidates:
            self._candidates[queue] = list(self._cached.candidates[queue])
            self._changed_queues.setdefault(queue.path[0], {})[queue] = None
        return self._candidates[queue]

    def _next_target_below(self, cohort: Node) -> Queue | None:
        while cohort not in self._pruned_cohorts:
            queue, queue_share = self._highest_queue(cohort)
            child, child_share = self._highest_cohort(cohort)
            # With equal shares Kueue prefers the cohort, to find the largest share inside.
            if child is None or (queue is not None and queue_share > child_share):
                return queue
            target = self._next_target_below(child)
            if target is not None:
                return target
            self._pruned_cohorts.add(child)
        return None

    def _highest_queue(self, cohort: Node) -> tuple[Queue | None, DominantResourceShare]:
        highest: tuple[TargetRank, Queue] | None = None
        for queue in tuple(self._changed_queues.get(cohort, ())):
            candidates = self._candidates_of(queue)
            if not candidates or not (queue is self._preemptor or is_borrowing(queue)):
                del self._changed_queues[cohort][queue]
                continue
            rank = TargetRank.of(self.share(queue), candidates_ordering(self._preemptor, candidates[-1]))
            if highest is None or rank < highest[0]:
                highest = rank, queue
        cached = self._highest_cached_queue(cohort)
        if cached is not None and (highest is None or cached[0] < highest[0]):
            highest = cached
        return (None, _NEGATIVE_SHARE) if highest is None else (highest[1], self.share(highest[1]))

    def _highest_cached_queue(self, cohort: Node) -> tuple[TargetRank, Queue] | None:
        queues = self._cached.queues.get(cohort, [])
        skipped = self._skipped_queues.get(cohort, 0)
        while skipped < len(queues) and queues[skipped][1] in self._candidates:
            skipped += 1
        self._skipped_queues[cohort] = skipped
        return queues[skipped] if skipped < len(queues) else None

    def _highest_cohort(self, cohort: Node) -> tuple[Node | None, DominantResourceShare]:
        """With equal shares Kueue's choice depends on the order of a map; here the first in the tenancy wins."""
        highest: tuple[DominantResourceShare, int, Node] | None = None
        for child in self._changed_cohorts.get(cohort, ()):
            if child in self._pruned_cohorts or not (child in self._preemptor.path or is_borrowing(child)):
                continue
            rank = (self.share(child), -child.position, child)
            if highest is None or rank[:2] > highest[:2]:
                highest = rank
        cached = self._highest_cached_cohort(cohort)
        if cached is not None and (highest is None or cached[:2] > highest[:2]):
            highest = cached
        return (None, _NEGATIVE_SHARE) if highest is None else (highest[2], highest[0])

    def _highest_cached_cohort(self, cohort: Node) -> tuple[DominantResourceShare, int, Node] | None:
        cohorts = self._cached.cohorts.get(cohort, [])
        skipped = self._skipped_cohorts.get(cohort, 0)
        while skipped < len(cohorts) and (
            cohorts[-1 - skipped][2] in self._changed_nodes or cohorts[-1 - skipped][2] in self._pruned_cohorts
        ):
            skipped += 1
        self._skipped_cohorts[cohort] = skipped
        return cohorts[-1 - skipped] if skipped < len(cohorts) else None

    def _mark_changed(self, queue: Queue) -> None:
        self._changed_nodes.add(queue)
        for child, cohort in zip(queue.path, queue.path[1:], strict=False):
            self._changed_cohorts.setdefault(cohort, {})[child] = None
        self._changed_nodes.update(queue.path)


def find_targets(
    context: PreemptionContext, strategies: tuple[FairStrategy, ...], cache: CandidateCache
) -> list[Target]:
    """The workloads to preempt so that the preemptor fits, empty if none suffice; Kueue's `fairPreemptions`."""
    same_queue = same_queue_candidates(context)
    if exceeds_borrowing_limit(context, same_queue):
        return []
    queue = context.queue
    reclaims = queue.parent is not None and queue.spec.preemption.reclaim is not Policy.NEVER
    if not same_queue and not (reclaims and any_queue_borrows(queue.root, context.needs_preemption)):
        return []
    other_queues = None
    if reclaims:
        other_queues = cache.fair_sharing_candidates(
            context.needs_preemption, queue.spec.preemption.reclaim, context.preemptor.priority
        )
    # Shares include the preemptor.
    queue.add_usage(context.amounts)
    ordering = TargetClusterQueueOrdering(queue, same_queue, cache, other_queues)
    search = _Search(context, strategies, cache, ordering, only_other_queues=not same_queue)
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
    """One search, which removes its targets from the tree; `only_other_queues`: no candidate is in the same queue."""

    context: PreemptionContext
    strategies: tuple[FairStrategy, ...]
    cache: CandidateCache
    ordering: TargetClusterQueueOrdering
    only_other_queues: bool
    targets: list[Target] = field(default_factory=list[Target])
    # False if the shares of every queue so far rule out the second strategy; targets change shares.
    second_strategy_may_pass: bool = False

    def run(self) -> bool:
        """Whether the preemptor fits without the targets."""
        # The preemptor's usage is included already.
        within_nominal = all(not self.context.queue.borrowing_with(key) for key in self.context.needs_preemption)
        if self.only_other_queues and not within_nominal and not self.ordering.strategies_satisfiable():
            return False
        retry_candidates: list[WorkloadInfo] = []
        while (queue := self.ordering.next_target()) is not None:
            if queue is self.context.queue:
                fits = self._preempt(self.ordering, queue, Reason.WITHIN_QUEUE)
            elif within_nominal:
                fits = self._preempt(self.ordering, queue, Reason.RECLAIM)
            else:
                fits = self._apply_first_strategy(queue, retry_candidates)
            if fits:
                return True
        second_strategy_may_pass = self.second_strategy_may_pass or bool(self.targets)
        return len(self.strategies) > 1 and second_strategy_may_pass and self._run_second_strategy(retry_candidates)

    def _apply_first_strategy(self, queue: Queue, retry_candidates: list[WorkloadInfo]) -> bool:
        """Preempts only the first candidate that passes, since the next one may be in another queue."""
        ordering = self.ordering
        preemptor_node, target_node = self._almost_lowest_common_ancestors(queue)
        preemptor_new_share = ordering.share(preemptor_node)
        target_old_share = ordering.share(target_node)
        self.second_strategy_may_pass = self.second_strategy_may_pass or preemptor_new_share < target_old_share
        final_share = self.strategies[0] is FairStrategy.FINAL_SHARE
        if preemptor_new_share > target_old_share if final_share else preemptor_new_share >= target_old_share:
            # Preemption only lowers the target's share, so no candidate of this queue passes.
            if self.only_other_queues and preemptor_node is self.context.queue:
                # The same holds for its siblings: their shares are smaller, and the preemptor's cannot fall.
                ordering.prune_cohort(self.context.queue.path[0])
            else:
                retry_candidates += ordering.drop_queue(queue)
            return False
        while (workload := ordering.first_candidate(queue)) is not None:
            if not final_share or preemptor_new_share <= self._share_after_removal(target_node, workload):
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
        workload = ordering.remove_candidate(queue)
        self.targets.append(Target(workload, reason))
        preemptor_queue, amounts = self.context.queue, self.context.amounts
        preemptor_queue.remove_usage(amounts)
        fits = preemptor_queue.fits(amounts)
        preemptor_queue.add_usage(amounts)
        return fits

    def _share_after_removal(self, node: Node, workload: WorkloadInfo) -> DominantResourceShare:
        workload.queue.remove_usage(workload.usage)
        new_share = share(node, self.cache.resources)
        workload.queue.add_usage(workload.usage)
        return new_share

    def _almost_lowest_common_ancestors(self, queue: Queue) -> tuple[Node, Node]:
        """The lowest common cohort's children above the preemptor and above the target; Kueue's `getAlmostLCAs`."""
        preemptor_nodes = {cohort: node for node, cohort in path_edges(self.context.queue)}
        return next((preemptor_nodes[cohort], node) for node, cohort in path_edges(queue) if cohort in preemptor_nodes)
