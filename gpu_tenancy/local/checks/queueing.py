"""Checks that Kueue enforces guarantees, limits, and quota that is never lent.

Jobs run on temporary copies of the stack's queues, so that the stack's own workloads are not touched. The simulation of
Kueue chooses the jobs. Jobs of a guarantee request GPUs, CPU and memory, because each of them can prevent a reclaim.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, gcd
from typing import Final

from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.json import Json, at, map_at
from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, add, amount_text, is_extended
from gpu_tenancy.base.texts import counted, unit
from gpu_tenancy.cluster.demand import target_of
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.explain.why import KINDS, OWN, why
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kueue import FlavorResource, PodSet, Quotas, Step, Tenancy, Workload, run
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.model.names import KUEUE
from gpu_tenancy.model.plan.queues import tenancy, unlimited_queue
from gpu_tenancy.model.plan.shares import Measure, Share, Tree, measures, measures_of, supply_of
from gpu_tenancy.simulation.copies import Place, uncopied
from gpu_tenancy.simulation.live import LivePlayer, job_of
from gpu_tenancy.simulation.player import Event
from gpu_tenancy.simulation.stage import Moment, amount_of, moment_of

ANYONE: Final = "anyone"  # a queue without quota and limit in the root cohort: it can borrow all quota that is lent
_MOST_JOBS: Final = 8
_CPU: Final = 1000  # millicores


@dataclass(frozen=True, slots=True)
class Return:
    """A job (`own`) reclaims its queue's whole guarantee from all others, whose jobs (`others`) have used all quota."""

    queue: str
    guarantee: Guarantee
    others: Step
    own: Workload
    foreseen: Moment  # simulated, after both
    beyond: Workload | None  # the job with one CPU more, which waits in the same situation
    untried: str  # the reason if there is no such job

    @property
    def larger(self) -> Guarantee:
        """The guarantee with one CPU more."""
        return replace(self.guarantee, amounts=add(self.guarantee.amounts, {CPU: _CPU}))

    def used(self, moment: Moment) -> dict[str, dict[str, int]]:
        """The amounts of running jobs by queue."""
        requests = {job.name: job.pod_sets[0].requests for job in (*self.others.submit, self.own)}
        totals: dict[str, dict[str, int]] = {}
        for job in moment.running:
            totals[job.team] = add(totals.get(job.team, {}), requests.get(job.workload, {}))
        return totals


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
        yield from stage.returned(scenario)
    if excess := limited(tree):
        yield stage.limit(excess)
    yield from (stage.kept(excess) for excess in kept(tree))
    yield from _unqueued(cluster, tree)


@dataclass(frozen=True, slots=True)
class _Stage:
    cluster: Cluster
    tree: Tree
    places: Mapping[str, Place]

    def returned(self, scenario: Return) -> Iterator[Check]:
        """Checks that a queue reclaims its guarantee, and that a job with one CPU more waits in the same situation."""
        admitted: list[float] = []
        messages: list[str] = []
        began = 0.0

        def tell(event: Event) -> None:
            if event.kind == "admitted" and event.job == scenario.own.name:
                admitted.append(time.monotonic() - began)
            elif event.kind == "preempted":
                messages.append(event.message)

        player = LivePlayer(self.cluster, self.tree, self.places)
        before = player.play_step("others", scenario.others, tell)
        larger = [self._larger(scenario, scenario.beyond, player)] if scenario.beyond else []
        began = time.monotonic()
        after = player.play_step("owner", Step((scenario.own,)), tell)
        player.clear()
        queue, guarantee = scenario.queue, scenario.guarantee
        measure = Measure(guarantee.flavor, guarantee.resource)
        by_team = groupby(sorted(after.evicted, key=lambda job: job.team), lambda job: job.team)
        preempted = [
            f"{_called(team)} {_of(sum(amount_of(job, measure) for job in jobs), measure)}" for team, jobs in by_team
        ]
        used = scenario.used(after)
        yield Check(
            f"{queue} gets {_vector(guarantee)} back at once",
            f"{self._usage(scenario.used(before), measure)}; {queue} requested {_vector(guarantee)}"
            + (f" and was admitted after {max(admitted):.1f} s" if admitted else " and is pending")
            + f"; {' and '.join(preempted) or 'none'} preempted"
            + (f"; {scenario.untried}" if scenario.untried else ""),
            message=messages[0] if messages else "",
            holds=used.get(queue) == scenario.own.pod_sets[0].requests and used == scenario.used(scenario.foreseen),
        )
        yield from larger

    def _larger(self, scenario: Return, beyond: Workload, player: LivePlayer) -> Check:
        moment = player.play_step("beyond", Step((beyond,)))
        pending = any(job.workload == beyond.name for job in moment.waiting)
        job, message = player.reference(beyond.name), player.message(beyond.name)
        state = read(self.cluster, KINDS, job.namespace, only=OWN)
        reason = uncopied(why(target_of(self.cluster.get(*job) or {}, state), state).reason)
        player.play_step("withdrawn", Step(finish=(beyond.name,)))
        return Check(
            f"with one CPU more, a job of {scenario.queue} waits, and `tenancy why` names CPU",
            f"requested {_vector(scenario.larger)}; {reason if pending else 'admitted'}",
            holds=pending and "CPU" in reason,
            message=message if pending else "",
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

    def _usage(self, used: Mapping[str, Amounts], measure: Measure) -> str:
        """`others used 24 of 32 a100 GPUs, 90 of 96 CPUs, 1Ti of 1Ti memory; b borrowed 8 GPUs`."""
        total, supply = add(*used.values()), self.tree.supply(measure.flavor)
        nouns = {resource: unit(resource) for resource in (measure.resource, CPU, MEMORY) if resource in supply}
        if is_extended(measure.resource):
            nouns[measure.resource] = f"{measure.flavor} GPUs"
        all_used = ", ".join(
            f"{amount_text(resource, total.get(resource, 0))} of {amount_text(resource, supply[resource])} {noun}"
            for resource, noun in nouns.items()
        )
        parts: list[str] = []
        for queue, amounts in used.items():
            own = 0 if queue == ANYONE else share_of(self.tree, queue, measure).guaranteed
            borrowed = amounts.get(measure.resource, 0) - own
            if borrowed > 0:
                parts.append(f"{_called(queue)} borrowed {counted(borrowed, measure.resource)}")
        return f"others used {all_used}; {', '.join(parts) or 'none of it borrowed'}"


def _called(queue: str) -> str:
    return "a queue without a limit" if queue == ANYONE else queue


def _of(amount: int, measure: Measure) -> str:
    return counted(amount, measure.resource, measure.flavor if is_extended(measure.resource) else "")


def _vector(guarantee: Guarantee) -> str:
    """`8 a100 GPUs with 32 CPUs and 128Gi`."""
    whole = _of(guarantee.units, Measure(guarantee.flavor, guarantee.resource))
    return f"{whole} with {guarantee.bound}" if guarantee.bound else whole


def _state(message: str | None) -> str:
    return "admitted" if message is None else "pending"


def manifest_of_anyone(tree: Tree) -> Manifest:
    """The ClusterQueue without quota and limit that can borrow all quota of the stack's queues."""
    queue = unlimited_queue(tree, ANYONE)
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
    """The queue whose return reclaims most from others, if possible one that may request a CPU more, and has GPUs.

    None if no queue lends a guarantee. Others use their limits, and `ANYONE` borrows all that they leave.
    """
    # CPUs of nodes without GPUs are lent as well, even if no report counts them.
    lent = [
        _return(tree, queue, tree.guarantee(queue, flavor))
        for flavor in tree.flavors
        for queue in tree.queue_owners
        if tree.lends(queue) and tree.guarantee(queue, flavor).units
    ]

    def worth(scenario: Return) -> tuple[bool, bool, int]:
        return scenario.beyond is not None, is_extended(scenario.guarantee.resource), len(scenario.foreseen.evicted)

    return max((scenario for scenario in lent if scenario.foreseen.evicted), key=worth, default=None)


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


def _return(tree: Tree, queue: str, guarantee: Guarantee) -> Return:
    flavor, spec = guarantee.flavor, _with_anyone(tree)
    others = _others(tree, queue, Measure(flavor, guarantee.resource), spec)
    own = _job(f"{queue}-{flavor}", queue, flavor, guarantee.amounts)
    share = tree.share(queue, flavor, CPU)
    untried = ""
    if tree.stack.fairness.even:
        untried = "a larger job was not tried: with fairness even, Kueue may preempt for it"
    elif share.effective_limit < share.guaranteed + _CPU:
        untried = "a larger job was not tried: the limit of CPU is the guarantee"
    beyond = replace(own, name=f"{queue}-beyond", pod_sets=_pods(flavor, add(guarantee.amounts, {CPU: _CPU})))
    if not untried:
        *_, waiting = run(spec, (Step(others), Step((beyond,))))
        if all(job.name != beyond.name for job in waiting.pending):
            untried = "a larger job was not tried: the simulation admits it too"
    *_, settled = run(spec, (Step(others), Step((own,))))
    foreseen = moment_of(tree, queue, settled, {job.name: job for job in (*others, own)})
    return Return(queue, guarantee, Step(others), own, foreseen, None if untried else beyond, untried)


def _others(tree: Tree, queue: str, measure: Measure, spec: Tenancy) -> tuple[Workload, ...]:
    """Jobs of all other queues up to their limits, as far as Kueue admits them, and of `ANYONE` for the rest."""
    # `ANYONE` is first, so that quota is reclaimed from the stack's own queues, which borrowed later.
    # A size of jobs that divides all guarantees and limits, or one with which no queue has too many jobs.
    shares = [share_of(tree, name, measure) for name in tree.queue_owners]
    amounts = [amount for share in shares for amount in (share.guaranteed, share.effective_limit) if amount]
    size = max(gcd(*amounts), _size(max(amounts), measure))
    limits = {
        name: {resource: share.effective_limit for resource, share in tree.team_shares[name][measure.flavor].items()}
        for name in tree.queue_owners
        if name != queue and measure.flavor in tree.team_shares[name]
    }
    jobs = [job for name, limit in limits.items() for job in _jobs(name, measure, limit, size)]
    (settled,) = run(spec, (Step(tuple(jobs)),))
    running = {job.name for job in settled.admitted}
    jobs = [job for job in jobs if job.name in running]
    while True:
        usage = defaultdict[str, Counter[FlavorResource]](Counter)
        for job in jobs:
            usage[job.queue].update({(measure.flavor, name): n for name, n in job.pod_sets[0].requests.items()})
        quotas = Quotas(spec, usage)
        left = {name: quotas.available(ANYONE, (measure.flavor, name)) for name in tree.supply(measure.flavor)}
        # CPU and memory that the others leave are borrowed together with GPUs.
        if left[measure.resource] or not any(left.values()) or not jobs:
            break
        jobs.pop()
    return (*_jobs(ANYONE, measure, left, max(size, _size(left[measure.resource], measure))), *jobs)


def _excess(queue: str, measure: Measure, available: int) -> Excess:
    fitting = tuple(_jobs(queue, measure, {measure.resource: available}, available)) if available else ()
    beyond = _job(f"{queue}-beyond", queue, measure.flavor, {measure.resource: _least(measure)})
    return Excess(queue, measure, Step(fitting), beyond, available)


def _with_anyone(tree: Tree) -> Tenancy:
    spec = tenancy(tree)
    return replace(spec, queues=(*spec.queues, unlimited_queue(tree, ANYONE)))


def _jobs(queue: str, measure: Measure, total: Amounts, size: int) -> Iterator[Workload]:
    """Jobs of `size` with their part of the other resources; the last one has the rest."""
    whole = total.get(measure.resource, 0)
    part = {resource: amount * size // whole for resource, amount in total.items()} if whole else {}
    count = ceil(whole / size)
    for number in range(1, count + 1):
        rest = {resource: amount - part[resource] * (count - 1) for resource, amount in total.items()}
        yield _job(f"{queue}-{measure.flavor}-{number}", queue, measure.flavor, part if number < count else rest)


def _job(name: str, queue: str, flavor: str, requests: Amounts) -> Workload:
    return Workload(name, queue, _pods(flavor, requests))


def _pods(flavor: str, requests: Amounts) -> tuple[PodSet]:
    return (PodSet({name: amount for name, amount in requests.items() if amount}, flavors=frozenset({flavor})),)


def _size(total: int, measure: Measure) -> int:
    """The size of jobs with which `total` is not too many jobs."""
    return ceil(total / _MOST_JOBS / _least(measure)) * _least(measure)


def _least(measure: Measure) -> int:
    return _CPU if measure.resource == CPU else 1
