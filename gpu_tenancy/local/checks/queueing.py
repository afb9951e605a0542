"""Checks that Kueue enforces guarantees, limits, and quota that is never lent.

Jobs run on temporary copies of the stack's queues, so that the stack's own workloads are not touched. The simulation of
Kueue chooses the jobs.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import gcd
from typing import Final

from gpu_tenancy.base.json import Json, at, map_at
from gpu_tenancy.base.quantity import CPU, MEMORY, amount_text, is_extended
from gpu_tenancy.base.texts import counted
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
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
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Measure, Share, Tree, measures, measures_of, supply_of
from gpu_tenancy.simulation.copies import KUEUE, Place
from gpu_tenancy.simulation.live import LivePlayer, job_of
from gpu_tenancy.simulation.player import Event
from gpu_tenancy.simulation.stage import Moment, amount_of, moment_of

ANYONE: Final = "anyone"  # a queue without quota and limit in the root cohort: it can borrow all quota that is lent
_MOST_JOBS: Final = 8


@dataclass(frozen=True, slots=True)
class Return:
    """Jobs of a queue (`own`) reclaim its guarantee from all others, whose jobs (`others`) have used all quota.

    `others` go up to their limits, `own` is as large as the guarantee; `foreseen` is the simulated state after both.
    """

    queue: str
    measure: Measure
    others: Step
    own: Step
    foreseen: Moment


@dataclass(frozen=True, slots=True)
class Excess:
    """A queue requests its available quota (`fitting`), and then a job `beyond`, while more is idle."""

    queue: str
    measure: Measure
    fitting: Step
    beyond: Workload
    available: int


def check_queueing(cluster: Cluster, tree: Tree, places: Mapping[str, Place]) -> Iterator[Check]:
    """Checks one guarantee, one limit and all quota that is never lent, and that no job runs without a queue.

    `places` are copies of the stack's queues, and of the queue without a limit.
    """
    stage = _Stage(cluster, tree, places)
    if scenario := contended(tree):
        yield stage.returned(scenario)
    if excess := limited(tree):
        yield stage.limit(excess)
    for excess in kept(tree):
        yield stage.kept(excess)
    yield from _unqueued(cluster, tree)


@dataclass(frozen=True, slots=True)
class _Stage:
    cluster: Cluster
    tree: Tree
    places: Mapping[str, Place]

    def returned(self, scenario: Return) -> Check:
        """Checks that a queue reclaims its guarantee."""
        admitted: list[float] = []
        messages: list[str] = []
        began = 0.0

        def tell(event: Event) -> None:
            if event.kind == "admitted" and any(event.job == workload.name for workload in scenario.own.submit):
                admitted.append(time.monotonic() - began)
            elif event.kind == "preempted":
                messages.append(event.message)

        player = LivePlayer(self.cluster, self.tree, self.places)
        before = player.play_step("others", scenario.others, tell)
        began = time.monotonic()
        after = player.play_step("owner", scenario.own, tell)
        player.clear()
        measure, guarantee = scenario.measure, share_of(self.tree, scenario.queue, scenario.measure).guaranteed
        by_team = groupby(sorted(after.evicted, key=lambda job: job.team), lambda job: job.team)
        preempted = [
            f"{_called(team)} {_of(sum(amount_of(job, measure) for job in jobs), measure)}" for team, jobs in by_team
        ]
        had = after.amount(scenario.queue, measure)
        return Check(
            f"{scenario.queue} gets its {_of(guarantee, measure)} at once, whatever others borrow",
            f"{self._usage(self._amounts(before, measure), measure)};"
            f" {scenario.queue} requested {_of(guarantee, measure)}"
            + (f" and was admitted after {max(admitted):.1f} s" if admitted else " and is pending")
            + f"; {' and '.join(preempted) or 'none'} preempted",
            message=messages[0] if messages else "",
            holds=had == guarantee and self._amounts(after, measure) == self._amounts(scenario.foreseen, measure),
        )

    def limit(self, excess: Excess) -> Check:
        """Checks the limit of a queue while more is idle."""
        fits, message = self._tried(excess)
        limit = _of(excess.available, excess.measure)
        idle = _of(supply_of(self.tree, excess.measure) - excess.available, excess.measure)
        return Check(
            f"{excess.queue} cannot use more than its limit, {limit}, although more is idle",
            f"{limit} {'admitted' if fits else 'pending'}, {idle} idle; a job beyond it is {_state(message)}",
            holds=fits and message is not None,
            message=message or "",
        )

    def kept(self, excess: Excess) -> Check:
        """Checks quota that is never lent."""
        fits, message = self._tried(excess)
        owners = [
            f"{_of(share_of(self.tree, queue, excess.measure).guaranteed, excess.measure)} of {queue}"
            for queue in self.tree.queue_owners
            if not self.tree.lends(queue) and share_of(self.tree, queue, excess.measure).guaranteed
        ]
        around = (
            f"could borrow {_of(excess.available, excess.measure)} around it"
            if excess.available
            else "had no other quota"
        )
        return Check(
            f"{' and '.join(owners)} stay idle rather than be lent",
            f"a queue without a limit {around}; a job beyond that is {_state(message)}",
            holds=fits and message is not None,
            message=message or "",
        )

    def _tried(self, excess: Excess) -> tuple[bool, str | None]:
        """Whether all fitting jobs were admitted, and Kueue's message about the one beyond; None if it was admitted."""
        player = LivePlayer(self.cluster, self.tree, self.places)
        moment = player.play_step("fitting", excess.fitting)
        fits = len(moment.running) == len(excess.fitting.submit)
        moment = player.play_step("beyond", Step((excess.beyond,)))
        pending = any(job.workload == excess.beyond.name for job in moment.waiting)
        message = player.message(excess.beyond.name) if pending else None
        player.clear()
        return fits, message

    def _amounts(self, moment: Moment, measure: Measure) -> dict[str, int]:
        return {queue: moment.amount(queue, measure) for queue in (*self.tree.queue_owners, ANYONE)}

    def _usage(self, used: Mapping[str, int], measure: Measure) -> str:
        """`others used 24 of 32 a100 GPUs, b borrowed 8 GPUs`."""
        supply = amount_text(measure.resource, supply_of(self.tree, measure))
        noun = f"{measure.flavor} GPUs" if is_extended(measure.resource) else "CPUs"
        parts: list[str] = []
        for queue, amount in used.items():
            borrowed = amount - (0 if queue == ANYONE else share_of(self.tree, queue, measure).guaranteed)
            if borrowed > 0:
                parts.append(f"{_called(queue)} borrowed {counted(borrowed, measure.resource)}")
        total = amount_text(measure.resource, sum(used.values()))
        return f"others used {total} of {supply} {noun}, {', '.join(parts) or 'none of it borrowed'}"


def _called(queue: str) -> str:
    return "a queue without a limit" if queue == ANYONE else queue


def _of(amount: int, measure: Measure) -> str:
    return counted(amount, measure.resource, measure.flavor if is_extended(measure.resource) else "")


def _state(message: str | None) -> str:
    return "admitted" if message is None else "pending"


def manifest_of_anyone(tree: Tree) -> Manifest:
    """The ClusterQueue without quota and limit that can borrow all quota of the stack's queues."""
    queue = anyone(tree)
    (group,) = queue.groups
    flavors: list[Json] = [
        {"name": flavor.flavor, "resources": [{"name": resource, "nominalQuota": 0} for resource in flavor.resources]}
        for flavor in group.flavors
    ]
    covered: list[Json] = [*sorted(group.covered)]
    groups: list[Json] = [{"coveredResources": covered, "flavors": flavors}]
    spec: Json = {"cohortName": queue.cohort, "resourceGroups": groups}
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": queue.name}, "spec": spec}


def _unqueued(cluster: Cluster, tree: Tree) -> Iterator[Check]:
    team = next(iter(tree.queue_owners), None)
    if team is None:
        return
    sample = Workload("sample", team, (PodSet({CPU: 100}),))
    job = job_of(tree, sample, Place(team, "", runs=True), 0)
    metadata = job["metadata"]
    if isinstance(metadata, dict):
        metadata["labels"] = {}
    promise = f"a job without a queue does not run in {team}"
    try:
        created = cluster.create({**job, "spec": {**map_at(job, "spec"), "suspend": False}}, dry_run=True)
    except ApiError as error:
        yield Check(promise, "is rejected", holds=True, message=str(error))
        return
    suspended = at(created, "spec", "suspend") is True
    yield Check(promise, "Kueue suspends it until it has a queue" if suspended else "is not suspended", holds=suspended)


def contended(tree: Tree) -> Return | None:
    """The queue whose return reclaims most from others; None if no queue lends a guarantee.

    If the limits of others leave every guarantee idle, `ANYONE` borrows as well.
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
    """A queue whose limit leaves quota idle; None if each queue can use all quota."""
    for measure in measures(tree):
        for queue in tree.queue_owners:
            limit = share_of(tree, queue, measure).effective_limit
            if measure.resource != MEMORY and 0 < limit < supply_of(tree, measure):
                return _excess(queue, measure, limit)
    return None


def kept(tree: Tree) -> Iterator[Excess]:
    """For each guarantee that is never lent: the quota that a queue without a limit can borrow around it."""
    for queue in tree.queue_owners:
        for measure in measures_of(tree, queue):
            if measure.resource != MEMORY and not tree.lends(queue) and share_of(tree, queue, measure).guaranteed:
                # What a queue without quota and limit could borrow if all others used nothing.
                quotas = Quotas(_with_anyone(tree))
                yield _excess(ANYONE, measure, quotas.potential_available(ANYONE, (measure.flavor, measure.resource)))


def share_of(tree: Tree, queue: str, measure: Measure) -> Share:
    """The share of a queue in a measure."""
    return tree.team_shares[queue].get(measure.flavor, {}).get(measure.resource, Share())


def anyone(tree: Tree) -> ClusterQueue:
    """The queue that can borrow all quota that is lent, of each resource and flavor."""
    resources = sorted({flavor.resource or CPU for flavor in tree.flavors.values()})
    flavors = tuple(FlavorQuotas(name, {resource: Quota() for resource in resources}) for name in tree.flavors)
    return ClusterQueue(ANYONE, (ResourceGroup(flavors),), tree.root)


def _return(tree: Tree, queue: str, measure: Measure, *, with_anyone: bool) -> Return:
    # A size of jobs that divides all guarantees and limits, or one with which no queue has too many jobs.
    shares = [share_of(tree, queue, measure) for queue in tree.queue_owners]
    amounts = [amount for share in shares for amount in (share.guaranteed, share.effective_limit) if amount]
    most = max(share.effective_limit for share in shares)
    unit = max(gcd(*amounts), -(-most // _MOST_JOBS // _least(measure)) * _least(measure))
    supply = supply_of(tree, measure)
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


def _with_anyone(tree: Tree) -> Tenancy:
    spec = tenancy(tree)
    return replace(spec, queues=(*spec.queues, anyone(tree)))


def _jobs(queue: str, measure: Measure, total: int, unit: int) -> Iterator[Workload]:
    for number, start in enumerate(range(0, total, max(unit, 1)), start=1):
        yield _job(f"{queue}-{measure.flavor}-{number}", queue, measure, min(unit, total - start))


def _job(name: str, queue: str, measure: Measure, amount: int) -> Workload:
    return Workload(name, queue, (PodSet({measure.resource: amount}, flavors=frozenset({measure.flavor})),))


def _least(measure: Measure) -> int:
    return 1000 if measure.resource == CPU else 1
