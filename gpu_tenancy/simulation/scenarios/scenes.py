"""Scenarios that need no input: everyone busy, and one team alone."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpu_tenancy.base.quantity import CPU, is_extended
from gpu_tenancy.kueue import PodSet, Step, Unmodelled, Workload
from gpu_tenancy.model.plan.queues import provisioning_checks
from gpu_tenancy.model.plan.shares import Measure, Tree, measures, measures_of
from gpu_tenancy.simulation.scenarios.stage import Moment, play


def busy(tree: Tree, *, first: str | None = None, last: str | None = None) -> Moment:
    """Every team requests its limit of every flavor, in jobs of one GPU, or of CPUs where a flavor has no GPUs.

    Teams submit in turns, one job each; `first` submits all of its jobs before all others, `last` after them.

    Args:
        tree: of the stack.
        first: a team with a queue.
        last: a team with a queue.

    Returns:
        The state, whose label is such as `everyone busy, ml-research first`.
    """
    jobs = {name: list(_jobs(tree, name)) for name in tree.queue_owners}
    between = [name for name in jobs if name not in (first, last)]
    order = [
        *(jobs[first] if first else ()),
        *_in_turns([jobs[name] for name in between]),
        *(jobs[last] if last else ()),
    ]
    order_text = "".join(f", {name} {when}" for name, when in ((first, "first"), (last, "last")) if name)
    return _state(tree, f"everyone busy{order_text}", order)


def alone(tree: Tree, team: str) -> Moment:
    """Only one team submits jobs, up to its limit."""
    return _state(tree, f"{team} alone", _jobs(tree, team))


def unmodelled_of(tree: Tree) -> tuple[Unmodelled, ...]:
    """What the stack uses and the simulation does not cover."""
    if tree.stack.dispatches:
        return (Unmodelled.MULTIKUEUE,)
    topology = (Unmodelled.TOPOLOGY,) if any(flavor.levels for flavor in tree.flavors.values()) else ()
    checks = (Unmodelled.ADMISSION_CHECKS,) if provisioning_checks(tree) else ()
    usage = (Unmodelled.ADMISSION_FAIR_SHARING,) if tree.stack.fairness.usage else ()
    return topology + checks + usage


def _state(tree: Tree, label: str, workloads: Iterable[Workload]) -> Moment:
    """The state after all workloads are submitted, one after another."""
    (moment,) = play(tree, [(label, Step(submit=tuple(workloads)))])
    return moment


def _jobs(tree: Tree, team: str) -> Iterator[Workload]:
    """Jobs up to the team's limits: of one GPU each and without CPUs, so that only GPUs decide.

    In a flavor without GPUs, jobs have a CPU each and its share of the memory limit, so that both run out together;
    above `CPU_JOBS` CPUs they are larger.
    """
    counted = [*measures_of(tree, team), *_cpus_beside_gpus(tree, team)]
    for name in dict.fromkeys(measure.flavor for measure in counted):
        limits = {
            measure.resource: tree.team_shares[team][name][measure.resource].limit or 0
            for measure in counted
            if measure.flavor == name
        }
        for number, requests in enumerate(_equal_parts(limits)):
            yield Workload(f"{team}-{name}-{number + 1}", team, (PodSet(requests, flavors=frozenset({name})),))


def _cpus_beside_gpus(tree: Tree, team: str) -> Iterator[Measure]:
    """CPU and memory that a team with GPUs may also use, in flavors without GPUs that others have quota in."""
    own = set(measures_of(tree, team))
    for measure in measures(tree):
        shared = measure.resource in tree.team_shares[team].get(measure.flavor, {})
        if shared and measure not in own and not is_extended(measure.resource):
            yield measure


CPU_JOBS: Final = 100
"""The most jobs that share a team's limit of CPUs, so that the simulation of large CPU pools takes seconds."""


def _equal_parts(limits: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """A GPU each, or equal parts of CPU and memory whose sum is the limit."""
    gpus = {resource: limit for resource, limit in limits.items() if is_extended(resource)}
    if gpus:
        for resource, limit in gpus.items():
            yield from ({resource: 1} for _ in range(limit))
        return
    count = min(-(-limits.get(CPU, 0) // 1000), CPU_JOBS)
    for number in range(count):
        yield {resource: limit * (number + 1) // count - limit * number // count for resource, limit in limits.items()}


def _in_turns(teams: list[list[Workload]]) -> Iterator[Workload]:
    for number in range(max((len(jobs) for jobs in teams), default=0)):
        for jobs in teams:
            yield from jobs[number : number + 1]
