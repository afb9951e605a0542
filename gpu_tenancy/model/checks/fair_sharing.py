"""Checks of what Kueue does not do with `fairness`: guarantees that it would not keep, and keys without effect."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount
from gpu_tenancy.model.checks.promises import group_key, what
from gpu_tenancy.model.plan.cohort_objects import borrowable
from gpu_tenancy.model.plan.namespaces import gpu_resources
from gpu_tenancy.model.plan.operators.kueue import usage_weights
from gpu_tenancy.model.plan.shares import Tree, cohorts_downwards
from gpu_tenancy.model.spec.tenancy import Usage

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
