"""Flavors: which nodes they are, and the most that their pools can have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from model.catalogue import PRODUCT_LABELS, allocatable, find_gpu, find_machine
from model.quantity import CPU, MEMORY, Amounts, add, times
from model.spec import Stack
from model.spec.pools import Pool
from model.spec.teams import Gang

GPU_TAINT_VALUE: Final = "present"
POOL_LABEL: Final = "gpu-tenancy.dev/pool"
"""Node label with the pool's name."""


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint of a node, in Kubernetes' terms."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class PoolSupply:
    """What one pool brings.

    Attributes:
        node: what pods can have of one node: cpu, memory, and its GPUs under the name they are asked for.
        least: nodes that are always there.
        most: nodes that may be promised: `nodes.max` with an autoscaler, else `nodes.min`.
    """

    name: str
    flavor: str
    node: Amounts
    resource: str | None
    product: str | None
    labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    least: int
    most: int

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node as pods see them: partitions or turns where a GPU is shared."""
        return self.node.get(self.resource, 0) if self.resource else 0


@dataclass(frozen=True, slots=True)
class Flavor:
    """Nodes that a queue sees as one kind.

    Attributes:
        resource: what a GPU of it is asked for by; None for CPU nodes.
        product: model of its GPUs, as the node label says.
        node_labels: labels by which its pods find its nodes.
        taints: what keeps other pods off its nodes.
        pools: its pools, in the stack's order.
        gangs: what Volcano promises of it, taken off before the queues share the rest.
    """

    name: str
    resource: str | None
    product: str | None
    node_labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    pools: tuple[PoolSupply, ...]
    gangs: Amounts = field(default_factory=dict[str, int])

    @property
    def most(self) -> dict[str, int]:
        """The most of each resource that its pools can have."""
        return add(*(times(pool.node, pool.most) for pool in self.pools))

    @property
    def node(self) -> dict[str, int]:
        """What a pod can have at most on any one of its nodes."""
        resources = dict.fromkeys(resource for pool in self.pools for resource in pool.node)
        return {resource: max(pool.node.get(resource, 0) for pool in self.pools) for resource in resources}

    @property
    def per_gpu(self) -> dict[str, int]:
        """Cpu and memory that one GPU brings: a node's part, the smallest of its pools. Nothing for CPU nodes."""
        if self.resource is None:
            return {}
        return {
            resource: min(pool.node[resource] // pool.gpus_per_node for pool in self.pools if pool.gpus_per_node)
            for resource in (CPU, MEMORY)
        }

    def with_gpus(self, count: int) -> dict[str, int]:
        """That many GPUs with the cpu and memory that they bring."""
        return {**times(self.per_gpu, count), **({self.resource: count} if self.resource else {})}


def pool_supply(name: str, pool: Pool, *, autoscaler: bool) -> PoolSupply | None:
    """What a pool brings; None where its machine or partitions are not known (`model.checks.pools` says so)."""
    machine = find_machine(pool.machine) if pool.machine else None
    if pool.machine and machine is None:
        return None
    cpu, memory = allocatable(machine) if machine else (0, 0)
    gpus = machine.gpus if machine else pool.gpus_per_node or 0
    resource, replicas = sharing(pool, machine.gpu if machine else pool.gpu)
    if not replicas:
        return None
    model = find_gpu((machine.gpu if machine else pool.gpu) or "")
    product = _product(pool, model.product if model else pool.gpu)
    node = {
        CPU: pool.cpu or cpu,
        MEMORY: pool.memory or memory,
        **({resource: gpus * replicas} if gpus else {}),
    }
    product_label = PRODUCT_LABELS.get(pool.resource.partition("/")[0])
    own_taints = tuple(NodeTaint(taint.key, taint.value, taint.effect) for taint in pool.taints)
    gpu_taint = (NodeTaint(pool.resource, GPU_TAINT_VALUE, "NoSchedule"),) if gpus else ()
    return PoolSupply(
        name=name,
        flavor=pool.flavor or name,
        node=node,
        resource=resource if gpus else None,
        product=product if gpus else None,
        labels={
            **({product_label: product} if gpus and product and product_label else {}),
            **dict(sorted(pool.labels.items())),
        },
        taints=gpu_taint + own_taints,
        least=pool.nodes.min,
        most=pool.nodes.max if autoscaler else pool.nodes.min,
    )


def _product(pool: Pool, product: str | None) -> str | None:
    """The model as the node label says it: GPU feature discovery marks GPUs whose pods take turns.

    https://github.com/NVIDIA/k8s-device-plugin#with-cuda-time-slicing
    """
    turns = pool.sharing is not None and pool.sharing.time_slicing is not None
    return f"{product}-SHARED" if product and turns and pool.resource.startswith("nvidia.com/") else product


def sharing(pool: Pool, gpu: str | None) -> tuple[str, int]:
    """The resource name that pods ask for, and how many of it one GPU gives; 0 where nobody knows."""
    if pool.sharing is None:
        return pool.resource, 1
    if pool.sharing.mig is None:
        return pool.resource, pool.sharing.time_slicing or 1
    mig = pool.sharing.mig
    known = find_gpu(gpu or "")
    partitions = mig.partitions or (known.mig.get(mig.profile, 0) if known else 0)
    return f"{pool.resource.partition('/')[0]}/mig-{mig.profile}", partitions


def gang_amounts(flavor: Flavor, gang: Gang) -> dict[str, int]:
    """What Volcano may run of a flavor for a team: GPUs, and the cpu and memory said or brought by them."""
    said = {CPU: gang.cpu, MEMORY: gang.memory}
    return flavor.with_gpus(gang.most) | {resource: amount for resource, amount in said.items() if amount is not None}


def flavors(stack: Stack) -> dict[str, Flavor]:
    """The flavors of a stack by name: CPU nodes first, so that work without GPUs goes there, then in its order."""
    by_flavor: dict[str, list[PoolSupply]] = {}
    for name, pool in stack.pools.items():
        supply = pool_supply(name, pool, autoscaler=stack.cluster.autoscaler)
        if supply:
            by_flavor.setdefault(supply.flavor, []).append(supply)
    found = [_flavor(name, tuple(pools), stack) for name, pools in by_flavor.items()]
    return {flavor.name: flavor for flavor in sorted(found, key=lambda flavor: flavor.resource is not None)}


def _flavor(name: str, pools: tuple[PoolSupply, ...], stack: Stack) -> Flavor:
    common = [(k, v) for k, v in pools[0].labels.items() if all(pool.labels.get(k) == v for pool in pools)]
    taints = dict.fromkeys(taint for pool in pools for taint in pool.taints)
    bare = Flavor(name, pools[0].resource, pools[0].product, dict(sorted(common)), tuple(taints), pools)
    gangs = add(*(gang_amounts(bare, team.gangs[name]) for team in stack.teams.values() if name in team.gangs))
    return Flavor(bare.name, bare.resource, bare.product, bare.node_labels, bare.taints, pools, gangs)
