"""Checks of servers against the load that they declare."""

from collections.abc import Iterator

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.model.plan.pods import PodSize, limits, pod_size
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.sizing import Size, nodes_of
from gpu_tenancy.model.spec.workloads import Load, Server


def load_problems(tree: Tree) -> Iterator[Problem]:
    """Servers that cannot have the replicas for their load, or that scale too late for its latency."""
    for team, spec in tree.stack.teams.items():
        for name, server in spec.serving.items():
            pod = pod_size(tree, team, server)
            if server.load and pod:
                path = ("teams", team, "serving", name)
                yield from _replicas(tree, path, server, size_of(server, server.load, pod), pod.flavor)
                yield from _latency(path, server, server.load)


def size_of(server: Server, load: Load, pod: PodSize) -> Size:
    """The size of a server of a stack from its load."""
    nodes = nodes_of(pod.flavor, pod.amounts)
    return Size(load.rate, load.per_replica, server.surge or 0, nodes, headroom=load.headroom == "node")


def _replicas(tree: Tree, path: tuple[str, ...], server: Server, size: Size, flavor: Flavor) -> Iterator[Problem]:
    has, further = server.replicas.max, server.burst.max if server.burst else 0
    if has + further >= size.replicas:
        return
    fix = f"raise it to {size.replicas - further}"
    owner = tree.queue_of(path[1])
    if flavor.resource and server.gpus:
        gpus = (size.peak - further) * server.nodes * server.gpus
        limit = limits(tree, owner, flavor, gang=False).get(flavor.resource, 0)
        if gpus > limit:
            fix += f", and teams.{owner}.gpus.{flavor.name}.limit from {limit} to {gpus}"
    if further:
        fix += f", or burst.max from {further} to {size.replicas - has}"
    if has + further >= size.needed:
        fix += ", or set load.headroom: none"
    rule = f"{f'and {further} of its burst ' if further else ''}cannot carry the load: {size.arithmetic()}"
    yield Problem((*path, "replicas", "max"), rule, fix, str(has), (path, ("pools",)))


def _latency(path: Path, server: Server, load: Load) -> Iterator[Problem]:
    target = server.scale_on.latency_p99 if server.scale_on else None
    if target is not None and load.latency is not None and target > load.latency:
        most = format_duration(load.latency)
        rule = f"is above the latency of the load, {most}: the autoscaler would add replicas too late"
        yield Problem((*path, "scaleOn", "latencyP99"), rule, f"set {most} or less", format_duration(target), (path,))
