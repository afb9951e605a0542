"""What servers lose when a cloud takes its spot nodes back."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import dotted
from gpu_tenancy.base.quantity import format_duration, format_rate
from gpu_tenancy.model.catalogue.clouds import rules_of
from gpu_tenancy.model.plan.engines import DEREGISTERED_AFTER
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.workloads import Server

KARPENTER_DRAINS: Final = 90
"""Seconds that Karpenter waits for the pods of a spot node (`terminationGracePeriod`), of two minutes of notice."""


def interruption_warnings(tree: Tree, team: str, name: str, server: Server, flavor: Flavor) -> Iterator[str]:
    """Requests that a spot node does not complete, and what the base of a server carries without its burst."""
    place = dotted(tree.stack.written(("teams", team, "serving", name)))
    within = _within(tree, flavor)
    rest = within - DEREGISTERED_AFTER if within is not None else 0
    if within is not None and server.drain is not None and server.drain > rest:
        title = rules_of(service_of(tree.stack.cluster)).title
        left = f"{within} s - {DEREGISTERED_AFTER} s until no proxy sends requests = {rest} s, but drain is"
        fix = f"set drain to at most {rest}s, or expect" if rest > 0 else "expect"
        yield (
            f"{place}: when {title} takes a node of flavor {flavor.name} back, requests in progress have {left}"
            f" {format_duration(server.drain)}; {fix} that longer ones fail"
        )
    if base := tree.stack.teams[team].serving.get(server.burst_of):
        yield f"{place}: without flavor {flavor.name}, {_left(base, server.replicas.max)}"


def _left(base: Server, burst: int) -> str:
    has = base.replicas.max
    remain = f"{has} of {has + burst} replicas remain"
    if base.load is None:
        return f"{remain}; set load of the server to see what they carry"
    carried = min(has * base.load.per_replica, base.load.rate)
    return f"{remain}, which carry {format_rate(carried)} of the load of {format_rate(base.load.rate)}"


def _within(tree: Tree, flavor: Flavor) -> int | None:
    """Seconds from the notice until a pod has ended; None without spot nodes, or if it is unknown."""
    rule = rules_of(service_of(tree.stack.cluster)).capacity.get("spot")
    if rule is None or rule.notice is None or all(pool.capacity != "spot" for pool in flavor.pools):
        return None
    karpenter = getattr(tree.stack.cluster, "autoscaler", "") == "karpenter"
    return min(rule.notice.pods, KARPENTER_DRAINS) if karpenter else rule.notice.pods
