"""Checks of topologies: labels that nodes do not have, nodes that Kueue would wait for, and pods that never fit."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.catalogue.clouds import rules_of
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.pods import PodSize, parts, pod_size
from gpu_tenancy.model.plan.pools import PoolSupply
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.plan.topology import cloud_labels, placed_roles
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.topology import Level
from gpu_tenancy.model.spec.workloads import Server, Training

_GROUP: Final = 2
"""Number of pod sets that Kueue can group: `model.plan.topology.grouped`."""


def topology_problems(tree: Tree) -> Iterator[Problem]:
    """Topologies of pools that Kueue could not use, and workloads that ask for what their flavor does not have."""
    for flavor in tree.flavors.values():
        yield from _flavor(tree, flavor)
    for name, team in tree.stack.teams.items():
        for path, workload in workloads(name, team):
            if isinstance(workload, Server) or workload.scheduler == "kueue":
                yield from _workload(tree, path, workload)


def _flavor(tree: Tree, flavor: Flavor) -> Iterator[Problem]:
    for pool in flavor.pools:
        place = ("pools", pool.name, "topology")
        if pool.levels != flavor.levels:
            rule = f"differs from that of pool {flavor.pools[0].name} of the same flavor"
            yield Problem(place, rule, "set the same topology for both, or different flavors", about=(("pools",),))
        elif pool.levels and not tree.stack.dispatches:  # The stacks of workers have their own problems.
            yield from _pool(tree, flavor, pool)


def _pool(tree: Tree, flavor: Flavor, pool: PoolSupply) -> Iterator[Problem]:
    place, spec = ("pools", pool.name, "topology"), tree.stack.pools[pool.name]
    if spec.topology and spec.topology.source == "cloud" and cloud_labels(spec, tree.pools[pool.name].rules) is None:
        rules = rules_of(service_of(tree.stack.cluster))
        listed = ", ".join(f"{machine}*" for rule in rules.topologies for machine in rule.machines)
        rule = f"{rules.title} sets no known labels of blocks and racks on nodes of {spec.machine or 'this pool'}"
        known = f" (known: {listed})" if listed else ""
        fix = "set topology: {block: LABEL, rack: LABEL} if your nodes have such labels, or topology: node"
        yield Problem(place, rule + known, fix)
    if pool.min_nodes < pool.max_nodes and pool.provisioning is None:
        rule = (
            f"Kueue admits pods only to nodes that exist, so the autoscaler would never add the other"
            f" {pool.max_nodes - pool.min_nodes} nodes"
        )
        fix = f"set pools.{pool.name}.nodes to one number, use queued capacity, or remove topology"
        yield Problem(place, rule, fix, about=(("pools", pool.name, "nodes"),))
    if not flavor.node_labels:
        rule = f"Kueue requires a node label of flavor {flavor.name}, by which it finds the nodes"
        yield Problem(place, rule, f"add a label under pools.{pool.name}.labels")


def _workload(tree: Tree, path: Path, workload: Server | Training) -> Iterator[Problem]:
    level = workload.together.level if workload.together else None
    roles = parts(tree, str(path[1]), workload)
    placed = {name: pod_size(tree, str(path[1]), roles[name]) for name in placed_roles(roles)}
    sizes = {name: size for name, size in placed.items() if size}
    if workload.together is None or level is None or len(sizes) < len(placed):
        return
    if len(placed) > 1 and (problem := _ungrouped(path, workload, level, sizes)):
        yield problem
        return
    problems: dict[Problem, None] = {}  # Roles can have the same problem.
    for size in sizes.values():
        alike = sum(_least(workload, name) for name, other in sizes.items() if other == size)
        problems.update(dict.fromkeys(_role(tree, path, workload, (size, alike))))
    yield from problems


def _least(workload: Server | Training, role: str) -> int:
    """The number of pods of a role that Kueue places together: of a group, or with which an elastic job can run."""
    if isinstance(workload, Training) and workload.elastic:
        return workload.workers.min
    return workload.pods_by_role[role]


def _ungrouped(path: Path, job: Server | Training, level: Level, sizes: Mapping[str, PodSize]) -> Problem | None:
    """Roles for which Kueue cannot select one part of the network."""
    flavors = {size.flavor.name for size in sizes.values()}
    if len(sizes) == _GROUP and min(job.pods_by_role[name] for name in sizes) == 1 and len(flavors) == 1:
        return None
    rule = (
        f"Kueue places two roles of one flavor together, of which one has one pod, but the job has {', '.join(sizes)}"
    )
    return Problem((*path, "together"), rule, "remove together, or change roles", level, about=((*path, "roles"),))


def _role(tree: Tree, path: Path, workload: Server | Training, pods: tuple[PodSize, int]) -> Iterator[Problem]:
    """Problems of one role, by its size and the number of pods that run in one part of the network."""
    size, number = pods
    together = workload.together
    level = together.level if together else None
    if together is None or level is None:
        return
    flavor, place = size.flavor, (*path, "together")
    known = [item.level for item in flavor.levels if item.level]
    if level not in known:
        pool = flavor.pools[0].name
        has = f"has only {', '.join(known)}" if known else "has no topology"
        rule = f"nodes of flavor {flavor.name} have no level {level}: the flavor {has}"
        yield Problem(place, rule, f"set pools.{pool}.topology, or remove together", level, about=(("pools",),))
        return
    most = _most(tree, size, level)
    if together.required and most is not None and number > most:
        noun, key = ("group", "nodes") if isinstance(workload, Server) else ("job", "workers")
        rule = f"one {level} of flavor {flavor.name} has room for {most} of the {noun}'s {number} pods"
        fix = f"lower {key} to {most}, or set together: {{preferred: {level}}}"
        yield Problem(place, f"{rule}, so the {noun} would stay pending", fix, level, about=(("pools",),))


def _most(tree: Tree, size: PodSize, level: Level) -> int | None:
    """The most pods of this size in one part of the network; None if the number of its nodes is unknown."""
    on_node = min(size.flavor.node.get(key, 0) // amount for key, amount in size.amounts.items() if amount)
    if level == "node":
        return on_node
    domains = [tree.all_pools[pool.name].machine for pool in size.flavor.pools]
    nodes = [machine.domain for machine in domains if machine and machine.domain]
    return max(nodes) * on_node if level == "rack" and len(nodes) == len(domains) else None
