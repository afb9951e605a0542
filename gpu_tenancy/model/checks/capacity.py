"""Checks of how the machines of pools are bought: what the cloud and the machine type have, and what each way needs."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Problem
from gpu_tenancy.model.catalogue.clouds import CapacityRule, CloudRules
from gpu_tenancy.model.catalogue.fabrics import fabrics
from gpu_tenancy.model.catalogue.purchases import PurchaseRow
from gpu_tenancy.model.plan.pools import ResolvedPool

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
