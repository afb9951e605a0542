"""Checks of queues: what Kueue does not do with `fairness`, and what a manager of MultiKueue cannot dispatch."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount
from gpu_tenancy.model.checks.promises import group_key, what
from gpu_tenancy.model.plan.namespaces import gpu_resources
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.operators.kueue import usage_weights
from gpu_tenancy.model.plan.queues import borrowable
from gpu_tenancy.model.plan.shares import Tree, cohorts_downwards
from gpu_tenancy.model.plan.workloads import SHIPPED
from gpu_tenancy.model.spec.tenancy import Usage
from gpu_tenancy.model.spec.workloads import Training

_NAMED: Final = 3
"""Resources that an error names."""


def fair_sharing_problems(tree: Tree) -> Iterator[Problem]:
    """Guarantees of groups that Kueue would not keep, and policies without effect.

    Kueue gives a queue its own nominal quota back whatever it borrows elsewhere (`preemptorWithinNominal` in
    pkg/scheduler/preemption/preemption.go of v0.19.2), but has no such rule for the quota of a Cohort. There the shares
    of Cohorts are compared, and a share is the largest of all resources and flavors. So a group that borrows CPUs does
    not get its GPUs back from a group that borrows fewer. Only a group that never borrows always has the share 0.
    """
    if not tree.stack.fairness.even:
        return
    for group in cohorts_downwards(tree):
        for flavor, shares in tree.stated.get(group, {}).items():
            for resource in shares:
                yield from _group_guarantee(tree, group, flavor, resource)
    for name in tree.queue_owners:
        if tree.stack.teams[name].preemption.borrow_within_cohort != "Never":
            yield Problem(
                ("teams", name, "preemption", "borrowWithinCohort"),
                "has no effect with fairness: even, in which shares decide who preempts to borrow",
                "remove it, or set fairness: hierarchical",
                tree.stack.teams[name].preemption.borrow_within_cohort,
                about=(("fairness",),),
            )


def usage_problems(tree: Tree) -> Iterator[Problem]:
    """Usage over time where it decides nothing: no team shares a queue, or no resource that it counts is there."""
    usage = tree.stack.fairness.usage
    if usage is not None:
        yield from _usage(tree, usage)
    for name, team in tree.stack.teams.items():
        if team.usage_weight is not None and not tree.by_usage(tree.queue_of(name)):
            rule = "has no effect" + (
                f", because no other team uses the queue {tree.queue_of(name)}" if usage else " without fairness.usage"
            )
            fix = "remove it, or let another team use the queue" if usage else "set fairness.usage, or remove it"
            about = (("fairness",), *(("teams", other) for other in tree.stack.teams if other != name))
            yield Problem(("teams", name, "usageWeight"), rule, fix, f"{team.usage_weight:g}", about=about)


def _usage(tree: Tree, usage: Usage) -> Iterator[Problem]:
    place = ("fairness", "usage")
    if not any(tree.by_usage(queue) for queue in tree.queue_owners):
        yield Problem(
            place,
            "has no effect: Kueue compares the past usage of teams that share a queue, and every team has its own",
            "set queue: TEAM in teams that share, or remove it",
            about=(("teams",),),
        )
    covered = {CPU, MEMORY, *gpu_resources(tree)}
    for resource in usage.weights:
        if resource not in covered:
            known = ", ".join(sorted(covered))
            yield Problem((*place, "weights", resource), "is not a resource of the pools", f"use one of: {known}")
    weights = usage_weights(tree, usage)
    if not any(weights[resource] for resource in covered):
        rule = "gives every resource the weight 0, so no usage is counted"
        yield Problem((*place, "weights"), rule, "raise the weight of a resource")


def _group_guarantee(tree: Tree, group: str, flavor: str, resource: str) -> Iterator[Problem]:
    beyond = tree.cohort_nominal(group, flavor, resource)
    if not tree.is_stated(group, flavor, resource) or beyond <= 0:
        return
    borrower = next((name for name in _upwards(tree, group) if list(_borrows(tree, name))), None)
    if borrower is None:
        return
    guaranteed = tree.guaranteed(group, flavor, resource)
    children = format_amount(resource, guaranteed - beyond)
    found = list(_borrows(tree, borrower))
    listed = ", ".join(found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
    yield Problem(
        (*group_key(tree, group, flavor, resource), "guaranteed"),
        f"exceeds its children's guarantees ({children} {what(tree.flavors[flavor], resource)}), which fairness: even"
        f" keeps only for a group that cannot borrow; {borrower} can borrow {listed}",
        f"lower it to {children} and guarantee the rest to teams, set limits of {borrower} to its guarantees, or set"
        " fairness: hierarchical",
        format_amount(resource, guaranteed),
        about=(("teams",), ("cohorts",), ("fairness",)),
    )


def _upwards(tree: Tree, group: str) -> Iterator[str]:
    """A group and those above it, without the root."""
    name: str | None = group
    while name is not None and name != tree.root:
        yield name
        name = tree.parents[name]


def _borrows(tree: Tree, group: str) -> Iterator[str]:
    """What a group can borrow: `h100 GPUs`, `cpu of cpu`; GPUs first."""
    for name, flavor in sorted(tree.flavors.items(), key=lambda item: item[1].resource is None):
        for resource in sorted(flavor.capacity, key=lambda resource: resource != flavor.resource):
            if borrowable(tree, group, name, resource):
                yield what(flavor, resource)


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
