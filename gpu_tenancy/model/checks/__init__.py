"""Checks between the sections of a stack, before it is deployed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.checks import (
    budgets,
    data,
    fabric,
    nodes,
    operators,
    pools,
    queues,
    references,
    secrets,
    servers,
    workloads,
)
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack

_STAGES: Final = (
    (pools.pool_problems, nodes.node_problems),
    (references.reference_problems,),
    (data.cache_problems,),
    (
        queues.promise_problems,
        queues.fair_sharing_problems,
        queues.usage_problems,
        budgets.budget_problems,
        data.data_problems,
        workloads.workload_problems,
        workloads.notebook_problems,
        secrets.secret_problems,
        fabric.topology_problems,
        operators.operator_problems,
        operators.device_problems,
        operators.architecture_problems,
        servers.engine_problems,
        servers.exposure_problems,
        fabric.domain_problems,
        operators.provider_problems,
        references.people_problems,
        queues.multikueue_problems,
        queues.peak_problems,
        queues.coverage_problems,
    ),
)


def coherence_problems(stack: Stack) -> Iterator[Problem]:
    """Problems between the sections of a valid stack, at the keys of its file: of pools, then references, then sums.

    A stage skips checks that depend on a problem of an earlier stage, because they would report the same mistake again.
    """
    tree = Tree(stack)
    broken: set[Path] = set()
    for stage in _STAGES:
        if stage is _STAGES[-1] and any(references.loops(tree, cohort) for cohort in tree.parents):
            return  # Sums need a tree without cycles.
        found: set[Path] = set()
        for problem in (problem for check in stage for problem in check(tree)):
            path, *about = (tree.stack.written_at(place) for place in (problem.path, *problem.about))
            if not any(place[: len(other)] == other[: len(place)] for place in (path, *about) for other in broken):
                yield replace(problem, path=path, about=tuple(about))
                found |= {path, *about}
        broken |= found
