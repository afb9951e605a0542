"""Drivers and the ways to share a GPU: what excludes each other, and who must trust whom."""

from collections.abc import Iterator

from gpu_tenancy.model.catalogue import find_gpu
from gpu_tenancy.model.catalogue.clouds import CloudRules, SharingRule, driver_mode, rules_of
from gpu_tenancy.model.plan.gpu_operator import clashes, nvidia_pools
from gpu_tenancy.model.plan.gpus import machine_of, sharing_rule
from gpu_tenancy.model.plan.operators.needs import installed_by
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.problems import Problem, nearest
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.pools import Pool


def driver_problems(tree: Tree, rules: CloudRules) -> Iterator[Problem]:
    """What of the pools' drivers and of their sharing cannot be had, or not together."""
    for name in tree.stack.pools:
        yield from _driver(tree.stack, name, rules)
        yield from _cut(tree.stack, name, rules)
    apart = list(clashes(tree.stack))
    for first, other in apart:
        yield _clash(tree.stack, first, other)
    if not apart:
        yield from _approved(tree.stack, rules)
    for flavor in tree.flavors.values():
        yield from _trust(tree, flavor)


def _driver(stack: Stack, name: str, rules: CloudRules) -> Iterator[Problem]:
    said = stack.pools[name].driver
    if said is None:
        return
    place = ("pools", name, "driver")
    if name not in nvidia_pools(stack):
        yield Problem(place, "is a mode of NVIDIA's driver, and the pool has none of its GPUs", "leave it out", said)
    elif said not in rules.drivers:
        known = "; ".join(f"{mode}: {each.means}" for mode, each in rules.drivers.items())
        yield Problem(place, f"is no way to bring the driver on {rules.title}", f"choose {known}", said)


def _clash(stack: Stack, first: str, other: str) -> Problem:
    modes = rules_of(service_of(stack.cluster)).drivers
    names = [stack.pools[each].driver or next(iter(modes)) for each in (first, other)]
    rule = (
        f"wants other values of the GPU Operator than {names[0]} of pool {first}, and a cluster has one GPU Operator:"
        " the nodes of one pool would be without a driver or a runtime"
    )
    mend = f"give both pools one driver, or the second a cluster of its own ({names[0]}: {modes[names[0]].means})"
    return Problem(("pools", other, "driver"), rule, mend, names[1], about=(("pools", first, "driver"),))


def _approved(stack: Stack, rules: CloudRules) -> Iterator[Problem]:
    """Another set of the GPU Operator's values takes the driver off nodes that run, so the stack says it twice."""
    said = stack.operators.driver
    place = ("operators", "driver")
    if said is not None and said not in rules.drivers:
        rule = f"is no way to bring the driver on {rules.title}"
        yield Problem(place, rule, nearest(said, rules.drivers), said)
        return
    pool = next(nvidia_pools(stack), None)
    usual = next(iter(rules.drivers))
    mode = driver_mode(service_of(stack.cluster), stack.pools[pool].driver) if pool else None
    if pool is None or mode is None or not stack.cluster.NODES_MADE or installed_by(stack, "gpu_operator") != "here":
        return
    if mode.operator != rules.drivers[said or usual].operator:
        name = stack.pools[pool].driver or usual
        rule = f"sets the GPU Operator up otherwise than {said or usual}, which takes the driver off nodes that run so"
        mend = f"approve the change: write operators.driver: {name}; drain the nodes first"
        yield Problem(("pools", pool, "driver"), rule, mend, name, about=(place,))


def _cut(stack: Stack, name: str, rules: CloudRules) -> Iterator[Problem]:
    pool = stack.pools[name]
    mode = driver_mode(service_of(stack.cluster), pool.driver)
    if pool.sharing is None or mode is None:
        return
    what = "mig" if pool.sharing.mig else "timeSlicing"
    place = ("pools", name, "sharing", what)
    machine = machine_of(stack, pool)
    gpu = machine.gpu if machine else pool.gpu
    if gpu is None:
        return  # Said already.
    if name not in nvidia_pools(stack):
        yield Problem(place, f"is NVIDIA's way to share a GPU, and {gpu} is another vendor's", "leave sharing out")
        return
    rule_of = sharing_rule(stack, pool)
    if rule_of is None:
        able = [each for each, known in rules.drivers.items() if (known.mig if what == "mig" else known.time_slicing)]
        rule = f"cannot be had on {rules.title} where {mode.means}"
        yield Problem(place, rule, f"use driver {' or '.join(able)}" if able else "leave it out")
    if pool.sharing.time_slicing and (lacking := stack.cluster.time_slicing_rule()):
        yield Problem(place, *lacking)
    if rule_of and not rule_of.grows and pool.nodes.min != pool.nodes.max:
        rule = f"are cut GPUs whose nodes no autoscaler of {rules.title} adds"
        mend = f"write one number of nodes, such as {pool.nodes.max}, or driver: operator"
        yield Problem(("pools", name, "nodes"), rule, mend, f"{pool.nodes.min} to {pool.nodes.max} nodes")
    yield from _profile(name, pool, gpu, rule_of)


def _profile(name: str, pool: Pool, gpu: str, rule_of: SharingRule | None) -> Iterator[Problem]:
    known, mig = find_gpu(gpu), pool.sharing.mig if pool.sharing else None
    if mig is None or known is None or mig.profile not in known.mig:
        return
    place = ("pools", name, "sharing", "mig")
    if mig.partitions and known.mig[mig.profile] != mig.partitions:
        rule = f"partitions are not what a {gpu} is cut into, which is {known.mig[mig.profile]} of {mig.profile}"
        yield Problem((*place, "partitions"), rule, "leave it out", str(mig.partitions))
    least = next(each for each in known.mig if each.partition("g.")[0] == mig.profile.partition("g.")[0])
    if rule_of and rule_of.least_memory and least != mig.profile:
        rule = f"is no profile that the cloud cuts a {gpu} into: of as many slices it has only {least}"
        yield Problem((*place, "profile"), rule, f"write {least}, or driver: operator", mig.profile)


def _trust(tree: Tree, flavor: Flavor) -> Iterator[Problem]:
    """Pods that take turns on a GPU read each other's memory, so its teams must trust each other."""
    teams = {team for team in tree.stack.teams if _reaches(tree, team, flavor)}
    for pool in flavor.pools:
        sharing = tree.stack.pools[pool.name].sharing
        if sharing is None or sharing.time_slicing is None:
            continue
        place = ("pools", pool.name, "sharing", "timeSlicing", "trusting")
        trusting = set(sharing.time_slicing.trusting)
        for index, team in enumerate(sharing.time_slicing.trusting):
            if team not in tree.stack.teams:
                yield Problem((*place, index), "is no team", nearest(team, tree.stack.teams), team)
        strangers = sorted(teams - trusting)
        if len(teams) > 1 and strangers:
            rule = f"pods of {_listed(sorted(teams))} take turns on one GPU without any isolation of its memory"
            mend = (
                f"cut it by mig, give the flavor to one team, or say that they trust each other:"
                f" trusting: [{', '.join(sorted(teams))}]"
            )
            about = tuple(("teams", team) for team in sorted(teams))
            yield Problem(place[:-1], rule, mend, about=about)


def _reaches(tree: Tree, team: str, flavor: Flavor) -> bool:
    """Whether a team's pods may land on a flavor: by its queue, or by its gangs."""
    share = tree.team_shares.get(tree.queue_of(team), {}).get(flavor.name, {}).get(flavor.resource or "")
    queued = share is not None and (share.guaranteed > 0 or share.limit is None or share.limit > 0)
    return queued or flavor.name in tree.stack.teams[team].gangs


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
