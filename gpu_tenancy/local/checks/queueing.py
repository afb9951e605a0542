"""Checks that Kueue keeps what the queues promise: guarantees, limits, and quota that is never lent.

Jobs are played on temporary copies of the stack's queues, so that the stack's own workloads are not touched.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from gpu_tenancy.base.json import Json, at, map_at
from gpu_tenancy.base.quantity import CPU, amount_text, is_extended
from gpu_tenancy.base.texts import counted
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kueue import PodSet, Step, Workload
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.local.checks.scenarios import ANYONE, Excess, Return, anyone, contended, kept, limited, share_of
from gpu_tenancy.model.plan.shares import Measure, Tree, supply_of
from gpu_tenancy.simulation.copies import KUEUE, Place
from gpu_tenancy.simulation.live import LivePlayer, job_of
from gpu_tenancy.simulation.player import Event
from gpu_tenancy.simulation.stage import Moment, amount_of


def check_queueing(cluster: Cluster, tree: Tree, places: Mapping[str, Place]) -> Iterator[Check]:
    """Checks one guarantee, one limit and all quota that is never lent, and that no job runs without a queue.

    Args:
        cluster: with the stack.
        tree: of the stack.
        places: copies of its queues, and of the queue without a limit.
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
    """Copies of the stack's queues; each check begins without jobs."""

    cluster: Cluster
    tree: Tree
    places: Mapping[str, Place]

    def returned(self, scenario: Return) -> Check:
        """The guarantee of a queue that comes back."""
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
        used = self._amounts(before, measure)
        borrowed = {queue: amount for queue, amount in used.items() if amount > self._guaranteed(queue, measure)}
        had = after.amount(scenario.queue, measure)
        return Check(
            f"{scenario.queue} gets its {_of(guarantee, measure)} at once, whatever others borrow",
            f"{self._used(used, measure)}, {self._borrowing(borrowed, measure)};"
            f" {scenario.queue} requested {_of(guarantee, measure)}"
            + (f" and was admitted after {max(admitted):.1f} s" if admitted else " and is pending")
            + f"; {self._gave_way(after, measure)}",
            message=messages[0] if messages else "",
            holds=had == guarantee and self._amounts(after, measure) == self._amounts(scenario.foreseen, measure),
        )

    def limit(self, excess: Excess) -> Check:
        """The limit of a queue while more is idle."""
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
        """Quota that is never lent."""
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

    def _guaranteed(self, queue: str, measure: Measure) -> int:
        return 0 if queue == ANYONE else share_of(self.tree, queue, measure).guaranteed

    def _used(self, used: Mapping[str, int], measure: Measure) -> str:
        supply = amount_text(measure.resource, supply_of(self.tree, measure))
        return f"others used {amount_text(measure.resource, sum(used.values()))} of {supply} {_noun(measure)}"

    def _borrowing(self, borrowed: Mapping[str, int], measure: Measure) -> str:
        if not borrowed:
            return "none of it borrowed"
        parts = (
            f"{_called(queue)} borrowed {counted(amount - self._guaranteed(queue, measure), measure.resource)}"
            for queue, amount in borrowed.items()
        )
        return ", ".join(parts)

    def _gave_way(self, after: Moment, measure: Measure) -> str:
        if not after.evicted:
            return "none preempted"
        by_team = groupby(sorted(after.evicted, key=lambda job: job.team), lambda job: job.team)
        teams = [
            f"{_called(team)} {_of(sum(amount_of(job, measure) for job in jobs), measure)}" for team, jobs in by_team
        ]
        return f"{' and '.join(teams)} preempted"


def _called(queue: str) -> str:
    return "a queue without a limit" if queue == ANYONE else queue


def _noun(measure: Measure) -> str:
    return f"{measure.flavor} GPUs" if is_extended(measure.resource) else "CPUs"


def _of(amount: int, measure: Measure) -> str:
    return counted(amount, measure.resource, measure.flavor if is_extended(measure.resource) else "")


def _state(message: str | None) -> str:
    return "admitted" if message is None else "pending"


def manifest_of_anyone(tree: Tree) -> Manifest:
    """The ClusterQueue without quota and limit that can borrow all that the stack's queues lend."""
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
    """A job without a queue, in the namespace of the first team."""
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
        created = cluster.create({**job, "spec": {**_spec(job), "suspend": False}}, dry_run=True)
    except ApiError as error:
        yield Check(promise, "is rejected", holds=True, message=str(error))
        return
    suspended = at(created, "spec", "suspend") is True
    yield Check(promise, "Kueue suspends it until it has a queue" if suspended else "is not suspended", holds=suspended)


def _spec(manifest: Manifest) -> dict[str, Json]:
    return map_at(manifest, "spec")
