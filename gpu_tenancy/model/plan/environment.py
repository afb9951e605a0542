"""An environment: a stack whose pools, flavors and operators are resolved, and the Pulumi stacks of its parts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, add, times
from gpu_tenancy.model.plan.object_storage import NOTHING_TAKEN, TakenByCaches, taken
from gpu_tenancy.model.plan.pools import Levels, NodeTaint, PoolSupply, ResolvedPool, resolved
from gpu_tenancy.model.resolve import ResolvedStack, resolve
from gpu_tenancy.model.spec import NAMESPACE, Stack
from gpu_tenancy.model.spec.cluster import ExistingCluster
from gpu_tenancy.model.spec.operators import Install
from gpu_tenancy.model.spec.teams import Gang


@dataclass(frozen=True)
class Flavor:
    """Nodes of one ResourceFlavor."""

    name: str
    resource: str | None  # extended resource of its GPUs; None for CPU nodes
    product: str | None  # model of its GPUs, as in the node label
    node_labels: Mapping[str, str]  # labels that its pods select nodes by
    taints: tuple[NodeTaint, ...]
    pools: tuple[PoolSupply, ...]
    gangs: Amounts = field(default_factory=dict[str, int])  # quota of Volcano's gangs, subtracted from the supply
    caches: TakenByCaches = NOTHING_TAKEN  # amounts of datasets' caches, which are subtracted too

    @property
    def levels(self) -> Levels:
        """Levels of the network that all its pools have; empty without a topology."""
        return self.pools[0].levels

    @cached_property
    def capacity(self) -> dict[str, int]:
        """Maximum supply of its pools, by resource."""
        return add(*(times(pool.node, pool.max_nodes) for pool in self.pools))

    @cached_property
    def node(self) -> dict[str, int]:
        """Maximum resources of a pod on one of its nodes, beside the caches that every node has."""
        return {
            resource: max(pool.node.get(resource, 0) for pool in self.pools) - self.caches.every.get(resource, 0)
            for resource in dict.fromkeys(resource for pool in self.pools for resource in pool.node)
        }

    @cached_property
    def per_gpu(self) -> dict[str, int]:
        """A GPU's share of the CPU and memory beside caches, the least of its pools; empty without GPUs."""
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

    def follows(self, resource: str, amount: int) -> dict[str, int]:
        """The memory of an amount of CPU on nodes without GPUs, or the CPU of memory, by the pool with the least."""
        other = MEMORY if resource == CPU else CPU
        nodes = [{r: max(0, pool.node[r] - self.caches.node.get(r, 0)) for r in (CPU, MEMORY)} for pool in self.pools]
        return {other: min((amount * node[other] // node[resource] for node in nodes if node[resource]), default=0)}

    @property
    def always(self) -> int:
        """Number of nodes that its pools always have."""
        return sum(pool.min_nodes for pool in self.pools)

    def with_gpus(self, count: int) -> dict[str, int]:
        """A number of GPUs, with their share of CPU and memory."""
        return {**times(self.per_gpu, count), **({self.resource: count} if self.resource else {})}


def gang_amounts(flavor: Flavor, gang: Gang) -> dict[str, int]:
    """The limit of a team's gangs in a flavor: GPUs, with CPU and memory as set, or their share of the node."""
    own = {resource: amount for resource, amount in ((CPU, gang.cpu), (MEMORY, gang.memory)) if amount is not None}
    if flavor.resource is None and len(own) == 1:
        ((resource, amount),) = own.items()
        own |= flavor.follows(resource, amount)
    return {**flavor.with_gpus(gang.effective_limit), **own}


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


@dataclass(frozen=True, eq=False)
class Environment:
    """A stack with values that follow from it and the catalogue; `shares.Tree` adds the shares of its teams."""

    written: Stack  # as the user wrote it; `checks` reports unknown references, which are ignored
    installs: dict[str, Install] = field(default_factory=dict[str, Install], init=False, repr=False)  # cache

    @cached_property
    def stack(self) -> ResolvedStack:
        """The resolved stack."""
        return resolve(self.written)

    @cached_property
    def pools(self) -> Mapping[str, ResolvedPool]:
        """The pools of the cluster, in the stack's order."""
        return {name: resolved(self.stack, name, pool) for name, pool in self.stack.pools.items()}

    @cached_property
    def all_pools(self) -> Mapping[str, ResolvedPool]:
        """The pools of the cluster, then its workers' pools."""
        elsewhere = {name: resolved(self.stack, name, pool) for name, pool in self.stack.elsewhere.items()}
        return {**self.pools, **{name: pool for name, pool in elsewhere.items() if name not in self.pools}}

    def pools_of(self, flavor: str) -> list[ResolvedPool]:
        """The pools of the cluster with nodes of a flavor."""
        return [pool for pool in self.pools.values() if pool.flavor == flavor]

    def gpu_pools(self, vendor: str = "") -> Iterator[ResolvedPool]:
        """The pools of the cluster with GPUs, of one vendor or of all."""
        return (pool for pool in self.pools.values() if pool.gpus and pool.resource.startswith(vendor))

    @property
    def nvidia_pools(self) -> list[ResolvedPool]:
        """The pools of the cluster with GPUs of NVIDIA."""
        return [pool for pool in self.pools.values() if pool.of_nvidia]

    @cached_property
    def flavors(self) -> dict[str, Flavor]:
        """The flavors by name: CPU flavors first, so that CPU workloads use them, then in the stack's order."""
        supplies = grouped((pool.flavor, pool.supply) for pool in self.all_pools.values() if pool.supply)
        unsorted = [_flavor(name, tuple(pools), self.stack) for name, pools in supplies.items()]
        return {flavor.name: flavor for flavor in sorted(unsorted, key=lambda flavor: flavor.resource is not None)}


KEY: Final = f"{NAMESPACE}:part"
"""Config key of the Pulumi stacks that divide an environment; its value is the name of the part."""
CLUSTER: Final = "cluster"
OPERATORS: Final = "operators"
TENANCY: Final = "tenancy"


def is_part(name: str) -> bool:
    """Whether a part of any environment can have this name, now or in an earlier version."""
    return name in {CLUSTER, OPERATORS, TENANCY} or name.startswith("cohort.")


def parts(stack: Stack, *, operators: bool) -> tuple[str, ...]:
    """Names of a stack's parts in the order of their deployment; empty if it is not divided.

    A part's Pulumi stack is ENVIRONMENT.PART. `operators`: whether the stack installs operators or dashboards.
    """
    if stack.split is None:
        return ()
    on_cloud = not isinstance(stack.cluster, ExistingCluster)
    return (*([CLUSTER] if on_cloud else ()), *([OPERATORS] if operators else ()), TENANCY)
