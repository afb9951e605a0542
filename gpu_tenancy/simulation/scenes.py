"""Scenarios without a file: everyone busy, one team alone, one team after another."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.quantity import CPU, MEMORY, equal_parts, format_amount, times
from gpu_tenancy.base.texts import counted
from gpu_tenancy.kueue import PodSet, Step, Unmodelled, Workload
from gpu_tenancy.model.fields import WorkloadName
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.queues import provisioning_checks
from gpu_tenancy.model.plan.shares import Measure, Share, Tree, measures, measures_of
from gpu_tenancy.model.yaml import Data
from gpu_tenancy.simulation.stage import Moment, play


def busy(tree: Tree, *, first: str | None = None, last: str | None = None) -> Moment:
    """Every team requests its limit of every flavor, in jobs of one GPU, or of CPUs in flavors without GPUs.

    Jobs request their share of the machine's CPU and memory, as far as the team's limits allow. Teams submit one job
    each in turn; `first` submits all its jobs before all others, `last` after them.
    """
    jobs = {name: list(_jobs(tree, name)) for name in tree.queue_owners}
    turns = zip_longest(*(own for name, own in jobs.items() if name not in (first, last)))
    order = [
        *(jobs[first] if first else ()),
        *(job for turn in turns for job in turn if job is not None),
        *(jobs[last] if last else ()),
    ]
    order_text = "".join(f", {name} {when}" for name, when in ((first, "first"), (last, "last")) if name)
    return _state(tree, f"everyone busy{order_text}", order)


def alone(tree: Tree, team: str) -> Moment:
    """One team submits jobs up to its limit."""
    return _state(tree, f"{team} alone", _jobs(tree, team))


def unmodelled_of(tree: Tree) -> tuple[Unmodelled, ...]:
    """Features of the stack that the simulation does not cover."""
    if tree.stack.dispatches:
        return (Unmodelled.MULTIKUEUE,)
    topology = (Unmodelled.TOPOLOGY,) if any(flavor.levels for flavor in tree.flavors.values()) else ()
    checks = (Unmodelled.ADMISSION_CHECKS,) if provisioning_checks(tree) else ()
    usage = (Unmodelled.ADMISSION_FAIR_SHARING,) if tree.stack.fairness.usage else ()
    return topology + checks + usage


def _state(tree: Tree, label: str, workloads: Iterable[Workload]) -> Moment:
    (moment,) = play(tree, [(label, Step(submit=tuple(workloads)))])
    return moment


def _jobs(tree: Tree, team: str) -> Iterator[Workload]:
    """Jobs up to the team's limits: of one GPU; without GPUs, of one CPU or more (above `CPU_JOBS`)."""
    for flavor, limit in _limits(tree, team):
        parts = equal_parts(limit, _count(flavor, limit))
        pods = {
            units: (PodSet(_request(tree, team, flavor, units), flavors=frozenset({flavor.name})),)
            for units in dict.fromkeys(parts)
        }
        for number, units in enumerate(parts):
            yield Workload(f"{team}-{flavor.name}-{number + 1}", team, pods[units])


def _limits(tree: Tree, team: str) -> Iterator[tuple[Flavor, int]]:
    """The flavors of a team's jobs, with its limit of GPUs or millicores."""
    shares, names = tree.team_shares[team], dict.fromkeys(measure.flavor for measure in measures_of(tree, team))
    # A team with GPUs may also use flavors without GPUs that others have quota in.
    names |= dict.fromkeys(measure.flavor for measure in measures(tree) if measure.resource == CPU)
    for flavor in (tree.flavors[name] for name in names if name in shares):
        if limit := shares[flavor.name].get(flavor.resource or CPU, Share()).effective_limit:
            yield flavor, limit


def _count(flavor: Flavor, limit: int) -> int:
    return limit if flavor.resource else min(-(-limit // 1000), CPU_JOBS)


CPU_JOBS: Final = 100
"""Most jobs that share a team's CPU limit, so that the simulation of large CPU pools takes seconds."""


def _request(tree: Tree, team: str, flavor: Flavor, units: int) -> dict[str, int]:
    """GPUs (else millicores) with their share of the machine, less if limits leave less; may exceed the guarantee."""
    resource = flavor.resource or CPU
    limits = {name: share.effective_limit for name, share in tree.team_shares[team][flavor.name].items()}
    of_machine = times(flavor.per_gpu, units) if flavor.resource else flavor.follows(CPU, units)
    beside = {
        name: min(amount, limits[name] * units // limits[resource])
        for name, amount in of_machine.items()
        if name in limits
    }
    return {resource: units, **{name: amount for name, amount in beside.items() if amount}}


def tried(tree: Tree, team: str, moment: Moment) -> Iterator[str]:
    """The request of a team's jobs by flavor, the number that its guarantee covers, and why the next is pending."""
    for flavor, limit in _limits(tree, team):
        resource, guarantee = flavor.resource or CPU, tree.guarantee(team, flavor.name)
        requests = _request(tree, team, flavor, limit // _count(flavor, limit))
        beside = Guarantee(flavor.name, resource, requests).bound
        text = (
            f"jobs of {team} on {flavor.name}: {counted(requests[resource], resource)}{beside and f', {beside}'} each"
        )
        if not guarantee.units:
            yield f"{text}; none are guaranteed"
            continue
        covered = min(guarantee.amounts[name] // amount for name, amount in requests.items())
        bound = guarantee.bound and f" with up to {guarantee.bound}"
        yield f"{text}; covered are {counted(guarantee.units, resource)}{bound}: {covered} of these jobs"
        waiting = (job.why for job in moment.waiting if (job.team, job.flavor) == (team, flavor.name))
        if moment.amount(team, Measure(flavor.name, resource)) < guarantee.units and (why := next(waiting, "")):
            yield f"the next is pending: {why}"


TEAMS: Final = 8  # most teams of the scenario
_JOBS: Final = 4  # jobs that together are a team's limit


def default_scenario(tree: Tree) -> Data:
    """Jobs as plain data: each team with a queue of its own submits jobs up to its limits, in a step of its own.

    Teams that borrow the largest part of their limit are first, so that later teams reclaim their guarantees. Jobs of a
    flavor are equal, and their pods fit on a node.
    """
    teams = sorted(tree.queue_owners, key=lambda team: _sure(tree, team))
    steps = [{"label": f"{team} submits up to its limits", "submit": list(_jobs_of(tree, team))} for team in teams]
    return {"steps": [step for step in steps if step["submit"]][:TEAMS]}


def _sure(tree: Tree, team: str) -> float:
    shares = [share for _, share in _used(tree, team) if share.effective_limit]
    return sum(share.guaranteed / share.effective_limit for share in shares) / len(shares) if shares else 1.0


def _used(tree: Tree, team: str) -> Iterator[tuple[Flavor, Share]]:
    """Flavors of a team's jobs with their shares: with GPUs; with CPUs if it has quota there or no GPUs at all."""
    shares, quota = tree.team_shares[team], tree.stack.teams[team].quota
    with_gpus = any(tree.flavors[name].resource for name in shares)
    for name, amounts in shares.items():
        flavor = tree.flavors[name]
        if flavor.resource or name in quota or not with_gpus:
            yield flavor, amounts.get(flavor.resource or CPU, Share(0, 0))


def _jobs_of(tree: Tree, team: str) -> Iterator[dict[str, Any]]:
    """Up to four equal jobs of whole GPUs or CPUs for each flavor, with CPU and memory by their share."""
    for flavor, share in _used(tree, team):
        unit = 1 if flavor.resource else 1000
        limit, node = share.effective_limit // unit, flavor.node.get(flavor.resource or CPU, 0) // unit
        jobs = min(_JOBS, limit)
        if not jobs:
            continue
        pods = -(-(limit // jobs) // max(1, node))
        amount = limit // jobs // pods
        sized: dict[str, Any] = {"gpus": amount}
        if not flavor.resource:
            memory = _request(tree, team, flavor, amount * unit).get(MEMORY, 0) // 2**20 * 2**20
            sized = {"gpus": 0, "cpu": amount, "memory": format_amount(MEMORY, max(2**20, memory))}
        name = f"{team}-{flavor.name}"
        try:
            TypeAdapter(WorkloadName).validate_python(name)
        except ValidationError:  # Not a valid name of a job.
            name = f"job-{list(tree.stack.teams).index(team) + 1}-{list(tree.flavors).index(flavor.name) + 1}"
        yield {"name": name, "team": team, "flavor": flavor.name, "jobs": jobs, **sized, "pods": pods}
