"""Checks of pools and flavors: machine types, MIG profiles, zones, placement, and how the machines are bought."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Final

from gpu_tenancy.base.problems import Problem, unknown
from gpu_tenancy.model.catalogue import Machine, cloud_tables, find_gpu, machines
from gpu_tenancy.model.catalogue.clouds import CapacityRule, CloudRules
from gpu_tenancy.model.catalogue.fabrics import fabrics
from gpu_tenancy.model.catalogue.machines import PurchaseRow
from gpu_tenancy.model.catalogue.rows import Fact
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.pools import PoolSupply, ResolvedPool
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.cluster import service_of


def pool_problems(tree: Tree) -> Iterator[Problem]:
    """Problems of a stack's pools, and of the flavors that they form."""
    for pool in tree.pools.values():
        yield from _unknown_parts(pool, tree.stack.machines)
    for flavor in tree.flavors.values():
        yield from _one_kind(flavor)
        yield from _fits_kueue(flavor)
    yield from _distinct(tree.flavors)


def machines_command(service: str) -> str:
    """The command that lists the machine types of a cloud, or of all clouds."""
    return (
        f"tenancy catalogue machines --cloud {service}" if service in cloud_tables() else "tenancy catalogue machines"
    )


def _unknown_parts(resolved: ResolvedPool, own: Iterable[str]) -> Iterator[Problem]:
    name, pool = resolved.name, resolved.pool
    if pool.machine and resolved.machine is None:
        service = service_of(resolved.cluster)
        known = [
            *own,
            *(known for of, known in machines() if of == service or service not in cloud_tables()),
        ]
        rule, fix = unknown("machine type", pool.machine, known, machines_command(service))
        yield Problem(("pools", name, "machine"), rule, f"{fix}, or add it under machines")
        return
    gpu = resolved.gpu
    if pool.sharing is None:
        return
    place = ("pools", name, "sharing")
    if gpu is None:
        yield Problem(place, "is set, but the pool has no GPUs", "remove sharing")
    elif pool.sharing.mig and resolved.cut is None:
        known = find_gpu(gpu)
        profile = pool.sharing.mig.profile
        if known and known.mig:
            yield Problem((*place, "mig", "profile"), *unknown(f"{gpu} MIG profile", profile, known.mig))
            return
        rule = f"has an unknown number of partitions: the catalogue has no MIG profiles of {gpu}"
        yield Problem((*place, "mig", "profile"), rule, "set mig.partitions", profile)


def _one_kind(flavor: Flavor) -> Iterator[Problem]:
    first = flavor.pools[0]
    for pool in flavor.pools[1:]:
        if (pool.resource, pool.product) != (first.resource, first.product):
            yield Problem(
                ("pools", pool.name, "flavor"),
                f"has {_kind(pool)}, but pool {first.name} of the same flavor has {_kind(first)}",
                "set different flavors for the pools",
                flavor.name,
            )


def _kind(pool: PoolSupply) -> str:
    return f"{pool.product} ({pool.resource})" if pool.resource else "no GPUs"


def _fits_kueue(flavor: Flavor) -> Iterator[Problem]:
    """Limits of a ResourceFlavor: 8 labels and 8 taints, and each taint key and effect only once."""
    place = ("pools", flavor.pools[0].name)
    if len(flavor.node_labels) > _MOST:
        rule = f"has {len(flavor.node_labels)} node labels (with the GPU model's), but Kueue supports {_MOST}"
        yield Problem((*place, "labels"), rule, "remove labels that no workload selects nodes by")
    if len(flavor.taints) > _MOST:
        rule = f"has {len(flavor.taints)} taints, but Kueue supports {_MOST}"
        yield Problem((*place, "taints"), rule, f"remove {len(flavor.taints) - _MOST} or more")
    twice = Counter((taint.key, taint.effect) for taint in flavor.taints)
    for (key, effect), count in twice.items():
        if count > 1:
            rule = f"flavor {flavor.name} has taint {key}:{effect} {count} times, but a node can have it only once"
            fix = "keep one value" if key != flavor.resource else "remove it: GPU nodes have this taint already"
            yield Problem((*place, "taints"), rule, fix)


_MOST: Final = 8


def _distinct(flavors: Mapping[str, Flavor]) -> Iterator[Problem]:
    """A GPU flavor selects its nodes by labels, so nodes of other flavors must not have all of them."""
    on_gpus = [flavor for flavor in flavors.values() if flavor.resource is not None]
    for flavor, other in permutations(on_gpus, 2):
        mine, theirs = flavor.node_labels.items(), other.node_labels.items()
        if mine == theirs and on_gpus.index(flavor) < on_gpus.index(other):
            continue  # Reported once, for the second flavor.
        pool = flavor.pools[0].name
        label = f"add a distinct label under pools.{pool}.labels"
        if mine == theirs:
            rule = f"has the same node labels as flavor {other.name}, so their nodes cannot be distinguished"
            yield Problem(("pools", pool), rule, f"{label}, or set the same flavor for both")
        elif any(mine <= pool.labels.items() for pool in other.pools):
            rule = f"has only node labels that nodes of flavor {other.name} have too, so its pods could run there"
            yield Problem(("pools", pool), rule, label)


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
        fact = _zones_fact(machine)
        read = f" (catalogue of {fact.date})" if fact else ""
        yield Problem(place, f"does not have {machine.name}{read}", _fix(resolved, machine), zone)


def _zones_fact(machine: Machine) -> Fact | None:
    """Where the zones of a machine type were read; None if the stack lists them."""
    if isinstance(machine.purchase, PurchaseRow) and machine.purchase.zones:
        return machine.purchase
    return cloud_tables()[machine.cloud].zones if machine.cloud else None


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


_DAY: Final = 86400


def capacity_problems(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    """Problems of the way in which the machines of a pool are bought."""
    name, pool = resolved.name, resolved.pool
    title, rule = rules.title, rules.capacity[pool.capacity.kind]
    place = ("pools", name, "capacity")
    kind = pool.capacity.kind
    if rule.refused:
        yield Problem(place, f"is not available: {rule.refused}", rule.instead or "use another kind", kind)
        return
    if resolved.cluster.NODES_MADE:
        yield from _bought(resolved, rules)
    if pool.capacity.kind in {"reserved", "capacity-block"}:
        reservation = getattr(pool.capacity, "reservation", "")
        if rule.reservation and not rule.reservation.fits(reservation):
            fix = f"set {rule.reservation.write}"
            yield Problem((*place, "reservation"), f"is not a reservation of {title}", fix, reservation)
        elif lacking := resolved.cluster.reservation_rule(reservation):
            yield Problem((*place, "reservation"), *lacking, reservation)
    if rule.zones is not None and len(pool.zones) != rule.zones and resolved.cluster.NODES_MADE:
        zones = f"{len(pool.zones)} zones" if pool.zones else "no zones"
        broken = f"needs exactly {rule.zones} zone, but the pool has {zones}"
        yield Problem(place, broken, f"set the reservation's zone under pools.{name}.zones", kind)
    if rule.min is not None and pool.nodes.min != rule.min:
        broken = f"must be {rule.min} with capacity {kind}, which provisions nodes only on demand"
        yield Problem(("pools", name, "nodes", "min"), broken, f"set {rule.min}", str(pool.nodes.min))
    yield from _lifetime(resolved, title, rule)


def _lifetime(resolved: ResolvedPool, title: str, rule: CapacityRule) -> Iterator[Problem]:
    """The maximum lifetime of nodes that are provisioned for a time, and whether an autoscaler provisions them."""
    capacity, place = resolved.pool.capacity, ("pools", resolved.name, "capacity")
    longest = getattr(capacity, "max_run", None)
    if rule.by_queue and (lacking := resolved.cluster.queued_rule()):
        yield Problem(place, *lacking, capacity.kind)
    if rule.by_queue and rule.by_queue.lifetime and longest is None:
        yield Problem(place, f"has no maxRun, which {title} requires", "set {kind: queued, maxRun: 7d}", capacity.kind)
    if longest is None:
        return
    if rule.by_queue and rule.by_queue.lifetime is False:
        broken = f"is not supported on {title}, where a node stays until it is empty"
        yield Problem((*place, "maxRun"), broken, "remove it", f"{longest / _DAY:g}d")
    if rule.longest is not None and longest > rule.longest:
        broken = f"exceeds the maximum lifetime of {capacity.kind} nodes on {title} ({rule.longest / _DAY:g}d)"
        yield Problem((*place, "maxRun"), broken, f"set {rule.longest / _DAY:g}d or less", f"{longest / _DAY:g}d")


def empty_pool_problems(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    """A pool from zero whose nodes have what no autoscaler knows, so that it adds no node, or too many of them."""
    supply, way_out = resolved.supply, resolved.cluster.autoscaler_hint
    if rules.infers is None or way_out is None or supply is None or supply.min_nodes or not supply.max_nodes:
        return
    if resolved.sharing_rule and not resolved.sharing_rule.grows:
        return  # Reported by another check.
    place, fix = ("pools", resolved.name, "nodes", "min"), f"set 1 or more{way_out}"
    row = fabrics().get(resolved.fabric or "")
    needed = (supply.resource, row.resource if row else None)
    for resource in dict.fromkeys(name for name in needed if name and name not in rules.infers):
        rule = f"is not possible: the autoscaler of {rules.title} does not know that an empty pool has {resource}"
        yield Problem(place, f"{rule}, and adds no node", fix, "0")
    shared = resolved.sharing_rule is not None and resolved.sharing_rule.by == "operator"
    if shared and supply.resource in rules.infers:
        rule = (
            f"is not possible with {supply.gpus_per_node} parts of {resolved.gpus} GPUs: the autoscaler of"
            f" {rules.title} counts whole GPUs of an empty pool, and adds too many nodes"
        )
        yield Problem(place, rule, fix, "0")


def _bought(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    """A machine type that nobody can buy in this way; what the catalogue does not know is not refused."""
    kind, machine = resolved.pool.capacity.kind, resolved.machine
    purchase = machine.purchase if machine else None
    if machine is None or purchase is None or (rules.capacity[kind].bought_as or kind) not in purchase.lacks:
        return
    read = f" (catalogue of {purchase.date})" if isinstance(purchase, PurchaseRow) else ""
    ways = ", ".join(purchase.has) or "unknown"
    fix = f"set capacity to one that it has ({ways}); if that has changed, set machines.{machine.name}.capacity"
    place = ("pools", resolved.name, "capacity")
    yield Problem(place, f"is not available for {machine.name} on {rules.title}{read}", fix, kind)
