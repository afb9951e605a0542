"""A scenario for stacks that have none of their own: one team after another asks for all that it may use."""

from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount
from gpu_tenancy.model.fields import WorkloadName
from gpu_tenancy.model.plan.shares import Share, Tree
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.yaml import Data

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
    steps = [{"label": f"{team} submits up to its limits", "submit": _jobs(tree, team)} for team in teams]
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


def _jobs(tree: Tree, team: str) -> list[dict[str, Any]]:
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
