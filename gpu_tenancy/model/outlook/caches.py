"""Caches of datasets: their size, where they are, and what they take from the nodes."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.plan.cache_pods import accelerated, pod_amounts, replicas_of
from gpu_tenancy.model.plan.shares import Tree


@dataclass(frozen=True, slots=True)
class CacheOutlook:
    """The cache of a dataset.

    Attributes:
        size: of the whole cache in bytes.
        medium: `memory` or `ssd`.
        flavor: whose nodes have it.
        nodes: number of nodes that have a part of it.
        cpu, memory: what its pods take from the nodes of the flavor, in millicores and bytes.
        of_cpu, of_memory: that as a share of the maximum supply of the flavor.
        mount_cpu, mount_memory: what each other node that mounts the dataset gives.
        warm: whether it is filled once it is created.
    """

    dataset: str
    runtime: str
    size: int
    medium: str
    flavor: str
    nodes: int
    cpu: int
    memory: int
    of_cpu: float
    of_memory: float
    mount_cpu: int
    mount_memory: int
    warm: bool


def caches_of_stack(tree: Tree) -> Iterator[CacheOutlook]:
    """The caches of a stack, in its order."""
    for name, _, acceleration in accelerated(tree.stack.datasets):
        flavor = tree.flavors[acceleration.flavor]
        taken, mount = flavor.caches.by_dataset[name], pod_amounts(acceleration, "fuse")
        shares = {
            resource: taken[resource] / flavor.capacity[resource] if flavor.capacity[resource] else 0.0
            for resource in (CPU, MEMORY)
        }
        yield CacheOutlook(
            dataset=name,
            runtime=acceleration.runtime,
            size=acceleration.cache,
            medium=acceleration.medium,
            flavor=flavor.name,
            nodes=replicas_of(acceleration, flavor.always),
            cpu=taken[CPU],
            memory=taken[MEMORY],
            of_cpu=shares[CPU],
            of_memory=shares[MEMORY],
            mount_cpu=mount[CPU],
            mount_memory=mount[MEMORY],
            warm=acceleration.warm,
        )
