"""Checks of topologies: labels that nodes do not have, nodes that Kueue would wait for, and jobs that never fit."""

from collections.abc import Iterator

from gpu_tenancy.model.catalogue.clouds import rules_of
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.gpus import machine_of
from gpu_tenancy.model.plan.pods import PodSize, pod_size, pods_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor, PoolSupply
from gpu_tenancy.model.plan.topology import cloud_labels
from gpu_tenancy.model.problems import Path, Problem
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.topology import Level
from gpu_tenancy.model.spec.workloads import Training


def topology_problems(tree: Tree) -> Iterator[Problem]:
    """Topologies of pools that Kueue could not use, and jobs that ask for what their flavor does not have."""
    for flavor in tree.flavors.values():
        yield from _flavor(tree, flavor)
    for name, team in tree.stack.teams.items():
        for path, workload in workloads(name, team):
            if isinstance(workload, Training) and workload.scheduler == "kueue":
                yield from _job(tree, path, workload)


def _flavor(tree: Tree, flavor: Flavor) -> Iterator[Problem]:
    for pool in flavor.pools:
        place = ("pools", pool.name, "topology")
        if pool.levels != flavor.levels:
            rule = f"differs from that of pool {flavor.pools[0].name} of the same flavor"
            yield Problem(place, rule, "set the same topology for both, or different flavors", about=(("pools",),))
        elif pool.levels:
            yield from _pool(tree, flavor, pool)


def _pool(tree: Tree, flavor: Flavor, pool: PoolSupply) -> Iterator[Problem]:
    place, spec = ("pools", pool.name, "topology"), tree.stack.pools[pool.name]
    if spec.topology and spec.topology.source == "cloud" and cloud_labels(tree.stack, spec) is None:
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


def _job(tree: Tree, path: Path, job: Training) -> Iterator[Problem]:
    level = job.together.level if job.together else None
    size = pod_size(tree, str(path[1]), job)
    if level is None or size is None:
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
    if job.together and job.together.required and most is not None and pods_of(job) > most:
        rule = f"one {level} of flavor {flavor.name} has room for {most} of the job's {pods_of(job)} pods"
        fix = f"lower workers to {most}, or set together: {{preferred: {level}}}"
        yield Problem(place, f"{rule}, so the job would stay pending", fix, level, about=(("pools",),))


def _most(tree: Tree, size: PodSize, level: Level) -> int | None:
    """The most pods of this size in one part of the network; None if the number of its nodes is unknown."""
    on_node = min(size.flavor.node.get(key, 0) // amount for key, amount in size.amounts.items() if amount)
    if level == "node":
        return on_node
    domains = [machine_of(tree.stack, tree.stack.pools[pool.name]) for pool in size.flavor.pools]
    nodes = [machine.domain for machine in domains if machine and machine.domain]
    return max(nodes) * on_node if level == "rack" and len(nodes) == len(domains) else None
