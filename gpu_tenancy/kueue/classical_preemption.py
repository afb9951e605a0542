"""Preemption without fair sharing: within the ClusterQueue, reclaim in the cohort, and reclaim while borrowing.

Candidates are in the same queue or in another one. A hierarchy candidate's queue borrows from a common subtree whose
quota the preemptor fits in; the reclaim policy alone allows its preemption. The other candidates in other queues are
priority candidates; `borrowWithinCohort` decides whether the preemptor may borrow.
Rules: pkg/scheduler/preemption and its package classical of kubernetes-sigs/kueue at v0.19.2.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from gpu_tenancy.kueue.api import Policy
from gpu_tenancy.kueue.candidate_cache import CandidateCache
from gpu_tenancy.kueue.preemption import (
    PreemptionContext,
    Reason,
    Target,
    exceeds_borrowing_limit,
    fill_back_workloads,
    must_borrow,
    restore_snapshot,
    same_queue_candidates,
)
from gpu_tenancy.kueue.resource_node import Amounts, Node
from gpu_tenancy.kueue.workload_info import WorkloadInfo


class _Candidate(NamedTuple):
    workload: WorkloadInfo
    reason: Reason
    # The lowest cohort above both queues; None for the same queue.
    common_ancestor: Node | None


class _OtherQueues:
    def __init__(self, context: PreemptionContext, cache: CandidateCache) -> None:
        self._context = context
        self._preemption = context.queue.spec.preemption
        # For each cohort above the queue: whether candidates with this common ancestor are hierarchy candidates.
        self._hierarchical_advantage: dict[Node, bool] = {}
        self._cache = cache
        if context.queue.parent is None or self._preemption.reclaim is Policy.NEVER:
            return
        advantage, remaining = _fit_in_quota(context.queue, context.amounts)
        for cohort in context.queue.path:
            self._hierarchical_advantage[cohort] = advantage
            fits, remaining = _fit_in_quota(cohort, remaining)
            advantage = advantage or fits

    @property
    def has_hierarchical_advantage(self) -> bool:
        return any(self._hierarchical_advantage.values())

    @property
    def has_candidates(self) -> bool:
        return any(next(self._candidates(evicting), None) is not None for evicting in (True, False))

    @property
    def has_hierarchy_candidates(self) -> bool:
        return any(next(self.hierarchy_candidates(evicting), None) is not None for evicting in (True, False))

    def hierarchy_candidates(self, evicting: bool) -> Iterator[_Candidate]:  # noqa: FBT001 - one of two parts
        if self.has_hierarchical_advantage:
            for workload, common_ancestor in self._candidates(evicting):
                if self._hierarchical_advantage[common_ancestor]:
                    yield _Candidate(workload, Reason.RECLAIM, common_ancestor)

    def priority_candidates(self, evicting: bool, *, borrowing: bool) -> Iterator[_Candidate]:  # noqa: FBT001 - as above
        """Priority candidates; while borrowing only candidates of lower priority up to the threshold."""
        if all(self._hierarchical_advantage.values()) or (borrowing and self._preemption.borrow is None):
            return
        # The highest priority that may be preempted while borrowing.
        highest = -math.inf
        if borrow := self._preemption.borrow:
            threshold = math.inf if borrow.threshold is None else borrow.threshold
            highest = min(self._context.preemptor.priority - 1, threshold)
        for workload, common_ancestor in self._candidates(evicting):
            if self._hierarchical_advantage[common_ancestor]:
                continue
            if workload.priority <= highest:
                yield _Candidate(workload, Reason.RECLAIM_WHILE_BORROWING, common_ancestor)
            elif not borrowing:
                yield _Candidate(workload, Reason.RECLAIM, common_ancestor)

    def _candidates(self, evicting: bool) -> Iterator[tuple[WorkloadInfo, Node]]:  # noqa: FBT001 - one of two parts
        if not self._hierarchical_advantage:
            return
        queue, needs_preemption = self._context.queue, self._context.needs_preemption
        candidates = self._cache.reclaim_candidates(needs_preemption).candidates(
            self._preemption.reclaim, self._context.preemptor.priority, evicting=evicting
        )
        for workload in candidates:
            if workload.queue is queue:
                continue
            common_ancestor = next(cohort for cohort in workload.queue.path if cohort in self._hierarchical_advantage)
            if _path_borrows(workload, common_ancestor, needs_preemption):
                yield workload, common_ancestor


def find_targets(context: PreemptionContext, cache: CandidateCache) -> list[Target]:
    """The workloads to preempt so that the preemptor fits, empty if none suffice; Kueue's `classicalPreemptions`."""
    same_queue = same_queue_candidates(context)
    if exceeds_borrowing_limit(context, same_queue):
        return []
    other_queues = _OtherQueues(context, cache)
    if (
        context.queue.spec.preemption.borrow is None
        and not other_queues.has_hierarchical_advantage
        and must_borrow(context, same_queue)
    ):
        # It would borrow, and priority candidates are not allowed for that.
        candidates = (_Candidate(workload, Reason.WITHIN_QUEUE, None) for workload in same_queue)
        return _attempt(context, candidates, borrowing=True)
    for borrowing in _attempts(context, other_queues):
        if not borrowing and must_borrow(context, same_queue):
            continue
        targets = _attempt(context, _candidates(same_queue, other_queues, borrowing=borrowing), borrowing=borrowing)
        if targets:
            return targets
    return []


def _attempts(context: PreemptionContext, other_queues: _OtherQueues) -> tuple[bool, ...]:
    """For each attempt, whether the preemptor may borrow."""
    queue = context.queue
    may_borrow = queue.spec.preemption.borrow is not None
    under_nominal = all(queue.usage[key] < queue.nominal[key] for key in context.needs_preemption)
    if (not may_borrow and not under_nominal) or not other_queues.has_candidates:
        return (True,)
    if not may_borrow and not other_queues.has_hierarchy_candidates:
        return (False, True)
    return (True, False)


def _candidates(same_queue: list[WorkloadInfo], other_queues: _OtherQueues, *, borrowing: bool) -> Iterator[_Candidate]:
    """All candidates in the order of the attempt: first the candidates that are being evicted."""
    for evicting in (True, False):
        yield from other_queues.hierarchy_candidates(evicting)
        yield from other_queues.priority_candidates(evicting, borrowing=borrowing)
        yield from (
            _Candidate(workload, Reason.WITHIN_QUEUE, None) for workload in same_queue if workload.evicting is evicting
        )


def _attempt(context: PreemptionContext, candidates: Iterator[_Candidate], *, borrowing: bool) -> list[Target]:
    def fits() -> bool:
        if not borrowing and any(context.queue.borrowing_with(key, amount) for key, amount in context.amounts):
            return False
        return context.queue.fits(context.amounts)

    targets: list[Target] = []
    for workload, reason, common_ancestor in candidates:
        # Targets that are removed already may have ended the borrowing.
        if common_ancestor is not None and not _path_borrows(workload, common_ancestor, context.needs_preemption):
            continue
        workload.queue.remove_usage(workload.usage)
        targets.append(Target(workload, reason))
        if fits():
            needed = fill_back_workloads(targets, fits)
            restore_snapshot(needed)
            return needed
    restore_snapshot(targets)
    return []


def _path_borrows(candidate: WorkloadInfo, common_ancestor: Node, needs_preemption: frozenset[int]) -> bool:
    """Whether a candidate's queue and every cohort below the common ancestor borrow; Kueue's `candidateIsValid`."""
    node: Node | None = candidate.queue
    while node is not None and node is not common_ancestor:
        if node.within_quota(needs_preemption):
            return False
        node = node.parent
    return True


def _fit_in_quota(node: Node, amounts: Amounts) -> tuple[bool, Amounts]:
    """Whether amounts fit in a node's quota, and the rest for its parent; Kueue's `QuantitiesFitInQuota`."""
    fits = all(node.usage[key] + amount <= node.subtree_quota[key] for key, amount in amounts)
    return fits, tuple((key, max(0, amount - node.local_available(key))) for key, amount in amounts)
