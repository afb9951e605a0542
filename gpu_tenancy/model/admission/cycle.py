"""One scheduling cycle of one tree: the heads are judged on the same state, then each gets its turn.

What a head is given in its turn counts for those after it. So does what it will have once its victims are gone, and
what a head that waits without victims may keep free for itself, because its queue cannot be sure to reclaim it.
Rules: pkg/scheduler/scheduler.go of kubernetes-sigs/kueue at v0.19.2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpu_tenancy.model.admission import classical, fairness
from gpu_tenancy.model.admission.candidates import Need, Victim
from gpu_tenancy.model.admission.cohort_tree import Tree
from gpu_tenancy.model.admission.flavors import Assignment, Mode, assign
from gpu_tenancy.model.admission.heads import Head, Tournament
from gpu_tenancy.model.admission.heads import classical as in_order
from gpu_tenancy.model.admission.pool import Pool
from gpu_tenancy.model.admission.quota import Asks, distance
from gpu_tenancy.model.admission.verdicts import Outcome
from gpu_tenancy.model.admission.workload_info import Queue, WorkloadInfo


@dataclass(slots=True)
class Turn:
    """A head after its turn."""

    head: Head
    outcome: Outcome


@dataclass(slots=True)
class _Cycle:
    tree: Tree
    number: int
    # Reserved for the rest of the cycle, not beyond.
    passing: list[tuple[Queue, Asks]] = field(default_factory=list[tuple[Queue, Asks]])
    victims: dict[WorkloadInfo, Victim] = field(default_factory=dict[WorkloadInfo, Victim])


def run_cycle(tree: Tree, heads: Sequence[WorkloadInfo], number: int, pool: Pool) -> list[Turn]:
    """Gives each head its turn, in order; those that are admitted use their quota when it returns.

    Args:
        tree: with everything that runs in it.
        heads: one of each queue.
        number: counts the tree's cycles.
        pool: of the tree, as it is before the cycle.
    """
    cycle = _Cycle(tree, number)
    judged = [_judge(tree, claim, number, pool) for claim in heads]
    order: Iterable[Head] = in_order(judged) if tree.fair is None else Tournament(judged, tree.resources)
    turns = [Turn(head, _turn(cycle, head)) for head in order]
    for queue, asks in cycle.passing:
        queue.free(asks)
    return turns


def _judge(tree: Tree, claim: WorkloadInfo, number: int, pool: Pool) -> Head:
    queue = claim.queue
    scan = claim.scan
    if scan is not None and number - scan.cycle > 1 and queue.generation > scan.generation:
        claim.scan = None
    # The search for flavors and the search for victims often ask the same.
    asked: dict[tuple[frozenset[int], Asks], list[Victim]] = {}

    def victims(contested: frozenset[int], asks: Asks) -> list[Victim]:
        if (contested, asks) not in asked:
            need = Need(claim, contested, asks)
            asked[contested, asks] = (
                classical.victims(need, pool) if tree.fair is None else fairness.victims(need, tree.fair, pool)
            )
        return asked[contested, asks]

    def oracle(contested: frozenset[int], asks: Asks) -> tuple[Mode, int]:
        found = victims(contested, asks)
        ((key, amount),) = asks
        for each in found:
            each.claim.queue.free(each.claim.usage)
        level, _ = distance(queue, key, amount)
        for each in found:
            each.claim.queue.use(each.claim.usage)
        if not found:
            return Mode.NO_VICTIMS, level
        return (Mode.PREEMPT if any(each.claim.queue is queue for each in found) else Mode.RECLAIM), level

    assignment = assign(claim, oracle, number, fair=tree.fair is not None)
    found = victims(assignment.contested, assignment.asks) if assignment.mode is Mode.PREEMPT else []
    return Head(claim, assignment, found)


def _turn(cycle: _Cycle, head: Head) -> Outcome:
    queue, assignment = head.claim.queue, head.assignment
    asks = assignment.asks
    if assignment.mode is Mode.NO_FIT:
        return Outcome.NO_FIT
    if assignment.mode is Mode.PREEMPT and not head.victims:
        if queue.keeps:
            _pass(cycle, queue, _kept_free(queue, assignment))
        return Outcome.NO_VICTIMS
    if any(each.claim in cycle.victims for each in head.victims):
        return Outcome.CONTESTED_VICTIMS
    if not _fits(cycle, head):
        return Outcome.OVERTAKEN
    cycle.victims |= {each.claim: each for each in head.victims}
    if assignment.mode is Mode.PREEMPT:
        _pass(cycle, queue, asks)
        return Outcome.PREEMPTING
    queue.use(asks)
    return Outcome.ADMITTED


def _pass(cycle: _Cycle, queue: Queue, asks: Asks) -> None:
    queue.use(asks)
    cycle.passing.append((queue, asks))


def _fits(cycle: _Cycle, head: Head) -> bool:
    """Whether a head fits once all victims of this cycle, its own among them, are gone."""
    queue, asks = head.claim.queue, head.assignment.asks
    if queue.fits(asks):
        return True
    gone = [*cycle.victims, *(each.claim for each in head.victims)]
    for claim in gone:
        claim.queue.free(claim.usage)
    fits = queue.fits(asks)
    for claim in gone:
        claim.queue.use(claim.usage)
    return fits


def _kept_free(queue: Queue, assignment: Assignment) -> Asks:
    """What a head without victims keeps from others: up to its nominal quota, or its limit where it would borrow."""
    kept: list[tuple[int, int]] = []
    for key, amount in assignment.asks:
        limit = queue.borrowing[key]
        free = queue.nominal[key] - queue.used[key]
        if assignment.level > 0:
            kept.append((key, amount if limit is None else max(0, min(amount, free + limit))))
        else:
            kept.append((key, max(0, min(amount, free))))
    return kept
