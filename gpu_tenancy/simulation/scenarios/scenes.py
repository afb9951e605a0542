"""Scenarios that need no file: everyone busy, one team alone, one team after another."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount, is_extended
from gpu_tenancy.kueue import PodSet, Step, Unmodelled, Workload
from gpu_tenancy.model.fields import WorkloadName
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.queues import provisioning_checks
from gpu_tenancy.model.plan.shares import Measure, Share, Tree, measures, measures_of
from gpu_tenancy.model.yaml import Data
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


TEAMS: Final = 8
"""The most teams of the scenario."""
_JOBS: Final = 4
"""Jobs that together are a team's limit."""


def default_scenario(tree: Tree) -> Data:
    """Jobs of a stack's teams as plain data: each team submits jobs up to its limits, in a step of its own.

    Teams that borrow the largest part of their limit come first, so that those after them reclaim their guarantees. The
    jobs of a flavor are alike, and their pods fit on a node. Teams without a queue of their own have no step.
    """
    teams = sorted(tree.queue_owners, key=lambda team: _sure(tree, team))
    steps = [{"label": f"{team} submits up to its limits", "submit": _jobs_of(tree, team)} for team in teams]
    return {"steps": [step for step in steps if step["submit"]][:TEAMS]}


def _sure(tree: Tree, team: str) -> float:
    """The guaranteed part of a team's limits: the mean of what is counted of it."""
    parts = [
        share.guaranteed / share.effective_limit
        for name, flavor in _used(tree, team).items()
        if (share := _share(tree, team, name, flavor)).effective_limit
    ]
    return sum(parts) / len(parts) if parts else 1.0


def _used(tree: Tree, team: str) -> dict[str, Flavor]:
    """The flavors of a team's jobs: those with GPUs, and CPU flavors if it has quota there or no GPUs at all."""
    shares, spec = tree.team_shares[team], tree.stack.teams[team]
    with_gpus = [name for name in shares if tree.flavors[name].resource]
    return {name: tree.flavors[name] for name in shares if name in with_gpus or name in spec.quota or not with_gpus}


def _share(tree: Tree, team: str, name: str, flavor: Flavor) -> Share:
    return tree.team_shares[team][name].get(flavor.resource or CPU, Share(0, 0))


def _jobs_of(tree: Tree, team: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, flavor in _used(tree, team).items():
        limit = _share(tree, team, name, flavor).effective_limit
        sized = _gpu_jobs(flavor, limit) if flavor.resource else _cpu_jobs(tree, team, flavor, limit)
        if sized:
            found.append({"name": _name(tree, team, name), "team": team, **sized})
    return found


def _name(tree: Tree, team: str, flavor: str) -> str:
    """`ml-research-a100`; a number where that is no valid name of a job."""
    try:
        return TypeAdapter(WorkloadName).validate_python(f"{team}-{flavor}")
    except ValidationError:
        return f"job-{list(tree.stack.teams).index(team) + 1}-{list(tree.flavors).index(flavor) + 1}"


def _gpu_jobs(flavor: Flavor, limit: int) -> dict[str, Any]:
    """Up to four equal jobs of whole GPUs; empty without a limit."""
    jobs = min(_JOBS, limit)
    if not jobs:
        return {}
    gpus, node = limit // jobs, flavor.node.get(flavor.resource or "", 0)
    pods = -(-gpus // max(1, node))
    return {"flavor": flavor.name, "jobs": jobs, "gpus": gpus // pods, "pods": pods}


def _cpu_jobs(tree: Tree, team: str, flavor: Flavor, limit: int) -> dict[str, Any]:
    """Up to four equal jobs of whole CPUs, with little enough memory for all of them to fit."""
    cpus = limit // 1000
    jobs = min(_JOBS, cpus)
    if not jobs:
        return {}
    cpus_of_job, node = cpus // jobs, max(1, flavor.node[CPU] // 1000)
    pods = -(-cpus_of_job // node)
    memory = tree.team_shares[team][flavor.name].get(MEMORY, Share(0, 0)).effective_limit // (2 * jobs * pods)
    whole = max(1, memory // 2**20) * 2**20
    return {
        "flavor": flavor.name,
        "jobs": jobs,
        "gpus": 0,
        "cpu": cpus_of_job // pods,
        "memory": format_amount(MEMORY, min(whole, 4 * 2**30)),
        "pods": pods,
    }
