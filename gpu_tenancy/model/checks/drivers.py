"""Checks of GPU drivers and GPU sharing: unsupported and conflicting modes, and trust between teams."""

from collections.abc import Iterator

from gpu_tenancy.base.problems import Problem, unknown
from gpu_tenancy.model.catalogue import find_gpu
from gpu_tenancy.model.catalogue.clouds import CloudRules, SharingRule
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import installed_by
from gpu_tenancy.model.plan.operators.gpus import clashes
from gpu_tenancy.model.plan.pools import ResolvedPool
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.spec.pools import Pool


def driver_problems(tree: Tree, rules: CloudRules) -> Iterator[Problem]:
    """Driver modes and sharing of the pools that are unsupported, or conflict with each other."""
    for pool in tree.pools.values():
        yield from _driver(pool, rules)
        yield from _cut(pool, rules)
    conflicts = list(clashes(tree))
    for first, other in conflicts:
        yield _clash(first, other)
    if not conflicts:
        yield from _approved(tree, rules)
    for flavor in () if tree.stack.dispatches else tree.flavors.values():
        yield from _trust(tree, flavor)


def _driver(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    name, driver = resolved.name, resolved.pool.driver
    if driver is None:
        return
    place = ("pools", name, "driver")
    if not resolved.of_nvidia:
        yield Problem(place, "is a mode of the NVIDIA driver, but the pool has no NVIDIA GPUs", "remove it", driver)
    elif driver not in rules.drivers:
        known = "; ".join(f"{mode} ({row.means})" for mode, row in rules.drivers.items())
        yield Problem(place, f"is not a driver mode of {rules.title}", f"use one of: {known}", driver)


def _clash(first: ResolvedPool, other: ResolvedPool) -> Problem:
    modes = first.rules.drivers
    names = [pool.pool.driver or next(iter(modes)) for pool in (first, other)]
    rule = (
        f"needs other GPU Operator values than driver {names[0]} of pool {first.name}, but a cluster has one GPU"
        " Operator: the nodes of one pool would have no driver or no container runtime"
    )
    fix = f"set the same driver for both pools, or use two clusters ({names[0]}: {modes[names[0]].means})"
    return Problem(("pools", other.name, "driver"), rule, fix, names[1], about=(("pools", first.name, "driver"),))


def _approved(environment: Environment, rules: CloudRules) -> Iterator[Problem]:
    """Changed GPU Operator values remove the driver from running nodes, so the stack must confirm the mode."""
    confirmed, made = environment.stack.operators.driver, environment.stack.cluster.NODES_MADE
    place = ("operators", "driver")
    if confirmed is not None and confirmed not in rules.drivers:
        yield Problem(place, *unknown(f"{rules.title} driver mode", confirmed, rules.drivers))
        return
    pool = next(iter(environment.nvidia_pools), None)
    usual = next(iter(rules.drivers))
    if not made or pool is None or pool.mode is None or installed_by(environment, "gpu_operator") != "here":
        return
    if pool.mode.operator != rules.drivers[confirmed or usual].operator:
        name = pool.pool.driver or usual
        rule = (
            f"needs other GPU Operator values than {confirmed or usual}, and the change removes the driver from"
            " running nodes"
        )
        fix = f"drain the nodes, then set operators.driver: {name} to confirm the change"
        yield Problem(("pools", pool.name, "driver"), rule, fix, name, about=(place,))


def _cut(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    name, pool = resolved.name, resolved.pool
    mode = resolved.mode
    if pool.sharing is None or mode is None:
        return
    what = pool.sharing.way
    place = ("pools", name, "sharing", what)
    gpu = resolved.gpu
    if gpu is None:
        return  # Reported by another check.
    if not resolved.of_nvidia:
        yield Problem(place, f"is only supported for NVIDIA GPUs, and {gpu} is not one", "remove sharing")
        return
    rule_of = resolved.sharing_rule
    if rule_of is None:
        able = [driver for driver, row in rules.drivers.items() if row.sharing(what)]
        rule = f"is not supported on {rules.title} with this driver mode ({mode.means})"
        if what == "mps" and mode.without_mps:
            rule += f": {mode.without_mps}"
        yield Problem(place, rule, f"set driver: {' or '.join(able)}" if able else "remove it")
    if pool.sharing.pods and (lacking := resolved.cluster.time_slicing_rule()):
        yield Problem(place, *lacking)
    if rule_of and not rule_of.grows and pool.nodes.min != pool.nodes.max:
        rule = f"must be a fixed number: the autoscaler of {rules.title} does not add nodes with MIG partitions"
        able = [driver for driver, row in rules.drivers.items() if row.mig and row.mig.grows]
        other = f", or set driver: {' or '.join(able)}" if able else ""
        fix = f"set one number of nodes, such as {pool.nodes.max}{other}"
        yield Problem(("pools", name, "nodes"), rule, fix, f"{pool.nodes.min} to {pool.nodes.max} nodes")
    yield from _profile(name, pool, gpu, rule_of)


def _profile(name: str, pool: Pool, gpu: str, rule_of: SharingRule | None) -> Iterator[Problem]:
    known, mig = find_gpu(gpu), pool.sharing.mig if pool.sharing else None
    if mig is None or known is None or mig.profile not in known.mig:
        return
    place = ("pools", name, "sharing", "mig")
    if mig.partitions and known.mig[mig.profile] != mig.partitions:
        rule = f"partitions do not match {gpu}, which has {known.mig[mig.profile]} partitions of {mig.profile}"
        yield Problem((*place, "partitions"), rule, "remove it", str(mig.partitions))
    slices = mig.profile.partition("g.")[0]
    smallest = next(profile for profile in known.mig if profile.partition("g.")[0] == slices)
    if rule_of and rule_of.least_memory and smallest != mig.profile:
        rule = f"is not supported by the cloud for {gpu}: its only profile with {slices}g is {smallest}"
        yield Problem((*place, "profile"), rule, f"set {smallest}, or set driver: operator", mig.profile)


def _trust(tree: Tree, flavor: Flavor) -> Iterator[Problem]:
    """Time slicing does not isolate memory, and MPS no faults, so teams that share a GPU must trust each other."""
    teams = {team for team in tree.stack.teams if _reaches(tree, team, flavor)}
    for pool in flavor.pools:
        sharing = tree.stack.pools[pool.name].sharing
        if sharing is None or sharing.mig:
            continue
        place = ("pools", pool.name, "sharing", sharing.way, "trusting")
        trusting = set(sharing.trusting)
        for index, team in enumerate(sharing.trusting):
            if team not in tree.stack.teams:
                yield Problem((*place, index), *unknown("team", team, tree.stack.teams))
        strangers = sorted(teams - trusting)
        if len(teams) > 1 and strangers:
            without = "isolation of faults" if sharing.mps else "memory isolation"
            rule = f"pods of {_listed(sorted(teams))} share a GPU without {without}"
            fix = (
                f"use mig, give the flavor to one team, or confirm that the teams trust each other with"
                f" trusting: [{', '.join(sorted(teams))}]"
            )
            about = tuple(("teams", team) for team in sorted(teams))
            yield Problem(place[:-1], rule, fix, about=about)


def _reaches(tree: Tree, team: str, flavor: Flavor) -> bool:
    """Whether a team's pods can run on a flavor, through its queue or as gangs."""
    share = tree.team_shares.get(tree.queue_of(team), {}).get(flavor.name, {}).get(flavor.resource or "")
    queued = share is not None and (share.guaranteed > 0 or share.limit is None or share.limit > 0)
    return queued or flavor.name in tree.stack.teams[team].gangs


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
