"""Preemption without fair sharing: within the queue, reclaim in the cohort, and reclaim while borrowing.

Candidates come in three kinds. Over some the workload has the advantage of the tree: a subtree that both are in has
room for it by its own quota, so whoever borrows from that subtree has to give way. Others are a matter of priority,
and there `borrowWithinCohort` decides whether the workload may borrow while it preempts. The third are those of its
own queue. Rules: pkg/scheduler/preemption/classical of kubernetes-sigs/kueue at v0.19.2.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gpu_tenancy.model.admission.candidates import (
    Need,
    Reason,
    Victim,
    give_back,
    out_of_nominal,
    out_of_reach,
    own,
    restore,
)
from gpu_tenancy.model.admission.pool import Pool, Running
from gpu_tenancy.model.admission.quota import Asks, Node
from gpu_tenancy.model.admission.spec import Policy
from gpu_tenancy.model.admission.workload_info import WorkloadInfo


class _Candidate(NamedTuple):
    claim: WorkloadInfo
    reason: Reason
    # The lowest cohort that holds both queues; None in the same queue.
    common: Node | None


class _Elsewhere:
    """The candidates of other queues: those that the advantage is over, and those of priority."""

    def __init__(self, need: Need, pool: Pool) -> None:
        self._need = need
        self._rules = need.queue.spec.preemption
        # Of each cohort above the queue, whether the workload has the advantage over who borrows through it.
        self._advantage: dict[Node, bool] = {}
        self._running: Running | None = None
        if need.queue.parent is None or self._rules.reclaim is Policy.NEVER:
            return
        advantage, left = _room(need.queue, need.asks)
        for cohort in need.queue.path:
            self._advantage[cohort] = advantage
            fits, left = _room(cohort, left)
            advantage = advantage or fits
        self._running = pool.running(need.contested)

    @property
    def has_advantage(self) -> bool:
        """Whether there is a cohort over whose borrowers the workload has the advantage."""
        return any(self._advantage.values())

    @property
    def any(self) -> bool:
        """Whether there is a candidate of either kind."""
        return any(next(self._all(evicting), None) is not None for evicting in (True, False))

    @property
    def any_advantage(self) -> bool:
        """Whether there is one that the advantage is over."""
        return any(next(self.advantaged(evicting), None) is not None for evicting in (True, False))

    def advantaged(self, evicting: bool) -> Iterator[_Candidate]:  # noqa: FBT001 - one of two sides
        """Those that borrow from a subtree that has room for the workload."""
        if self.has_advantage:
            for each, common in self._all(evicting):
                if self._advantage[common]:
                    yield _Candidate(each, Reason.RECLAIM, common)

    def by_priority(self, evicting: bool, *, borrowing: bool) -> Iterator[_Candidate]:  # noqa: FBT001 - as above
        """The others; while borrowing only those of lower priority, up to the threshold."""
        if all(self._advantage.values()) or (borrowing and self._rules.borrow is None):
            return
        for each, common in self._all(evicting):
            if self._advantage[common]:
                continue
            if self._may_borrow_from(each):
                yield _Candidate(each, Reason.RECLAIM_WHILE_BORROWING, common)
            elif not borrowing:
                yield _Candidate(each, Reason.RECLAIM, common)

    def _may_borrow_from(self, claim: WorkloadInfo) -> bool:
        borrow = self._rules.borrow
        if borrow is None or claim.priority >= self._need.claim.priority:
            return False
        return borrow.threshold is None or claim.priority <= borrow.threshold

    def _all(self, evicting: bool) -> Iterator[tuple[WorkloadInfo, Node]]:  # noqa: FBT001 - one of two sides
        if self._running is None:
            return
        queue, contested = self._need.queue, self._need.contested
        for each in self._running.reclaimable(self._rules.reclaim, self._need.claim.priority, evicting=evicting):
            if each.queue is queue:
                continue
            common = _common(each, self._advantage)
            if _branch_borrows(each, common, contested):
                yield each, common


def victims(need: Need, pool: Pool) -> list[Victim]:
    """Whom to preempt so that the workload fits; empty where nobody's going would help."""
    mine = own(need)
    if out_of_reach(need, mine):
        return []
    elsewhere = _Elsewhere(need, pool)
    if need.queue.spec.preemption.borrow is None and not elsewhere.has_advantage and out_of_nominal(need, mine):
        # It would borrow, and for that it may take from nobody else.
        return _attempt(need, (_Candidate(each, Reason.WITHIN_QUEUE, None) for each in mine), borrowing=True)
    for borrowing in _attempts(need, elsewhere):
        if not borrowing and out_of_nominal(need, mine):
            continue
        found = _attempt(need, _candidates(mine, elsewhere, borrowing=borrowing), borrowing=borrowing)
        if found:
            return found
    return []


def _attempts(need: Need, elsewhere: _Elsewhere) -> tuple[bool, ...]:
    """Whether the workload may borrow, in the first attempt and in the second."""
    queue = need.queue
    may_borrow = queue.spec.preemption.borrow is not None
    below_nominal = all(queue.used[key] < queue.nominal[key] for key in need.contested)
    if (not may_borrow and not below_nominal) or not elsewhere.any:
        return (True,)
    if not may_borrow and not elsewhere.any_advantage:
        return (False, True)
    return (True, False)


def _candidates(mine: list[WorkloadInfo], elsewhere: _Elsewhere, *, borrowing: bool) -> Iterator[_Candidate]:
    """In the order in which they are tried: all those already evicted first."""
    for evicting in (True, False):
        yield from elsewhere.advantaged(evicting)
        yield from elsewhere.by_priority(evicting, borrowing=borrowing)
        yield from (_Candidate(each, Reason.WITHIN_QUEUE, None) for each in mine if each.evicting is evicting)


def _attempt(need: Need, candidates: Iterator[_Candidate], *, borrowing: bool) -> list[Victim]:
    def fits() -> bool:
        if not borrowing and any(need.queue.borrows(key, amount) for key, amount in need.asks):
            return False
        return need.queue.fits(need.asks)

    taken: list[Victim] = []
    for each in candidates:
        if each.common is not None and not _branch_borrows(each.claim, each.common, need.contested):
            continue
        each.claim.queue.free(each.claim.usage)
        taken.append(Victim(each.claim, each.reason))
        if fits():
            kept = give_back(taken, fits)
            restore(kept)
            return kept
    restore(taken)
    return []


def _common(claim: WorkloadInfo, above: dict[Node, bool]) -> Node:
    """The lowest cohort of a claim that is among these."""
    return next(cohort for cohort in claim.queue.path if cohort in above)


def _branch_borrows(claim: WorkloadInfo, common: Node, contested: frozenset[int]) -> bool:
    """Whether a claim's queue and every cohort below the common one use more than they have."""
    node: Node | None = claim.queue
    while node is not None and node is not common:
        if node.within(contested):
            return False
        node = node.parent
    return True


def _room(node: Node, asks: Asks) -> tuple[bool, Asks]:
    """Whether a node has room by its own quota, and what is left to ask its parent for."""
    fits = all(node.used[key] + amount <= node.subtree[key] for key, amount in asks)
    return fits, tuple((key, max(0, amount - node.local(key))) for key, amount in asks)
