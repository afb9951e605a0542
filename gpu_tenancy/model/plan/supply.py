"""Flavors: their nodes, and the maximum supply of their pools."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, add, times
from gpu_tenancy.model.catalogue import PRODUCT_LABELS, allocatable
from gpu_tenancy.model.catalogue.clouds import ByQueue, rules_of
from gpu_tenancy.model.plan.cache_pods import NOTHING_TAKEN, TakenByCaches, taken
from gpu_tenancy.model.plan.gpus import gpu_resource, machine_of, product_of, sharing
from gpu_tenancy.model.plan.topology import Levels, levels_of
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.pools import Pool
from gpu_tenancy.model.spec.teams import Gang

GPU_TAINT_VALUE: Final = "present"
POOL_LABEL: Final = "gpu-tenancy.dev/pool"
"""Node label with the pool's name."""
CAPACITY_LABEL: Final = "gpu-tenancy.dev/capacity"
"""Node label with the way its machines are bought, such as `spot`."""


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint of a node, in Kubernetes' terms."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Provisioning:
    """How a queue requests nodes that are provisioned all at once for one workload: `model.catalogue.clouds.ByQueue`.

    Attributes:
        seconds: maximum lifetime of the nodes; None without a maximum.
    """

    provisioning_class: str
    node_selector: Mapping[str, str]
    seconds: int | None


@dataclass(frozen=True, slots=True)
class PoolSupply:
    """The supply of one pool.

    Attributes:
        node: allocatable resources of one node: CPU, memory, and its GPUs by resource name.
        labels: node labels that pods can select nodes by.
        capacity: the kind of capacity, such as `spot`.
        provisioning: how the queue requests such nodes; None if pending pods make the autoscaler add them.
        min_nodes: minimum number of nodes.
        max_nodes: number of nodes that can be guaranteed: `nodes.max` with an autoscaler, else `nodes.min`.
        levels: of the network of its nodes.
    """

    name: str
    flavor: str
    node: Amounts
    resource: str | None
    product: str | None
    labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    capacity: str
    provisioning: Provisioning | None
    min_nodes: int
    max_nodes: int
    levels: Levels = ()

    @property
    def node_labels(self) -> dict[str, str]:
        """All labels that the stack puts on a node of the pool."""
        return {**self.labels, POOL_LABEL: self.name, CAPACITY_LABEL: self.capacity}

    @property
    def gpus_per_node(self) -> int:
        """Allocatable GPUs of a node; MIG partitions or time slices if GPUs are shared."""
        return self.node.get(self.resource, 0) if self.resource else 0


@dataclass(frozen=True, slots=True)
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

    @property
    def capacity(self) -> dict[str, int]:
        """Maximum supply of its pools, by resource."""
        return add(*(times(pool.node, pool.max_nodes) for pool in self.pools))

    @property
    def node(self) -> dict[str, int]:
        """Maximum resources of a pod on one of its nodes, beside the caches that every node has."""
        resources = dict.fromkeys(resource for pool in self.pools for resource in pool.node)
        return {
            resource: max(pool.node.get(resource, 0) for pool in self.pools) - self.caches.every.get(resource, 0)
            for resource in resources
        }

    @property
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


def pool_supply(stack: Stack, name: str) -> PoolSupply | None:
    """The supply of a pool; None if its machine type or MIG profile is unknown (`model.checks.pools` reports it)."""
    pool = stack.pools.get(name) or stack.elsewhere[name]
    machine = machine_of(stack, pool)
    if pool.machine and machine is None:
        return None
    cut = sharing(stack, pool)
    if cut is None:
        return None
    cpu, memory = allocatable(machine) if machine else (0, 0)
    gpus = machine.gpus if machine else pool.gpus_per_node or 0
    whole = gpu_resource(stack, pool)
    product = product_of(stack, pool)
    product_label = PRODUCT_LABELS.get(whole.partition("/")[0])
    rule = rules_of(service_of(stack.cluster)).capacity[pool.capacity.kind]
    of_cloud = tuple(_taint(text) for text in rule.taints)
    of_stack = tuple(NodeTaint(taint.key, taint.value, taint.effect) for taint in pool.taints)
    of_gpu = (NodeTaint(whole, GPU_TAINT_VALUE, "NoSchedule"),) if gpus else ()
    return PoolSupply(
        name=name,
        flavor=pool.flavor or name,
        node={
            CPU: pool.cpu or cpu,
            MEMORY: pool.memory or memory,
            **({cut.resource: gpus * cut.replicas} if gpus else {}),
        },
        resource=cut.resource if gpus else None,
        product=product if gpus else None,
        labels={
            **({product_label: product} if gpus and product and product_label else {}),
            **(cut.labels if gpus else {}),
            **dict(sorted(pool.labels.items())),
        },
        taints=of_gpu + of_stack + of_cloud,
        capacity=pool.capacity.kind,
        provisioning=_provisioning(pool, rule.by_queue),
        min_nodes=pool.nodes.min,
        max_nodes=pool.nodes.max if stack.cluster.grows else pool.nodes.min,
        levels=levels_of(stack, pool),
    )


def _taint(text: str) -> NodeTaint:
    """A taint as `kubectl taint` writes it: `key=value:effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return NodeTaint(key, value, effect)


def _provisioning(pool: Pool, by: ByQueue | None) -> Provisioning | None:
    if by is None or pool.capacity.kind != "queued":
        return None
    longest = pool.capacity.max_run
    return Provisioning(by.provisioning_class, by.node_selector, None if longest is None else int(longest))


def gang_amounts(flavor: Flavor, gang: Gang) -> dict[str, int]:
    """The limit of a team's gangs in a flavor: GPUs, with CPU and memory as set, or the GPUs' share of the node."""
    given = {CPU: gang.cpu, MEMORY: gang.memory}
    return flavor.with_gpus(gang.effective_limit) | {
        resource: amount for resource, amount in given.items() if amount is not None
    }


def flavors(stack: Stack) -> dict[str, Flavor]:
    """The flavors of a stack by name: CPU flavors first, so that CPU workloads use them, then in the stack's order."""
    by_flavor: dict[str, list[PoolSupply]] = {}
    for name in (*stack.pools, *stack.elsewhere):
        supply = pool_supply(stack, name)
        if supply:
            by_flavor.setdefault(supply.flavor, []).append(supply)
    unsorted = [_flavor(name, tuple(pools), stack) for name, pools in by_flavor.items()]
    return {flavor.name: flavor for flavor in sorted(unsorted, key=lambda flavor: flavor.resource is not None)}


def _flavor(name: str, pools: tuple[PoolSupply, ...], stack: Stack) -> Flavor:
    common = [(k, v) for k, v in pools[0].labels.items() if all(pool.labels.get(k) == v for pool in pools)]
    taints = dict.fromkeys(taint for pool in pools for taint in pool.taints)
    resource = pools[0].resource
    bare = Flavor(name, resource, pools[0].product, dict(sorted(common)), tuple(taints), pools)
    most = sum(pool.max_nodes for pool in pools)
    with_caches = replace(bare, caches=taken(stack, name, gpus=resource is not None, always=bare.always, most=most))
    gangs = (gang_amounts(with_caches, team.gangs[name]) for team in stack.teams.values() if name in team.gangs)
    return replace(with_caches, gangs=add(*gangs))
