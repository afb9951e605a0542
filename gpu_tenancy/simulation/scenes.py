"""Scenarios without a file: everyone busy, one team alone, one team after another."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount, is_extended
from gpu_tenancy.kueue import PodSet, Step, Unmodelled, Workload
from gpu_tenancy.model.fields import WorkloadName
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.queues import provisioning_checks
from gpu_tenancy.model.plan.shares import Share, Tree, measures, measures_of
from gpu_tenancy.model.yaml import Data
from gpu_tenancy.simulation.stage import Moment, play


def busy(tree: Tree, *, first: str | None = None, last: str | None = None) -> Moment:
    """Every team requests its limit of every flavor, in jobs of one GPU, or of CPUs in flavors without GPUs.

    Teams submit one job each in turn; `first` submits all its jobs before all others, `last` after them.
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
    """Jobs of one GPU and no CPU, so that only GPUs decide; without GPUs, of one CPU or more (above `CPU_JOBS`)."""
    shares, counted = tree.team_shares[team], dict.fromkeys(measures_of(tree, team))
    # A team with GPUs may also use CPU and memory of flavors without GPUs that others have quota in.
    counted |= dict.fromkeys(
        measure
        for measure in measures(tree)
        if measure.resource in shares.get(measure.flavor, {}) and not is_extended(measure.resource)
    )
    for name in dict.fromkeys(measure.flavor for measure in counted):
        limits = {
            measure.resource: shares[name][measure.resource].limit or 0 for measure in counted if measure.flavor == name
        }
        for number, requests in enumerate(_equal_parts(limits)):
            yield Workload(f"{team}-{name}-{number + 1}", team, (PodSet(requests, flavors=frozenset({name})),))


CPU_JOBS: Final = 100
"""Most jobs that share a team's CPU limit, so that the simulation of large CPU pools takes seconds."""


def _equal_parts(limits: Mapping[str, int]) -> Iterator[dict[str, int]]:
    if gpus := {resource: limit for resource, limit in limits.items() if is_extended(resource)}:
        for resource, limit in gpus.items():
            yield from ({resource: 1} for _ in range(limit))
        return
    count = min(-(-limits.get(CPU, 0) // 1000), CPU_JOBS)
    for number in range(count):
        yield {resource: limit * (number + 1) // count - limit * number // count for resource, limit in limits.items()}


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
    """Up to four equal jobs of whole GPUs or CPUs for each flavor; CPU jobs have so little memory that all fit."""
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
            memory = tree.team_shares[team][flavor.name].get(MEMORY, Share(0, 0)).effective_limit // (2 * jobs * pods)
            whole = max(1, memory // 2**20) * 2**20
            sized = {"gpus": 0, "cpu": amount, "memory": format_amount(MEMORY, min(whole, 4 * 2**30))}
        name = f"{team}-{flavor.name}"
        try:
            TypeAdapter(WorkloadName).validate_python(name)
        except ValidationError:  # Not a valid name of a job.
            name = f"job-{list(tree.stack.teams).index(team) + 1}-{list(tree.flavors).index(flavor.name) + 1}"
        yield {"name": name, "team": team, "flavor": flavor.name, "jobs": jobs, **sized, "pods": pods}
