"""Checks of pools and flavors: machine types, MIG profiles, zones, placement, and purchase options."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Final

from gpu_tenancy.base.problems import Path, Problem, unknown
from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.model.catalogue import Machine, cloud_tables, find_gpu, find_machine, machines
from gpu_tenancy.model.catalogue.clouds import CapacityRule, CloudRules
from gpu_tenancy.model.catalogue.machines import CapacityType, PurchaseRow
from gpu_tenancy.model.catalogue.pods import fabrics
from gpu_tenancy.model.catalogue.rows import Fact
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.pools import PoolSupply, ResolvedPool
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.cluster import service_of


def pool_problems(tree: Tree) -> Iterator[Problem]:
    """Problems of a stack's pools, and of the flavors that they form."""
    for name in (name for name, own in tree.stack.machines.items() if own.cpu is None and find_machine(name) is None):
        yield Problem(("machines", name), "is not in the catalogue", "set cpu and memory")
    for pool in tree.pools.values():
        yield from _unknown_parts(pool, tree.stack.machines)
        yield from _taints(pool)
    for flavor in tree.flavors.values():
        first, *others = flavor.pools
        for pool in others:
            if (pool.resource, pool.product) != (first.resource, first.product):
                rule = f"has {_kind(pool)}, but pool {first.name} of the same flavor has {_kind(first)}"
                place, fix = ("pools", pool.name, "flavor"), "set different flavors for the pools"
                yield Problem(place, rule, fix, flavor.name)
        yield from _fits_kueue(flavor)
    yield from _distinct(tree.flavors)


def machines_command(service: str) -> str:
    """The command that lists the machine types of a cloud, or of all clouds."""
    return "tenancy catalogue machines" + (f" --cloud {service}" if service in cloud_tables() else "")


def _unknown_parts(resolved: ResolvedPool, own: Iterable[str]) -> Iterator[Problem]:
    name, pool, gpu = resolved.name, resolved.pool, resolved.gpu
    place = ("pools", name, "sharing")
    if pool.machine and pool.machine not in own and resolved.machine is None:
        service = service_of(resolved.cluster)
        of_cloud = (known for of, known in machines() if of == service or service not in cloud_tables())
        rule, fix = unknown("machine type", pool.machine, [*own, *of_cloud], machines_command(service))
        yield Problem(("pools", name, "machine"), rule, f"{fix}, or add it under machines")
    elif pool.sharing and gpu is None:
        yield Problem(place, "is set, but the pool has no GPUs", "remove sharing")
    elif pool.sharing and pool.sharing.mig and gpu and resolved.cut is None:
        known, profile = find_gpu(gpu), pool.sharing.mig.profile
        rule = f"has an unknown number of partitions: the catalogue has no MIG profiles of {gpu}"
        problem = Problem((*place, "mig", "profile"), rule, "set mig.partitions", profile)
        if known and known.mig:
            problem = Problem((*place, "mig", "profile"), *unknown(f"{gpu} MIG profile", profile, known.mig))
        yield problem


def _kind(pool: PoolSupply) -> str:
    return f"{pool.product} ({pool.resource})" if pool.resource else "no GPUs"


def _fits_kueue(flavor: Flavor) -> Iterator[Problem]:
    """Limits of a ResourceFlavor: 8 labels and 8 taints, and each taint key and effect only once."""
    place, labels, taints = ("pools", flavor.pools[0].name), len(flavor.node_labels), len(flavor.taints)
    if labels > _MOST:
        rule = f"has {labels} node labels (with the GPU model's), but Kueue supports {_MOST}"
        yield Problem((*place, "labels"), rule, "remove labels that no workload selects nodes by")
    if taints > _MOST:
        rule = f"has {taints} taints, but Kueue supports {_MOST}"
        yield Problem((*place, "taints"), rule, f"remove {taints - _MOST} or more")
    # Twice in one pool is reported there.
    of_pools = ({(taint.key, taint.effect): taint for taint in pool.taints}.values() for pool in flavor.pools)
    distinct = {taint for taints in of_pools for taint in taints}
    for (key, effect), count in Counter((taint.key, taint.effect) for taint in distinct).items():
        if count > 1:
            rule = f"flavor {flavor.name} has taint {key}:{effect} with {count} values, but Kueue supports one"
            yield Problem((*place, "taints"), rule, "set the same value in all pools of the flavor")


def _taints(resolved: ResolvedPool) -> Iterator[Problem]:
    """Taints that the pool's nodes have already: clouds refuse a pool that names one twice."""
    supply, seen = resolved.bare.supply, set[tuple[str, str]]()
    added = {taint.key: taint for taint in supply.taints} if supply else {}
    for index, taint in enumerate(resolved.pool.taints):
        place, shown = ("pools", resolved.name, "taints", index), f"{taint.key}={taint.value}:{taint.effect}"
        if has := added.get(taint.key):
            rule = f"repeats a taint that nodes of this pool have already ({has.key}={has.value}:{has.effect})"
            yield Problem(place, rule, "remove it", shown)
        elif (taint.key, taint.effect) in seen:
            yield Problem(place, "repeats a key and effect, which a node can have only once", "keep one value", shown)
        seen.add((taint.key, taint.effect))


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
    """Zones of a pool without its machine type, zones that it must name, and zones that its fabric does not connect."""
    pool, place = resolved.pool, ("pools", resolved.name, "zones")
    zones = resolved.cluster.node_zones(pool.zones)
    # With these, other checks demand one zone.
    in_one = pool.compact or rules.capacity[pool.capacity.kind].zones == 1 or (machine.domain and zones)
    if resolved.fabric in rules.fabrics and rules.fabric_zone and len(zones) != 1 and not in_one:
        default = f"default to {', '.join(zones)}" if zones else f"are not set, so {rules.title} can use several"
        rule = f"{'are several' if pool.zones else default}, but {resolved.fabric} connects only nodes of one zone"
        fix = "set one zone, or compact: true" if 0 in rules.compact_zones else "set one zone"
        yield Problem(place, rule, fix, ", ".join(pool.zones) or None)
    elif machine.gpus and rules.gpu_zones and not zones:
        rule = (
            f"are not set, so {rules.title} creates the pool in zones that it selects itself, and the creation fails if"
            f" one of them does not have {machine.name}"
        )
        yield Problem(place, rule, _fix(resolved, machine))
    purchase, known = machine.purchase, find_machine(machine.name)
    # A stack's own zones have none.
    fact: Fact | None = cloud_tables()[known.cloud].zones if known and known.zones is machine.zones else None
    if fact and isinstance(purchase, PurchaseRow) and purchase.zones:
        fact = purchase
    read = f" (catalogue of {fact.date})" if fact else ""
    for zone in zones:
        if machine.zones is not None and zone not in machine.zones and not resolved.cluster.zone_rule(zone):
            at = (*place, pool.zones.index(zone)) if pool.zones else place
            yield Problem(at, f"does not have {machine.name}{read}", _fix(resolved, machine), zone)


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
    name, pool, policy = resolved.name, resolved.pool, resolved.pool.placement_policy
    place, zones = ("pools", name, "compact"), resolved.cluster.node_zones(pool.zones)
    # Dense reservations, which NVLink domains require, accept any policy:
    # https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/3347.
    of_reservation = rules.reserved_policy and pool.capacity.kind == "reserved" and machine.domain is None
    if pool.compact and pool.capacity.kind not in rules.compact:
        rule = f"{rules.title} does not support compact placement with capacity {pool.capacity.kind}"
        yield Problem(place, rule, f"remove it, or set capacity to one of: {', '.join(rules.compact)}")
    elif pool.compact and rules.compact_zones and len(zones) not in rules.compact_zones:
        rule = f"{rules.title} supports compact placement only in one zone"
        yield Problem(place, rule, f"set one zone under pools.{name}.zones", about=(("pools", name, "zones"),))
    elif pool.compact and of_reservation and policy is None:
        rule = (
            f"{rules.title} uses a reservation only for machines with the reservation's own placement policy, so the"
            " pool would get no machines"
        )
        fix = f"set pools.{name}.placementPolicy to the policy that the reservation was created with, or remove compact"
        yield Problem(place, rule, fix)
    if policy is not None:
        yield from _policy(resolved, machine, rules, policy)
    if machine.domain:  # Its machines are in one rack, and a pool is one domain.
        shape = f"({machine.topology})"
        if len(zones) > 1:
            rule = f"must be one zone: {machine.name} forms NVLink domains {shape}, each in one zone"
            yield Problem(("pools", name, "zones"), rule, "set one zone")
        if pool.nodes.max > machine.domain:
            rule = f"is more than the {machine.domain} machines of one NVLink domain {shape} of {machine.name}"
            fix = f"set {machine.domain} or less, and add a pool with the same flavor for each further domain"
            yield Problem(("pools", name, "nodes", "max"), rule, fix, str(pool.nodes.max))


def _policy(resolved: ResolvedPool, machine: Machine, rules: CloudRules, policy: str) -> Iterator[Problem]:
    place = ("pools", resolved.name, "placementPolicy")
    if rules.placement_policy is None:
        yield Problem(place, f"is not supported on {rules.title}", "remove it", policy)
    elif not rules.placement_policy.fits(policy):
        yield Problem(place, "is not a placement policy", f"set {rules.placement_policy.write}", policy)
    elif not resolved.pool.compact and machine.domain is None:
        yield Problem(place, "has no effect without compact placement", "set compact: true, or remove it", policy)


def capacity_problems(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    """Capacity types that are unsupported, incomplete or unavailable for the machine type."""
    name, pool, kind, made = resolved.name, resolved.pool, resolved.pool.capacity.kind, resolved.cluster.NODES_MADE
    title, rule, place = rules.title, rules.capacity[kind], ("pools", name, "capacity")
    if rule.refused:
        yield Problem(place, f"is not available: {rule.refused}", rule.instead or "use another kind", kind)
        return
    if made and resolved.machine:
        yield from _bought(resolved.machine, kind, rules, place)
    if kind in {"reserved", "capacity-block"}:
        reservation = getattr(pool.capacity, "reservation", "")
        if rule.reservation and not rule.reservation.fits(reservation):
            fix = f"set {rule.reservation.write}"
            yield Problem((*place, "reservation"), f"is not a reservation of {title}", fix, reservation)
        elif lacking := resolved.cluster.reservation_rule(reservation):
            yield Problem((*place, "reservation"), *lacking, reservation)
    if rule.zones is not None and len(pool.zones) != rule.zones and made:
        broken = f"needs exactly {rule.zones} zone, but the pool has {len(pool.zones) or 'no'} zones"
        fix, about = f"set the reservation's zone under pools.{name}.zones", (("pools", name, "zones"),)
        yield Problem(place, broken, fix, kind, about=about)
    if rule.min is not None and pool.nodes.min != rule.min:
        broken = f"must be {rule.min} with capacity {kind}, which provisions nodes only on demand"
        yield Problem(("pools", name, "nodes", "min"), broken, f"set {rule.min}", str(pool.nodes.min))
    yield from _lifetime(resolved, title, rule)


def _lifetime(resolved: ResolvedPool, title: str, rule: CapacityRule) -> Iterator[Problem]:
    """The maximum lifetime of nodes, and whether an autoscaler provisions them."""
    kind, place, queued = resolved.pool.capacity.kind, ("pools", resolved.name, "capacity"), rule.by_queue
    longest = getattr(resolved.pool.capacity, "max_run", None)
    if queued and (lacking := resolved.cluster.queued_rule()):
        yield Problem(place, *lacking, kind)
    if longest is None:
        if queued and queued.lifetime:
            yield Problem(place, f"has no maxRun, which {title} requires", "set {kind: queued, maxRun: 7d}", kind)
        return
    shown = format_duration(longest)
    if queued and queued.lifetime is False:
        broken = f"is not supported on {title}, where a node stays until it is empty"
        yield Problem((*place, "maxRun"), broken, "remove it", shown)
    if rule.shortest is not None and longest < rule.shortest:
        least = format_duration(rule.shortest)
        broken = f"is less than the minimum lifetime of {kind} nodes on {title} ({least})"
        yield Problem((*place, "maxRun"), broken, f"set {least} or more", shown)
    if rule.longest is not None and longest > rule.longest:
        most = format_duration(rule.longest)
        broken = f"exceeds the maximum lifetime of {kind} nodes on {title} ({most})"
        yield Problem((*place, "maxRun"), broken, f"set {most} or less", shown)


def empty_pool_problems(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    """A pool from zero with node resources that no autoscaler knows, so that it adds no node, or too many of them."""
    supply, way_out, shared = resolved.supply, resolved.cluster.autoscaler_hint, resolved.sharing_rule
    if rules.infers is None or way_out is None or supply is None or supply.min_nodes or not supply.max_nodes:
        return
    if shared and not shared.grows:
        return  # Reported by another check.
    place, fix = ("pools", resolved.name, "nodes", "min"), f"set 1 or more{way_out}"
    row, autoscaler = fabrics().get(resolved.fabric or ""), f"the autoscaler of {rules.title}"
    needed = (supply.resource, row.resource if row else None)
    for resource in dict.fromkeys(name for name in needed if name and name not in rules.infers):
        rule = f"is not possible: {autoscaler} does not know that an empty pool has {resource}, and adds no node"
        yield Problem(place, rule, fix, "0")
    if shared and shared.by == "operator" and supply.resource in rules.infers:
        rule = (
            f"is not possible with {supply.gpus_per_node} parts of {resolved.gpus} GPUs: {autoscaler} counts whole GPUs"
            " of an empty pool, and adds too many nodes"
        )
        yield Problem(place, rule, fix, "0")


def _bought(machine: Machine, kind: CapacityType, rules: CloudRules, place: Path) -> Iterator[Problem]:
    """A machine type that is not sold with this capacity type; unknown options are not refused."""
    purchase = machine.purchase
    if purchase and (rules.capacity[kind].bought_as or kind) in purchase.lacks:
        read = f" (catalogue of {purchase.date})" if isinstance(purchase, PurchaseRow) else ""
        ways = ", ".join(purchase.has) or "unknown"
        fix = f"set capacity to one that it has ({ways}); if that has changed, set machines.{machine.name}.capacity"
        yield Problem(place, f"is not available for {machine.name} on {rules.title}{read}", fix, kind)
