"""Which jobs show what a stack's queues promise: chosen by the simulation of Kueue."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Final

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.kueue import (
    ClusterQueue,
    FlavorQuotas,
    PodSet,
    Quota,
    Quotas,
    ResourceGroup,
    Step,
    Tenancy,
    Workload,
    run,
)
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Measure, Share, Tree, measures, measures_of, supply_of
from gpu_tenancy.simulation.stage import Moment, moment_of

ANYONE: Final = "anyone"
"""A queue without quota of its own and without a limit, in the root cohort: it can borrow all that is lent."""
_MOST_JOBS: Final = 8


@dataclass(frozen=True, slots=True)
class Return:
    """A queue comes back for its guarantee while all others use what they can.

    Attributes:
        others: jobs of all other queues, up to their limits.
        own: jobs of the queue, as large as its guarantee together.
        foreseen: the state after both, as simulated.
    """

    queue: str
    measure: Measure
    others: Step
    own: Step
    foreseen: Moment


@dataclass(frozen=True, slots=True)
class Excess:
    """A queue requests what it can have, and then more, while more is idle.

    Attributes:
        fitting: jobs that it can run.
        beyond: a job that it cannot run.
        available: what it can have.
    """

    queue: str
    measure: Measure
    fitting: Step
    beyond: Workload
    available: int


def contended(tree: Tree) -> Return | None:
    """The queue whose return takes most back from others.

    If the limits of others leave every guarantee idle, `ANYONE` borrows as well. None if no queue lends a guarantee.
    """
    # CPUs of nodes without GPUs are lent as well, even if no report counts them.
    lent = (Measure(name, flavor.resource or CPU) for name, flavor in tree.flavors.items())
    lenders = [
        (queue, measure)
        for measure in lent
        for queue in tree.queue_owners
        if tree.lends(queue) and share_of(tree, queue, measure).guaranteed
    ]
    for with_anyone in (False, True):
        found = [_return(tree, *lender, with_anyone=with_anyone) for lender in lenders]
        most = max(found, key=lambda scenario: len(scenario.foreseen.evicted), default=None)
        if most and most.foreseen.evicted:
            return most
    return None


def limited(tree: Tree) -> Excess | None:
    """A queue whose limit leaves something idle; None if each queue can use all that there is."""
    for measure in measures(tree):
        for queue in tree.queue_owners:
            limit = share_of(tree, queue, measure).effective_limit
            if measure.resource != MEMORY and 0 < limit < supply_of(tree, measure):
                return _excess(queue, measure, limit)
    return None


def kept(tree: Tree) -> Iterator[Excess]:
    """For each guarantee that is never lent: what a queue without a limit can borrow around it."""
    for queue in tree.queue_owners:
        for measure in measures_of(tree, queue):
            if measure.resource != MEMORY and not tree.lends(queue) and share_of(tree, queue, measure).guaranteed:
                yield _excess(ANYONE, measure, _borrowable(tree, measure))


def share_of(tree: Tree, queue: str, measure: Measure) -> Share:
    """The share of a queue in what is counted."""
    return tree.team_shares[queue].get(measure.flavor, {}).get(measure.resource, Share())


def anyone(tree: Tree) -> ClusterQueue:
    """The queue that can borrow all that is lent, of everything that queues have."""
    resources = sorted({flavor.resource or CPU for flavor in tree.flavors.values()})
    flavors = tuple(FlavorQuotas(name, {resource: Quota() for resource in resources}) for name in tree.flavors)
    return ClusterQueue(ANYONE, (ResourceGroup(flavors),), tree.root)


def _return(tree: Tree, queue: str, measure: Measure, *, with_anyone: bool) -> Return:
    unit, supply = _unit(tree, measure), supply_of(tree, measure)
    unlimited = tuple(_jobs(ANYONE, measure, supply, unit)) if with_anyone else ()
    others = unlimited + tuple(
        job
        for other in tree.queue_owners
        if other != queue
        for job in _jobs(other, measure, share_of(tree, other, measure).effective_limit, unit)
    )
    guarantee = share_of(tree, queue, measure).guaranteed
    own = tuple(_jobs(queue, measure, guarantee, guarantee))
    *_, settled = run(_with_anyone(tree), (Step(others), Step(own)))
    foreseen = moment_of(tree, queue, settled, {job.name: job for job in (*others, *own)})
    return Return(queue, measure, Step(others), Step(own), foreseen)


def _excess(queue: str, measure: Measure, available: int) -> Excess:
    fitting = tuple(_jobs(queue, measure, available, available)) if available else ()
    return Excess(queue, measure, Step(fitting), _job(f"{queue}-beyond", queue, measure, _least(measure)), available)


def _borrowable(tree: Tree, measure: Measure) -> int:
    """What a queue without quota and limit could borrow if all others used nothing."""
    return Quotas(_with_anyone(tree)).potential_available(ANYONE, (measure.flavor, measure.resource))


def _with_anyone(tree: Tree) -> Tenancy:
    spec = tenancy(tree)
    return replace(spec, queues=(*spec.queues, anyone(tree)))


def _jobs(queue: str, measure: Measure, total: int, unit: int) -> Iterator[Workload]:
    """Jobs of a size, up to a total; the last one can be smaller."""
    for number, start in enumerate(range(0, total, max(unit, 1))):
        amount = min(unit, total - start)
        yield _job(f"{queue}-{measure.flavor}-{number + 1}", queue, measure, amount)


def _job(name: str, queue: str, measure: Measure, amount: int) -> Workload:
    return Workload(name, queue, (PodSet({measure.resource: amount}, flavors=frozenset({measure.flavor})),))


def _unit(tree: Tree, measure: Measure) -> int:
    """A size of jobs that divides all guarantees and limits, or one with which no queue has too many jobs."""
    shares = [share_of(tree, queue, measure) for queue in tree.queue_owners]
    amounts = [amount for share in shares for amount in (share.guaranteed, share.effective_limit) if amount]
    most = max(share.effective_limit for share in shares)
    return max(gcd(*amounts), -(-most // _MOST_JOBS // _least(measure)) * _least(measure))


def _least(measure: Measure) -> int:
    """One GPU, or one CPU in millicores."""
    return 1000 if measure.resource == CPU else 1
