"""Guarantees that add up: nobody is promised what the pools, or the group above, do not have."""

from collections.abc import Iterator, Mapping

from gpu_tenancy.model.plan.shares import Tree, cohorts_downwards
from gpu_tenancy.model.plan.supply import Flavor, gang_amounts
from gpu_tenancy.model.problems import Path, Problem
from gpu_tenancy.model.quantity import CPU, MEMORY, format_amount


def promise_problems(tree: Tree) -> Iterator[Problem]:
    """Where a guarantee is more than there is, and where a kind of fairness could not keep it."""
    for flavor in tree.flavors.values():
        # GPUs first: where they are promised twice, so are the cpu and memory that follow from them.
        for resource in sorted(flavor.most, key=lambda resource: resource != flavor.resource):
            found = list(_root(tree, flavor, resource))
            yield from found
            for group in tree.said:
                found += (of_group := list(_group(tree, group, flavor, resource)))
                yield from of_group
            if found and resource == flavor.resource:
                break
    if tree.stack.fairness == "even":
        yield from _even(tree)


def _root(tree: Tree, flavor: Flavor, resource: str) -> Iterator[Problem]:
    most = flavor.most[resource]
    gangs = flavor.gangs.get(resource, 0)
    if gangs > most:
        yield _too_much_for_gangs(tree, flavor, resource)
        return
    teams = {
        team: shares[flavor.name][resource].guaranteed
        for team, shares in tree.team_shares.items()
        if flavor.name in shares and resource in shares[flavor.name]
    }
    alone = {team: amount for team, amount in teams.items() if amount > most - gangs}
    for team in alone:
        yield _too_much_for_one(tree, team, flavor, resource)
    if not alone and tree.own(tree.root, flavor.name, resource) < 0:
        yield _too_much_together(tree, flavor, resource)


def _what(flavor: Flavor, resource: str) -> str:
    return flavor.name if resource == flavor.resource else f"{resource} of {flavor.name}"


def _about(flavor: Flavor) -> tuple[Path, ...]:
    return (*(("pools", pool.name) for pool in flavor.pools), ("cluster", "autoscaler"))


def _supply(flavor: Flavor, resource: str, *, less_gangs: bool = True) -> str:
    """The supply and how it comes about: `16 h100 that its pools can have (2 nodes of 8)`."""
    gangs = flavor.gangs.get(resource, 0) if less_gangs else 0
    parts = " + ".join(f"{p.most} nodes of {format_amount(resource, p.node.get(resource, 0))}" for p in flavor.pools)
    less = f", less {format_amount(resource, gangs)} that Volcano's gangs have" if gangs else ""
    most = format_amount(resource, flavor.most[resource] - gangs)
    return f"{most} {_what(flavor, resource)} that its pools can have ({parts}{less})"


def _key(tree: Tree, team: str, flavor: Flavor, resource: str) -> Path:
    """The key that says a team's guarantee."""
    section = "gpus" if flavor.name in tree.stack.teams[team].gpus else "quota"
    if resource == flavor.resource:
        return ("teams", team, section, flavor.name, "guaranteed")
    quota = tree.stack.teams[team].quota.get(flavor.name)
    if quota and getattr(quota, resource) is not None:
        return ("teams", team, "quota", flavor.name, resource, "guaranteed")
    return ("teams", team, section, flavor.name)


def _more(tree: Tree, flavor: Flavor) -> str:
    pool = f"pools.{flavor.pools[0].name}.nodes"
    if tree.stack.cluster.grows:
        return f"{pool}.max"
    return f"{pool}.min (without an autoscaler only nodes that are always there are promised)"


def _too_much_for_one(tree: Tree, team: str, flavor: Flavor, resource: str) -> Problem:
    amount = tree.team_shares[team][flavor.name][resource].guaranteed
    return Problem(
        _key(tree, team, flavor, resource),
        f"is more than the {_supply(flavor, resource)}",
        f"lower it or raise {_more(tree, flavor)}",
        format_amount(resource, amount),
        about=_about(flavor),
    )


def _too_much_for_gangs(tree: Tree, flavor: Flavor, resource: str) -> Problem:
    amounts = {
        name: gang_amounts(flavor, team.gangs[flavor.name]).get(resource, 0)
        for name, team in tree.stack.teams.items()
        if flavor.name in team.gangs
    }
    return Problem(
        ("teams", next(iter(amounts)), "gangs", flavor.name),
        f"gangs of {format_amount(resource, sum(amounts.values()))} are more than the"
        f" {_supply(flavor, resource, less_gangs=False)}: {_each(amounts, resource)}",
        f"lower them or raise {_more(tree, flavor)}",
        about=(*_about(flavor), ("teams",)),
    )


def _too_much_together(tree: Tree, flavor: Flavor, resource: str) -> Problem:
    promised = tree.children_guaranteed(tree.root, flavor.name, resource)
    total = format_amount(resource, sum(promised.values()))
    return Problem(
        ("pools", flavor.pools[0].name, "nodes"),
        f"guarantees of {total} are more than the {_supply(flavor, resource)}: {_each(promised, resource)}",
        f"lower a guarantee or raise {_more(tree, flavor)}",
        about=(*_about(flavor), ("teams",), ("cohorts",)),
    )


def _each(promised: Mapping[str, int], resource: str) -> str:
    return ", ".join(f"{name} {format_amount(resource, amount)}" for name, amount in promised.items())


def _group_key(tree: Tree, group: str, flavor: str, resource: str) -> Path:
    cohort = tree.stack.cohorts[group]
    if resource in {CPU, MEMORY} and tree.is_said(group, flavor, resource):
        return ("cohorts", group, "quota", flavor, resource)
    return ("cohorts", group, "gpus" if flavor in cohort.gpus else "quota", flavor)


def _group(tree: Tree, group: str, flavor: Flavor, resource: str) -> Iterator[Problem]:
    own = tree.own(group, flavor.name, resource)
    if own < 0:
        promised = tree.children_guaranteed(group, flavor.name, resource)
        total = sum(promised.values())
        yield Problem(
            (*_group_key(tree, group, flavor.name, resource), "guaranteed"),
            f"is less than the {format_amount(resource, total)} {_what(flavor, resource)} guaranteed below it:"
            f" {_each(promised, resource)}",
            f"raise it to {format_amount(resource, total)} or lower one of them",
            format_amount(resource, total + own),
            about=(("cohorts",), ("teams",)),
        )
    most = tree.most(group, flavor.name, resource)
    least = tree.guaranteed(group, flavor.name, resource)
    if most is not None and most < least and own >= 0:
        yield Problem(
            (*_group_key(tree, group, flavor.name, resource), "limit"),
            f"is less than the {format_amount(resource, least)} {_what(flavor, resource)} guaranteed in it",
            f"raise it to {format_amount(resource, least)} or lower a guarantee",
            format_amount(resource, most),
            about=(("cohorts",), ("teams",)),
        )


def _even(tree: Tree) -> Iterator[Problem]:
    """With one flat cohort nothing enforces a group's bounds, so they must not bind."""
    for group in cohorts_downwards(tree):
        for flavor, shares in tree.said.get(group, {}).items():
            for resource, share in shares.items():
                yield from _binding(tree, (group, flavor, resource), share.limit)


def _binding(tree: Tree, node: tuple[str, str, str], limit: int | None) -> Iterator[Problem]:
    group, flavor, resource = node
    mend = "leave it out, or write fairness: hierarchical"
    about = (("teams",), ("cohorts",), ("fairness",))
    reach = _reach(tree, group, flavor, resource)
    if limit is not None and limit < reach:
        rule = (
            f"binds teams that may reach {format_amount(resource, reach)} together, and with fairness: even nothing"
            " would enforce it"
        )
        value = format_amount(resource, limit)
        yield Problem((*_group_key(tree, group, flavor, resource), "limit"), rule, mend, value, about)
    if tree.is_said(group, flavor, resource) and tree.own(group, flavor, resource) > 0:
        rule = (
            f"is {format_amount(resource, tree.own(group, flavor, resource))} more than its children's, which with"
            " fairness: even would be lent to everyone"
        )
        value = format_amount(resource, tree.guaranteed(group, flavor, resource))
        yield Problem((*_group_key(tree, group, flavor, resource), "guaranteed"), rule, mend, value, about)


def _reach(tree: Tree, cohort: str, flavor: str, resource: str) -> int:
    """The most that the teams at and below a cohort may have together."""
    groups, teams = tree.children(cohort)
    of_teams = (tree.team_shares[team].get(flavor, {}).get(resource) for team in teams)
    below = sum(_reach(tree, group, flavor, resource) for group in groups)
    return below + sum(share.limit or 0 for share in of_teams if share)
