"""Kueue's Cohort objects of a stack's groups.

With `fairness: hierarchical` each group is a Cohort. With `even`, Kueue compares the shares of a Cohort's children
(pkg/scheduler/preemption/fairsharing/least_common_ancestor.go of v0.19.2), and the share of a Cohort counts only what
it borrows beyond the quota of its whole subtree (pkg/cache/scheduler/fair_sharing.go). So a Cohort borrows as one, and
what one of its teams does not use of its guarantee is for its other teams first. For teams that share evenly whatever
their group, a group is a Cohort only if it adds something to its teams: a limit that binds, a guarantee above theirs,
or a weight. Guarantee and limit of any other group follow from its teams.
"""

from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache

from gpu_tenancy.model.plan.shares import Share, Tree, cohorts_downwards


@dataclass(frozen=True, slots=True)
class Members:
    """The children of a Cohort object: other Cohorts, and teams with a ClusterQueue."""

    cohorts: tuple[str, ...]
    teams: tuple[str, ...]


@lru_cache(maxsize=4)
def cohort_parents(tree: Tree) -> dict[str, str | None]:
    """The groups that are Cohorts, each after its parent, with the parent; None for the root's."""
    names = list(cohorts_downwards(tree))
    if tree.stack.fairness.even:
        names = [name for name in names if name == tree.root or _adds_bounds(tree, name)]
    kept = set(names)
    return {name: None if name == tree.root else _nearest(tree, tree.parents[name], kept) for name in names}


def cohort_of_queue(tree: Tree, team: str) -> str:
    """The Cohort of a team's ClusterQueue: that of its group, or the nearest one above."""
    return _nearest(tree, tree.cohort_of(team), cohort_parents(tree))


def members(tree: Tree, cohort: str) -> Members:
    """The children of a Cohort."""
    return _members(tree).get(cohort, Members((), ()))


def own_quota(tree: Tree, cohort: str, flavor: str, resource: str) -> int:
    """A Cohort's `nominalQuota`: its guarantee (the root: the supply) minus its children's."""
    below = members(tree, cohort)
    whole = tree.supply(flavor).get(resource, 0) if cohort == tree.root else tree.guaranteed(cohort, flavor, resource)
    of_cohorts = sum(tree.guaranteed(name, flavor, resource) for name in below.cohorts)
    return whole - of_cohorts - sum(tree.share(team, flavor, resource).guaranteed for team in below.teams)


def cohort_weight(tree: Tree, cohort: str) -> float | None:
    """A Cohort's weight: as set or, with `even`, the sum of its children's, so that its teams share like all others."""
    if cohort != tree.root and tree.stack.fairness.even:
        return _weight(tree, cohort)
    spec = tree.stack.cohorts.get(cohort)
    return spec.weight if spec else None


def reach(tree: Tree, cohort: str, flavor: str, resource: str) -> int:
    """The most that a group's teams could use together by their limits and those of groups in it."""
    groups, teams = tree.children(cohort)
    below = 0
    for group in groups:
        limit, together = tree.cohort_limit(group, flavor, resource), reach(tree, group, flavor, resource)
        below += together if limit is None else min(limit, together)
    return below + sum(tree.share(team, flavor, resource).effective_limit for team in teams)


def borrowable(tree: Tree, cohort: str, flavor: str, resource: str) -> int:
    """How far a group can exceed its guarantee."""
    most = min(reach(tree, cohort, flavor, resource), tree.supply(flavor).get(resource, 0))
    limit = tree.cohort_limit(cohort, flavor, resource)
    most = most if limit is None else min(limit, most)
    return max(0, most - tree.guaranteed(cohort, flavor, resource))


def _adds_bounds(tree: Tree, group: str) -> bool:
    if tree.stack.cohorts[group].weight is not None:
        return True
    return any(
        _binds(tree, group, flavor, resource, share)
        for flavor, shares in tree.stated.get(group, {}).items()
        for resource, share in shares.items()
    )


def _binds(tree: Tree, group: str, flavor: str, resource: str, share: Share) -> bool:
    """Whether a group's guarantee exceeds its children's, or its limit is below what its teams could use."""
    if tree.is_stated(group, flavor, resource) and tree.cohort_nominal(group, flavor, resource) > 0:
        return True
    most = min(reach(tree, group, flavor, resource), tree.supply(flavor).get(resource, 0))
    return share.limit is not None and share.limit < most


def _nearest(tree: Tree, name: str | None, kept: Container[str]) -> str:
    """The first group that is a Cohort, from a group upwards."""
    return next((cohort for cohort in tree.above(name) if cohort in kept), tree.root)


@lru_cache(maxsize=4)
def _members(tree: Tree) -> dict[str, Members]:
    cohorts: dict[str, list[str]] = {}
    teams: dict[str, list[str]] = {}
    for name, parent in cohort_parents(tree).items():
        if parent is not None:
            cohorts.setdefault(parent, []).append(name)
    for team in tree.queue_owners:
        teams.setdefault(cohort_of_queue(tree, team), []).append(team)
    return {name: Members(tuple(cohorts.get(name, ())), tuple(teams.get(name, ()))) for name in cohort_parents(tree)}


def _weight(tree: Tree, cohort: str) -> float:
    own = tree.stack.cohorts[cohort].weight
    if own is not None:
        return own
    below = members(tree, cohort)
    return sum(_weight(tree, name) for name in below.cohorts) + sum(
        tree.stack.teams[team].weight for team in below.teams
    )
