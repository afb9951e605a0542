"""Checks between the sections of a stack, before it is deployed."""

from collections.abc import Iterator
from dataclasses import replace

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.checks.budgets import alert_problems, budget_problems, opencost_problems, spending_problems
from gpu_tenancy.model.checks.data import cache_problems, data_problems, snapshot_problems
from gpu_tenancy.model.checks.fabric import domain_problems, topology_problems
from gpu_tenancy.model.checks.nodes import node_problems
from gpu_tenancy.model.checks.operators import architecture_problems, device_problems, operator_problems
from gpu_tenancy.model.checks.people import guard_problems, people_problems
from gpu_tenancy.model.checks.pools import pool_problems
from gpu_tenancy.model.checks.promises import peak_problems, promise_problems
from gpu_tenancy.model.checks.providers import provider_problems
from gpu_tenancy.model.checks.queues import fair_sharing_problems, multikueue_problems, usage_problems
from gpu_tenancy.model.checks.references import loops, reference_problems
from gpu_tenancy.model.checks.secrets import image_problems, secret_problems
from gpu_tenancy.model.checks.servers import engine_problems, exposure_problems, load_problems
from gpu_tenancy.model.checks.workloads import notebook_problems, workload_problems
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack


def coherence_problems(stack: Stack) -> Iterator[Problem]:
    """Problems between the sections of a valid stack.

    Pools are checked first, then references, then sums. A stage skips what depends on a problem of an earlier stage,
    because it would report the same mistake again.
    """
    tree = Tree(stack)
    broken: set[Path] = set()
    for stage in (
        (pool_problems, node_problems),
        (reference_problems,),
        (cache_problems,),
        (
            promise_problems,
            fair_sharing_problems,
            usage_problems,
            budget_problems,
            data_problems,
            snapshot_problems,
            workload_problems,
            notebook_problems,
            secret_problems,
            image_problems,
            topology_problems,
            operator_problems,
            device_problems,
            architecture_problems,
            load_problems,
            engine_problems,
            exposure_problems,
            domain_problems,
            provider_problems,
            guard_problems,
            people_problems,
            multikueue_problems,
            spending_problems,
            alert_problems,
            opencost_problems,
            peak_problems,
        ),
    ):
        if stage[-1] is peak_problems and any(loops(tree, cohort) for cohort in tree.parents):
            return  # Sums need a tree without cycles.
        found = (_written(tree, problem) for check in stage for problem in check(tree))
        problems = [problem for problem in found if not _depends_on(problem, broken)]
        yield from problems
        broken |= {place for problem in problems for place in (problem.path, *problem.about)}


def _written(tree: Tree, problem: Problem) -> Problem:
    """The problem at the keys of the file."""
    at = tree.stack.written_at
    return replace(problem, path=at(problem.path), about=tuple(map(at, problem.about)))


def _depends_on(problem: Problem, broken: set[Path]) -> bool:
    return any(_within(place, broken) for place in (problem.path, *problem.about))


def _within(place: Path, broken: set[Path]) -> bool:
    return any(place[: len(other)] == other[: len(place)] for other in broken)
