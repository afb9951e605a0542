"""Checks of MultiKueue: what a manager cannot dispatch."""

from collections.abc import Iterator

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import SHIPPED
from gpu_tenancy.model.spec.workloads import Training

_ROLE: tuple[Path, ...] = (("multikueue",),)


def multikueue_problems(tree: Tree) -> Iterator[Problem]:
    """Workloads and options of a manager that no worker would run."""
    stack = tree.stack
    if not stack.multikueue:
        return
    if not there(tree, "kueue"):
        rule = "is off, but MultiKueue is a part of Kueue"
        yield Problem(("operators", "kueue", "install"), rule, "remove it, or remove multikueue", "off", about=_ROLE)
    if not stack.dispatches:
        return
    if stack.split is not None:
        rule = "is not supported for a MultiKueue manager"
        yield Problem(("split",), rule, "remove it; divide the stacks of the workers instead", about=_ROLE)
    for team, spec in stack.teams.items():
        for name, job in spec.training.items():
            yield from _job(("teams", team, "training", name), job)


def _job(path: Path, job: Training) -> Iterator[Problem]:
    """What a worker would not run as the stack of the manager has it."""
    if job.scheduler == "volcano" or job.gang:
        key = "gang" if job.gang else "scheduler"
        rule = "needs Volcano, whose jobs MultiKueue does not dispatch"
        yield Problem((*path, key), rule, f"remove {key}, or move the job to the stack of a worker", about=_ROLE)
        return
    if job.kind.endless:
        rule = "makes a LeaderWorkerSet, which has no spec.managedBy: its pods would be created in this cluster too"
        fix = "move the job to the stack of a worker"
        yield Problem((*path, "framework"), rule, fix, job.framework, about=_ROLE)
    if not job.kind.runtime:
        return
    if job.framework not in SHIPPED:
        rule = "needs a runtime of its own, which MultiKueue does not copy to a worker"
        fix = "set framework: jobset, or move the job to the stack of a worker"
        yield Problem((*path, "framework"), rule, fix, job.framework, about=_ROLE)
        return
    if job.env_from:
        rule = "is not possible: a TrainJob that MultiKueue dispatches has Trainer's runtime of the worker"
        fix = "use env, set framework: jobset, or move the job to the stack of a worker"
        yield Problem((*path, "envFrom"), rule, fix, about=_ROLE)
    for key in ("retries", "keep"):
        if key in job.model_fields_set:
            rule = "has no effect: a TrainJob that MultiKueue dispatches has Trainer's runtime of the worker"
            fix = f"remove {key}, set framework: jobset, or move the job to the stack of a worker"
            yield Problem((*path, key), rule, fix, about=_ROLE)
