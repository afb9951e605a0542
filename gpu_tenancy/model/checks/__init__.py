"""Everything that must hold between the parts of a stack before any of it is deployed."""

from collections.abc import Iterator

from gpu_tenancy.model.checks.budgets import budget_problems
from gpu_tenancy.model.checks.guards import guard_problems
from gpu_tenancy.model.checks.nodes import node_problems
from gpu_tenancy.model.checks.operators import operator_problems
from gpu_tenancy.model.checks.peaks import peak_problems
from gpu_tenancy.model.checks.pools import pool_problems
from gpu_tenancy.model.checks.promises import promise_problems
from gpu_tenancy.model.checks.references import loops, reference_problems
from gpu_tenancy.model.checks.workloads import workload_problems
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.problems import Path, Problem
from gpu_tenancy.model.spec import Stack


def coherence_problems(stack: Stack) -> Iterator[Problem]:
    """What is wrong between the parts of a well-formed stack.

    Pools come first, then names, then sums: what is wrong in one stage would only be repeated by the next, which passes
    over whatever rests on it.
    """
    tree = Tree(stack)
    broken: set[Path] = set()
    for stage in (
        (pool_problems, node_problems),
        (reference_problems,),
        (promise_problems, budget_problems, workload_problems, operator_problems, guard_problems, peak_problems),
    ):
        if stage[-1] is peak_problems and any(loops(tree, cohort) for cohort in tree.parents):
            return  # No sum over a tree that is none.
        found = [problem for check in stage for problem in check(tree) if not _rests_on(problem, broken)]
        yield from found
        broken |= {place for problem in found for place in (problem.path, *problem.about)}


def _rests_on(problem: Problem, broken: set[Path]) -> bool:
    return any(_within(place, broken) for place in (problem.path, *problem.about))


def _within(place: Path, broken: set[Path]) -> bool:
    return any(place[: len(each)] == each[: len(place)] for each in broken)
