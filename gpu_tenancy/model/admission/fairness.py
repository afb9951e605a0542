"""Preemption with fair sharing: who borrows most for its weight gives way, as long as that makes shares more even.

From the root down, the child with the largest share is the next to lose a workload. Whether it does depends on the
strategies: the first of them decides on each candidate; where that is not enough, the second is tried once on each
queue with the candidates that were spared. A queue that stays within its own quota takes back regardless of shares.
Rules: pkg/scheduler/preemption of kubernetes-sigs/kueue at v0.19.2, KEP 1714.
"""

from gpu_tenancy.model.admission.candidates import Need, Reason, Victim, give_back, out_of_reach, own, restore
from gpu_tenancy.model.admission.fair_sharing_order import Ranking
from gpu_tenancy.model.admission.pool import Pool, borrowed
from gpu_tenancy.model.admission.quota import Node, edges
from gpu_tenancy.model.admission.shares import Share, share
from gpu_tenancy.model.admission.spec import FairStrategy, Policy
from gpu_tenancy.model.admission.workload_info import Queue, WorkloadInfo


def victims(need: Need, strategies: tuple[FairStrategy, ...], pool: Pool) -> list[Victim]:
    """Whom to preempt so that the workload fits; empty where nobody's going would help, or be fair."""
    mine = own(need)
    if out_of_reach(need, mine):
        return []
    reclaims = need.queue.parent is not None and need.queue.spec.preemption.reclaim is not Policy.NEVER
    if not mine and not (reclaims and borrowed(need.queue.root, need.contested)):
        return []
    elsewhere = None
    if reclaims:
        elsewhere = pool.ranked(need.contested, need.queue.spec.preemption.reclaim, need.claim.priority)
    # Shares are those after the workload's own admission.
    need.queue.use(need.asks)
    attempt = _Attempt(need, strategies, pool, Ranking(need.queue, mine, pool, elsewhere))
    fits = attempt.run(alone=not mine)
    need.queue.free(need.asks)
    if not fits:
        restore(attempt.taken)
        return []
    kept = give_back(attempt.taken, lambda: need.queue.fits(need.asks))
    restore(kept)
    return kept


class _Attempt:
    """One search for victims; `taken` have been removed from the tree."""

    def __init__(self, need: Need, strategies: tuple[FairStrategy, ...], pool: Pool, ranking: Ranking) -> None:
        self._need = need
        self._strategies = strategies
        self._pool = pool
        self._ranking = ranking
        self.taken: list[Victim] = []
        self._alone = False
        # Whether the second strategy could pass anywhere: the shares of a queue allowed it, or have changed since.
        self._second_may_pass = False

    def run(self, *, alone: bool) -> bool:
        """Whether the workload fits after those in `taken` have gone; `alone`: its own queue has no candidates."""
        self._alone = alone
        # What is asked for is in the tree already, so this is the state after admission.
        entitled = all(not self._need.queue.borrows(key) for key in self._need.contested)
        if alone and not entitled and not self._ranking.smaller_somewhere():
            return False
        spared: list[WorkloadInfo] = []
        if self._first(spared, entitled=entitled):
            return True
        return len(self._strategies) > 1 and (self._second_may_pass or bool(self.taken)) and self._second(spared)

    def _first(self, spared: list[WorkloadInfo], *, entitled: bool) -> bool:
        ranking = self._ranking
        while (queue := ranking.next()) is not None:
            if queue is self._need.queue:
                if self._take(ranking, queue, Reason.WITHIN_QUEUE):
                    return True
            elif entitled:
                if self._take(ranking, queue, Reason.RECLAIM):
                    return True
            elif self._strategy(queue, spared):
                return True
        return False

    def _strategy(self, queue: Queue, spared: list[WorkloadInfo]) -> bool:
        """Takes the first workload of a queue that the strategy lets go, for then another queue may be the next."""
        ranking = self._ranking
        own_side, their_side = self._sides(queue)
        mine = ranking.share(own_side)
        before = ranking.share(their_side)
        self._second_may_pass = self._second_may_pass or mine < before
        final = self._strategies[0] is FairStrategy.FINAL_SHARE
        if mine > before if final else mine >= before:
            # A share only falls when a workload leaves, so no candidate of this queue passes.
            if self._alone and own_side is self._need.queue:
                # Nor does one of its siblings, whose shares are smaller yet, and nothing lowers the own share.
                ranking.close(self._need.queue.path[0])
            else:
                spared += ranking.rest(queue)
            return False
        while (claim := ranking.first(queue)) is not None:
            if not final or mine <= self._share_without(their_side, claim):
                return self._take(ranking, queue, Reason.FAIR)
            spared.append(claim)
            ranking.skip(queue)
        return False

    def _second(self, spared: list[WorkloadInfo]) -> bool:
        ranking = self._ranking.again(spared)
        while (queue := ranking.next()) is not None:
            own_side, their_side = self._sides(queue)
            if ranking.share(own_side) < ranking.share(their_side) and self._take(ranking, queue, Reason.FAIR):
                return True
            ranking.rest(queue)
        return False

    def _take(self, ranking: Ranking, queue: Queue, reason: Reason) -> bool:
        """Removes a queue's first candidate; whether the workload fits now."""
        claim = ranking.take(queue)
        self.taken.append(Victim(claim, reason))
        mine, asks = self._need.queue, self._need.asks
        mine.free(asks)
        fits = mine.fits(asks)
        mine.use(asks)
        return fits

    def _share_without(self, node: Node, claim: WorkloadInfo) -> Share:
        claim.queue.free(claim.usage)
        found = share(node, self._pool.resources)
        claim.queue.use(claim.usage)
        return found

    def _sides(self, queue: Queue) -> tuple[Node, Node]:
        """The two children of the lowest common cohort: on the workload's side and on the victim's."""
        mine = {cohort: node for node, cohort in edges(self._need.queue)}
        return next((mine[cohort], node) for node, cohort in edges(queue) if cohort in mine)
