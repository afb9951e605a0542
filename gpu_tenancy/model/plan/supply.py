"""Flavors: their nodes, and the maximum supply of their pools."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, add, times
from gpu_tenancy.model.plan.cache_pods import NOTHING_TAKEN, TakenByCaches, taken
from gpu_tenancy.model.plan.pools import NodeTaint, PoolSupply
from gpu_tenancy.model.plan.topology import Levels
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.teams import Gang


@dataclass(frozen=True)
class Flavor:
    """Nodes of one ResourceFlavor.

    Attributes:
        resource: extended resource of its GPUs; None for CPU nodes.
        product: model of its GPUs, as in the node label.
        node_labels: labels that its pods select nodes by.
        taints: taints of its nodes.
        pools: its pools, in the stack's order.
        gangs: quota of Volcano's gangs, which is subtracted from what the queues share.
        caches: what caches of datasets take, which is subtracted too.
    """

    name: str
    resource: str | None
    product: str | None
    node_labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    pools: tuple[PoolSupply, ...]
    gangs: Amounts = field(default_factory=dict[str, int])
    caches: TakenByCaches = NOTHING_TAKEN

    @property
    def levels(self) -> Levels:
        """Levels of the network of its nodes, which all its pools have; empty without a topology."""
        return self.pools[0].levels

    @cached_property
    def capacity(self) -> dict[str, int]:
        """Maximum supply of its pools, by resource."""
        return add(*(times(pool.node, pool.max_nodes) for pool in self.pools))

    @cached_property
    def node(self) -> dict[str, int]:
        """Maximum resources of a pod on one of its nodes, beside the caches that every node has."""
        resources = dict.fromkeys(resource for pool in self.pools for resource in pool.node)
        return {
            resource: max(pool.node.get(resource, 0) for pool in self.pools) - self.caches.every.get(resource, 0)
            for resource in resources
        }

    @cached_property
    def per_gpu(self) -> dict[str, int]:
        """A GPU's share of the CPU and memory that caches leave of a node, the smallest of its pools.

        Empty for CPU nodes.
        """
        if self.resource is None:
            return {}
        return {
            resource: min(
                max(0, pool.node[resource] - self.caches.node.get(resource, 0)) // pool.gpus_per_node
                for pool in self.pools
                if pool.gpus_per_node
            )
            for resource in (CPU, MEMORY)
        }

    @property
    def always(self) -> int:
        """Number of nodes that its pools always have."""
        return sum(pool.min_nodes for pool in self.pools)

    def with_gpus(self, count: int) -> dict[str, int]:
        """A number of GPUs, with their share of CPU and memory."""
        return {**times(self.per_gpu, count), **({self.resource: count} if self.resource else {})}


def gang_amounts(flavor: Flavor, gang: Gang) -> dict[str, int]:
    """The limit of a team's gangs in a flavor: GPUs, with CPU and memory as set, or the GPUs' share of the node."""
    given = {CPU: gang.cpu, MEMORY: gang.memory}
    return flavor.with_gpus(gang.effective_limit) | {
        resource: amount for resource, amount in given.items() if amount is not None
    }


def flavors(stack: Stack, supplies: Iterable[PoolSupply]) -> dict[str, Flavor]:
    """The flavors of a stack by name: CPU flavors first, so that CPU workloads use them, then in the stack's order.

    Args:
        stack: with the gangs and caches that take a part of them.
        supplies: of its pools and those of its workers.
    """
    by_flavor: dict[str, list[PoolSupply]] = {}
    for supply in supplies:
        by_flavor.setdefault(supply.flavor, []).append(supply)
    unsorted = [_flavor(name, tuple(pools), stack) for name, pools in by_flavor.items()]
    return {flavor.name: flavor for flavor in sorted(unsorted, key=lambda flavor: flavor.resource is not None)}


def _flavor(name: str, pools: tuple[PoolSupply, ...], stack: Stack) -> Flavor:
    common = [(k, v) for k, v in pools[0].labels.items() if all(pool.labels.get(k) == v for pool in pools)]
    taints = dict.fromkeys(taint for pool in pools for taint in pool.taints)
    resource = pools[0].resource
    bare = Flavor(name, resource, pools[0].product, dict(sorted(common)), tuple(taints), pools)
    most = sum(pool.max_nodes for pool in pools)
    of_caches = taken(stack.datasets, stack.teams, name, gpus=resource is not None, always=bare.always, most=most)
    with_caches = replace(bare, caches=of_caches)
    gangs = (gang_amounts(with_caches, team.gangs[name]) for team in stack.teams.values() if name in team.gangs)
    return replace(with_caches, gangs=add(*gangs))
