"""Costs of pools, from the minimum number of nodes to the maximum, of storage, and of a cluster itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from gpu_tenancy.base.quantity import MEMORY
from gpu_tenancy.model.catalogue import Machine, Price, find_machine, price_table
from gpu_tenancy.model.catalogue.clouds import fixed_prices
from gpu_tenancy.model.catalogue.rows import Fact
from gpu_tenancy.model.catalogue.storage import storage_services
from gpu_tenancy.model.plan.environment import Environment, Flavor
from gpu_tenancy.model.plan.pools import POOL_LABEL, ResolvedPool
from gpu_tenancy.model.plan.shares import Measure, Tree
from gpu_tenancy.model.plan.storage import service_of
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.base import CloudCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import Storage
from gpu_tenancy.model.spec.pools import PriceEntry

_GIB: Final = 2**30
_OPENCOST: Final = "EndTimestamp,InstanceID,Region,AssetClass,InstanceIDField,InstanceType,MarketPriceHourly,Version"
_PRICED_AS: Final[Mapping[str, Literal["on_demand", "spot"]]] = {
    "on-demand": "on_demand",
    "reserved": "on_demand",  # Reserved machines are billed on demand; discounts are separate contracts.
    "spot": "spot",
}
"""The price of each kind of capacity; capacity blocks and flex-start have separate prices, which are unknown."""

OWN: Final = "prices"  # source of a price of the stack


@dataclass(frozen=True, slots=True)
class PriceOf:
    """A price in US dollars (None if it is unknown), its source with the date, and its region."""

    usd: float | None
    source: str = ""
    region: str = ""  # empty for a price of the stack


@dataclass(frozen=True, slots=True)
class PoolCost:
    """The cost of a pool and of one of its nodes, in US dollars per hour; None if a price is unknown."""

    pool: str
    price: PriceOf
    always: int  # nodes that are always billed: the minimum, or all reserved ones
    max_nodes: int

    @property
    def node(self) -> float | None:
        """Cost of a node."""
        return self.price.usd

    @property
    def floor(self) -> float | None:
        """Cost of the nodes that are always billed; 0 for none, even without a price."""
        return _times(self.node, self.always)

    @property
    def ceiling(self) -> float | None:
        """Cost of the maximum number of nodes, all the time."""
        return _times(self.node, self.max_nodes)


def _times(price: float | None, nodes: int) -> float | None:
    return 0.0 if nodes == 0 else None if price is None else price * nodes


def pool_costs(environment: Environment) -> tuple[PoolCost, ...]:
    """The cost of each pool, by the stack's prices, else the catalogue's; a worker's pool has its own stack's price."""
    stack = environment.stack
    costs: list[PoolCost] = []
    for name, pool in environment.pools.items():
        most = pool.pool.nodes.max if pool.grows else pool.pool.nodes.min
        always = most if pool.pool.capacity.kind == "reserved" else pool.pool.nodes.min
        costs.append(PoolCost(name, _node(stack.prices, pool), always, most))
    elsewhere = (
        PoolCost(name, PriceOf(None), pool.nodes.min, pool.nodes.max) for name, pool in stack.elsewhere.items()
    )
    return (*costs, *elsewhere)


def prices(
    flavors: Mapping[str, Flavor], counted: Iterable[Measure], pools: Iterable[PoolCost]
) -> dict[str, float | None]:
    """US dollars per hour for one GPU or millicore, by `Measure.label`; None if the price of a pool is unknown.

    The node price divided by the node's GPUs or CPUs, averaged over pools by their GPUs or CPUs. Memory is free.
    """
    costs = {cost.pool: cost for cost in pools}
    by_label: dict[str, float | None] = {}
    for measure in counted:
        listed = [pool for pool in flavors[measure.flavor].pools if pool.max_nodes]
        parts = [(costs[pool.name].node, pool.max_nodes, pool.node.get(measure.resource, 0)) for pool in listed]
        units = sum(nodes * per_node for _, nodes, per_node in parts)
        if measure.resource == MEMORY:
            by_label[measure.label] = 0.0
        elif not units or any(price is None for price, _, _ in parts):
            by_label[measure.label] = None
        else:
            by_label[measure.label] = sum((price or 0) * nodes for price, nodes, _ in parts) / units
    return by_label


def gpu_prices(tree: Tree) -> dict[str, float | None]:
    """US dollars per GPU-hour by flavor; empty without GPUs."""
    counted = [Measure(name, flavor.resource) for name, flavor in tree.flavors.items() if flavor.resource]
    return prices(tree.flavors, counted, pool_costs(tree))


def opencost_prices(environment: Environment) -> str:
    """Prices of nodes by their pool, US dollars per hour, as OpenCost's CSV provider reads them.

    A pool without a price has no line. A line has no InstanceType, by which OpenCost would price nodes of other pools
    (https://github.com/opencost/opencost/blob/develop/pkg/cloud/provider/csvprovider.go, 2026-11-26).
    """
    costs = [cost for cost in pool_costs(environment) if cost.node is not None]
    lines = [f",{cost.pool},,node,metadata.labels.{POOL_LABEL},,{cost.node}," for cost in costs]
    return "\n".join([_OPENCOST, *lines, ""])


def storage_price(cloud: str, prices: Mapping[str, PriceEntry], kind: str) -> PriceOf:
    """The price of a GiB in a month, by the stack, else the catalogue; `cloud` is empty for other classes."""
    if own := prices.get(kind):
        return PriceOf(own.gib_month, OWN)
    row = storage_services().get(cloud, {}).get(kind)
    return PriceOf(row.price.gib_month, _read(row.price), row.price.region) if row and row.price else PriceOf(None)


def storage_cost(cluster: Cluster, prices: Mapping[str, PriceEntry], storage: Storage) -> float | None:
    """US dollars per month for a claim; None if unknown, as for the default class of an existing cluster."""
    kind, service = service_of(cluster, storage)
    price = storage_price(cluster.cloud if service else "", prices, storage.storage_class or kind).usd
    return None if price is None else price * storage.size / _GIB


@dataclass(frozen=True, slots=True)
class FixedCost:
    """A fixed part of a created cluster, of which one costs `price` per hour."""

    name: str  # key under `prices` of the stack
    title: str
    number: int
    price: PriceOf


def fixed_costs(stack: Stack) -> tuple[FixedCost, ...]:
    """Control plane, system nodes at their minimum number, and network egress; none for existing clusters."""
    cluster = stack.cluster
    creation, listed = cluster.creation, fixed_prices().get(cluster.cloud, {})
    if creation is None or not isinstance(cluster, CloudCluster):
        return ()
    control_plane = next(name for name in listed if name.endswith("control-plane"))
    facts = [(name, listed[name], number) for name, number in {control_plane: 1, **cluster.ways_out}.items()]
    parts = [
        FixedCost(name, row.title, number, PriceOf(row.hour, _read(row), row.region)) for name, row, number in facts
    ]
    if machine := find_machine(creation.system.machine, cluster.cloud):
        price, number = _listed(machine, machine.price.on_demand), creation.system.nodes.min
        parts.insert(1, FixedCost(machine.name, f"system nodes, {machine.name}", number, price))
    own = {name: PriceOf(price.on_demand, OWN) for name, price in stack.prices.items() if price.on_demand}
    return tuple(replace(part, price=own.get(part.name, part.price)) for part in parts)


def _listed(machine: Machine, usd: float | None) -> PriceOf:
    """A price of the catalogue for a machine type of a cloud."""
    table = price_table(machine.cloud)
    return PriceOf(usd, _read(table), machine.price.region or table.region)


def _read(fact: Fact) -> str:
    return f"{fact.source}, {fact.date}"


def counted_on_demand(stack: Stack, resolved: ResolvedPool) -> bool:
    """Whether a pool of spot nodes counts at the price on demand, because the price of spot is unknown.

    Spot costs at most that: AWS never charges more
    (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-instances-history.html), Google grants a discount
    (https://cloud.google.com/compute/docs/instances/spot), and Azure evicts at that price unless another is set
    (https://learn.microsoft.com/azure/aks/spot-node-pool).
    """
    price = _price(stack.prices, resolved)
    return bool(resolved.pool.capacity.kind == "spot" and price and price.on_demand and not price.spot)


def _node(prices: Mapping[str, PriceEntry], resolved: ResolvedPool) -> PriceOf:
    price, machine = _price(prices, resolved), resolved.machine
    kind = _PRICED_AS.get(resolved.pool.capacity.kind)
    # The stack's price applies to every kind of contract.
    if price is None or machine is None or (kind is None and isinstance(price, Price)):
        return PriceOf(None)
    usd = (price.spot if kind == "spot" else None) or price.on_demand
    return PriceOf(usd, OWN) if isinstance(price, PriceEntry) or not machine.cloud else _listed(machine, usd)


def _price(prices: Mapping[str, PriceEntry], resolved: ResolvedPool) -> Price | PriceEntry | None:
    machine = resolved.machine
    return None if machine is None else prices.get(machine.name) or machine.price
