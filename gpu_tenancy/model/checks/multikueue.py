"""Checks of MultiKueue: what a manager cannot dispatch."""

from collections.abc import Iterator

from gpu_tenancy.model.plan.operators.needs import there
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.problems import Path, Problem

_ROLE: tuple[Path, ...] = (("multikueue",),)


def multikueue_problems(tree: Tree) -> Iterator[Problem]:
    """Workloads and options of a manager that no worker would run."""
    stack = tree.stack
    if not stack.multikueue:
        return
    if not there(stack, "kueue"):
        rule = "is off, but MultiKueue is a part of Kueue"
        yield Problem(("operators", "kueue", "install"), rule, "remove it, or remove multikueue", "off", about=_ROLE)
    if not stack.dispatches:
        return
    if stack.split:
        rule = "is not supported for a MultiKueue manager"
        yield Problem(("split",), rule, "remove it; divide the stacks of the workers instead", about=_ROLE)
    for team, spec in stack.teams.items():
        for name, job in spec.training.items():
            if job.scheduler == "volcano" or job.together:
                key = "together" if job.together else "scheduler"
                rule = "needs Volcano, whose jobs MultiKueue does not dispatch"
                fix = f"remove {key}, or move the job to the stack of a worker"
                yield Problem(("teams", team, "training", name, key), rule, fix, about=_ROLE)
