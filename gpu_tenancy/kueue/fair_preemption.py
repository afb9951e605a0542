"""Preemption with fair sharing: targets are in the ClusterQueues with the largest dominant resource shares.

From the root down, the child with the largest share provides the next candidate. The first strategy decides on each
candidate. If the targets do not suffice, the second strategy is tried once for each queue, with the candidates that the
first rejected. A queue within its nominal quota reclaims regardless of shares.
Rules: pkg/scheduler/preemption of kubernetes-sigs/kueue at v0.19.2, KEP 1714.
"""

from gpu_tenancy.kueue.api import FairStrategy, Policy
from gpu_tenancy.kueue.candidate_cache import CandidateCache, any_queue_borrows
from gpu_tenancy.kueue.fair_sharing import DominantResourceShare, share
from gpu_tenancy.kueue.fair_sharing_order import TargetClusterQueueOrdering
from gpu_tenancy.kueue.preemption import (
    PreemptionContext,
    Reason,
    Target,
    exceeds_borrowing_limit,
    fill_back_workloads,
    restore_snapshot,
    same_queue_candidates,
)
from gpu_tenancy.kueue.resource_node import Node, path_edges
from gpu_tenancy.kueue.workload_info import Queue, WorkloadInfo


def find_targets(
    context: PreemptionContext, strategies: tuple[FairStrategy, ...], cache: CandidateCache
) -> list[Target]:
    """The workloads to preempt so that the preemptor fits; empty if the candidates do not suffice.

    Source: `fairPreemptions`.
    """
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
    search = _Search(context, strategies, cache, ordering)
    fits = search.run(only_other_queues=not same_queue)
    queue.remove_usage(context.amounts)
    if not fits:
        restore_snapshot(search.targets)
        return []
    needed = fill_back_workloads(search.targets, lambda: queue.fits(context.amounts))
    restore_snapshot(needed)
    return needed


class _Search:
    """One search for targets.

    Attributes:
        targets: those so far; they are removed from the tree.
    """

    def __init__(
        self,
        context: PreemptionContext,
        strategies: tuple[FairStrategy, ...],
        cache: CandidateCache,
        ordering: TargetClusterQueueOrdering,
    ) -> None:
        self._context = context
        self._strategies = strategies
        self._cache = cache
        self._ordering = ordering
        self.targets: list[Target] = []
        self._only_other_queues = False
        # False if the shares of every queue so far rule out the second strategy; targets change shares.
        self._second_strategy_may_pass = False

    def run(self, *, only_other_queues: bool) -> bool:
        """Finds targets; `only_other_queues`: there are no candidates in the same queue.

        Returns:
            Whether the preemptor fits without `targets`.
        """
        self._only_other_queues = only_other_queues
        # The preemptor's usage is included already.
        within_nominal = all(not self._context.queue.borrowing_with(key) for key in self._context.needs_preemption)
        if only_other_queues and not within_nominal and not self._ordering.strategies_satisfiable():
            return False
        retry_candidates: list[WorkloadInfo] = []
        if self._run_first_strategy(retry_candidates, within_nominal=within_nominal):
            return True
        second_strategy_may_pass = self._second_strategy_may_pass or bool(self.targets)
        return len(self._strategies) > 1 and second_strategy_may_pass and self._run_second_strategy(retry_candidates)

    def _run_first_strategy(self, retry_candidates: list[WorkloadInfo], *, within_nominal: bool) -> bool:
        ordering = self._ordering
        while (queue := ordering.next_target()) is not None:
            if queue is self._context.queue:
                if self._preempt(ordering, queue, Reason.WITHIN_QUEUE):
                    return True
            elif within_nominal:
                if self._preempt(ordering, queue, Reason.RECLAIM):
                    return True
            elif self._apply_first_strategy(queue, retry_candidates):
                return True
        return False

    def _apply_first_strategy(self, queue: Queue, retry_candidates: list[WorkloadInfo]) -> bool:
        """Preempts the first candidate that passes, since another queue may be next after that."""
        ordering = self._ordering
        preemptor_node, target_node = self._almost_lowest_common_ancestors(queue)
        preemptor_new_share = ordering.share(preemptor_node)
        target_old_share = ordering.share(target_node)
        self._second_strategy_may_pass = self._second_strategy_may_pass or preemptor_new_share < target_old_share
        final_share = self._strategies[0] is FairStrategy.FINAL_SHARE
        if preemptor_new_share > target_old_share if final_share else preemptor_new_share >= target_old_share:
            # Preemption only lowers the target's share, so no candidate of this queue passes.
            if self._only_other_queues and preemptor_node is self._context.queue:
                # The same holds for its siblings: their shares are smaller, and the preemptor's cannot fall.
                ordering.prune_cohort(self._context.queue.path[0])
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
        ordering = self._ordering.retry(retry_candidates)
        while (queue := ordering.next_target()) is not None:
            preemptor_node, target_node = self._almost_lowest_common_ancestors(queue)
            if ordering.share(preemptor_node) < ordering.share(target_node) and self._preempt(
                ordering, queue, Reason.FAIR
            ):
                return True
            ordering.drop_queue(queue)
        return False

    def _preempt(self, ordering: TargetClusterQueueOrdering, queue: Queue, reason: Reason) -> bool:
        """Makes a queue's first candidate a target; whether the preemptor fits now."""
        workload = ordering.remove_candidate(queue)
        self.targets.append(Target(workload, reason))
        preemptor_queue, amounts = self._context.queue, self._context.amounts
        preemptor_queue.remove_usage(amounts)
        fits = preemptor_queue.fits(amounts)
        preemptor_queue.add_usage(amounts)
        return fits

    def _share_after_removal(self, node: Node, workload: WorkloadInfo) -> DominantResourceShare:
        workload.queue.remove_usage(workload.usage)
        new_share = share(node, self._cache.resources)
        workload.queue.add_usage(workload.usage)
        return new_share

    def _almost_lowest_common_ancestors(self, queue: Queue) -> tuple[Node, Node]:
        """The children of the lowest common cohort on the preemptor's and the target's side; `getAlmostLCAs`."""
        preemptor_nodes = {cohort: node for node, cohort in path_edges(self._context.queue)}
        return next((preemptor_nodes[cohort], node) for node, cohort in path_edges(queue) if cohort in preemptor_nodes)
