"""Checks between the sections of a stack, before it is deployed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.checks.budgets import budget_problems
from gpu_tenancy.model.checks.data import cache_problems, data_problems
from gpu_tenancy.model.checks.fabric import domain_problems, topology_problems
from gpu_tenancy.model.checks.nodes import node_problems
from gpu_tenancy.model.checks.operators import (
    architecture_problems,
    device_problems,
    operator_problems,
    provider_problems,
)
from gpu_tenancy.model.checks.pools import pool_problems
from gpu_tenancy.model.checks.queues import (
    fair_sharing_problems,
    multikueue_problems,
    peak_problems,
    promise_problems,
    usage_problems,
)
from gpu_tenancy.model.checks.references import loops, people_problems, reference_problems
from gpu_tenancy.model.checks.secrets import secret_problems
from gpu_tenancy.model.checks.servers import engine_problems, exposure_problems
from gpu_tenancy.model.checks.workloads import notebook_problems, workload_problems
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack

_STAGES: Final = (
    (pool_problems, node_problems),
    (reference_problems,),
    (cache_problems,),
    (
        promise_problems,
        fair_sharing_problems,
        usage_problems,
        budget_problems,
        data_problems,
        workload_problems,
        notebook_problems,
        secret_problems,
        topology_problems,
        operator_problems,
        device_problems,
        architecture_problems,
        engine_problems,
        exposure_problems,
        domain_problems,
        provider_problems,
        people_problems,
        multikueue_problems,
        peak_problems,
    ),
)


def coherence_problems(stack: Stack) -> Iterator[Problem]:
    """Problems between the sections of a valid stack, at the keys of its file.

    Pools are checked first, then references, then sums. A stage skips what depends on a problem of an earlier stage,
    because it would report the same mistake again.
    """
    tree = Tree(stack)
    broken: set[Path] = set()
    for stage in _STAGES:
        if stage is _STAGES[-1] and any(loops(tree, cohort) for cohort in tree.parents):
            return  # Sums need a tree without cycles.
        found: set[Path] = set()
        for problem in (problem for check in stage for problem in check(tree)):
            path, *about = (tree.stack.written_at(place) for place in (problem.path, *problem.about))
            if not any(place[: len(other)] == other[: len(place)] for place in (path, *about) for other in broken):
                yield replace(problem, path=path, about=tuple(about))
                found |= {path, *about}
        broken |= found
