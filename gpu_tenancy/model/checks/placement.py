"""Checks of where a pool's nodes are: zones that have the machine type, and placement close together."""

from collections.abc import Iterator

from gpu_tenancy.base.problems import Problem
from gpu_tenancy.model.catalogue import Machine, cloud_tables
from gpu_tenancy.model.catalogue.clouds import CloudRules
from gpu_tenancy.model.plan.pools import ResolvedPool


def zone_problems(resolved: ResolvedPool, machine: Machine, rules: CloudRules) -> Iterator[Problem]:
    """Zones of a pool that do not have its machine type, and zones that a GPU pool must name.

    Zones that the cloud does not have are another check's.
    """
    name, pool = resolved.name, resolved.pool
    zones = resolved.cluster.node_zones(pool.zones)
    if machine.gpus and rules.gpu_zones and not zones:
        rule = (
            f"are not set, so {rules.title} creates the pool in zones that it selects itself, and the creation fails if"
            f" one of them does not have {machine.name}"
        )
        yield Problem(("pools", name, "zones"), rule, _fix(resolved, machine))
    for zone in zones:
        if machine.zones is None or zone in machine.zones or resolved.cluster.zone_rule(zone):
            continue
        place = ("pools", name, "zones", pool.zones.index(zone)) if pool.zones else ("pools", name, "zones")
        table = cloud_tables()[machine.cloud].zones if machine.cloud else None
        read = f" (catalogue of {table.date})" if table else ""
        yield Problem(place, f"does not have {machine.name}{read}", _fix(resolved, machine), zone)


def _fix(resolved: ResolvedPool, machine: Machine) -> str:
    if machine.zones is None:
        return f"set pools.{resolved.name}.zones to the zones that have it"
    near = sorted(zone for zone in machine.zones if resolved.cluster.zone_rule(zone) is None)
    if near:
        return f"set pools.{resolved.name}.zones to one or more of: {', '.join(near)}"
    return (
        "use another machine type, or a region that has it"
        f" (zones: {', '.join(sorted(machine.zones))}); if the zone is new, set machines.{machine.name}.zones"
    )


def placement_problems(resolved: ResolvedPool, machine: Machine, rules: CloudRules) -> Iterator[Problem]:
    """Placement that the cloud does not support, or that keeps nodes off their reservation or NVLink domain."""
    name, pool = resolved.name, resolved.pool
    place = ("pools", name, "compact")
    zones = resolved.cluster.node_zones(pool.zones)
    if pool.compact and pool.capacity.kind not in rules.compact:
        rule = f"{rules.title} does not support compact placement with capacity {pool.capacity.kind}"
        fix = f"remove it, or set capacity to one of: {', '.join(rules.compact)}"
        yield Problem(place, rule, fix)
    elif pool.compact and rules.compact_zones and len(zones) not in rules.compact_zones:
        rule = f"{rules.title} supports compact placement only in one zone"
        yield Problem(place, rule, f"set one zone under pools.{name}.zones")
    elif pool.compact and _lacks_policy(resolved, machine, rules):
        rule = (
            f"{rules.title} uses a reservation only for machines with the reservation's own placement policy, so the"
            " pool would get no machines"
        )
        fix = f"set pools.{name}.placementPolicy to the policy that the reservation was created with, or remove compact"
        yield Problem(place, rule, fix)
    yield from _policy(resolved, machine, rules)
    if machine.domain:
        yield from _domain(resolved, machine, machine.domain)


def _lacks_policy(resolved: ResolvedPool, machine: Machine, rules: CloudRules) -> bool:
    """Whether a pool needs its reservation's policy and does not name it.

    Dense reservations, which NVLink domains require, accept any policy:
    https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/3347.
    """
    pool = resolved.pool
    reserved = pool.capacity.kind == "reserved" and rules.reserved_policy
    return reserved and pool.placement_policy is None and machine.domain is None


def _policy(resolved: ResolvedPool, machine: Machine, rules: CloudRules) -> Iterator[Problem]:
    name, pool = resolved.name, resolved.pool
    place = ("pools", name, "placementPolicy")
    policy = pool.placement_policy
    if policy is None:
        return
    if rules.placement_policy is None:
        yield Problem(place, f"is not supported on {rules.title}", "remove it", policy)
    elif not rules.placement_policy.fits(policy):
        yield Problem(place, "is not a placement policy", f"set {rules.placement_policy.write}", policy)
    elif not pool.compact and machine.domain is None:
        yield Problem(place, "has no effect without compact placement", "set compact: true, or remove it", policy)


def _domain(resolved: ResolvedPool, machine: Machine, domain: int) -> Iterator[Problem]:
    """The machines of an NVLink domain are in one rack, and a pool is one domain."""
    name, pool = resolved.name, resolved.pool
    if len(resolved.cluster.node_zones(pool.zones)) > 1:
        rule = f"must be one zone: {machine.name} forms NVLink domains ({machine.topology}), each in one zone"
        yield Problem(("pools", name, "zones"), rule, "set one zone")
    if pool.nodes.max > domain:
        rule = f"is more than the {domain} machines of one NVLink domain ({machine.topology}) of {machine.name}"
        fix = f"set {domain} or less, and add a pool with the same flavor for each further domain"
        yield Problem(("pools", name, "nodes", "max"), rule, fix, str(pool.nodes.max))
