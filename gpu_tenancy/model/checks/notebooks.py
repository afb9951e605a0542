"""Checks of notebooks: sizes that would stay pending."""

from collections.abc import Iterator

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount
from gpu_tenancy.model.checks.workloads import part_problems
from gpu_tenancy.model.plan.notebooks import as_job
from gpu_tenancy.model.plan.pods import PodSize, limits, pod_size
from gpu_tenancy.model.plan.queues import potential_available
from gpu_tenancy.model.plan.shares import Tree


def notebook_problems(tree: Tree) -> Iterator[Problem]:
    """Notebooks that would never run."""
    for name, team in tree.stack.teams.items():
        if team.notebooks is None:
            continue
        place = ("teams", name, "notebooks")
        if tree.stack.dispatches:
            rule = "run in this cluster, but the workloads of its teams run in worker clusters"
            yield Problem(place, rule, "remove it, and set notebooks in the stacks of the workers")
            continue
        for size, spec in team.notebooks.sizes.items():
            job = as_job(team.notebooks, spec)
            found = pod_size(tree, name, job)
            yield from part_problems(tree, (*place, "sizes", size), job, found)
            if found:
                yield from _reach(tree, name, (*place, "sizes", size), found)


def _reach(tree: Tree, team: str, path: Path, size: PodSize) -> Iterator[Problem]:
    """A size above what the team can ever have."""
    for resource, amount in size.amounts.items():
        limit = limits(tree, team, size.flavor, gang=False).get(resource, 0)
        reach = min(limit, potential_available(tree, team, size.flavor.name, resource))
        if amount > reach:
            key = resource if resource in {CPU, MEMORY} else "gpus"
            rule = f"exceeds the {format_amount(resource, reach)} {resource} of flavor {size.flavor.name}"
            rule += " that the team can have at most, so the notebook would stay pending"
            fix = f"lower it, or raise the team's limit of {size.flavor.name}"
            about = (("teams",), ("cohorts",), ("pools",))
            yield Problem((*path, key), rule, fix, format_amount(resource, amount), about=about)
