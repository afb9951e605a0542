"""Monthly costs of guarantees and limits, at the prices of the flavors' node pools.

A GPU costs its part of its node. Where nodes have no GPUs, a CPU costs its part, and memory is included.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.quantity import MEMORY
from gpu_tenancy.model.outlook.shares import Holding
from gpu_tenancy.model.plan.costs import PoolCost, storage_cost
from gpu_tenancy.model.plan.measures import Measure
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import Storage
from gpu_tenancy.model.spec.machines import PriceEntry

HOURS: Final = 730
"""Hours per month, as in the clouds' calculators: https://aws.amazon.com/calculator/calculator-assumptions/."""


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars per month; None if a price is unknown.

    Attributes:
        guaranteed: of guarantees.
        limit: of limits.
        storage: of claims, which is part of neither.
    """

    guaranteed: float | None
    limit: float | None
    storage: float | None = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            _sum(self.guaranteed, other.guaranteed),
            _sum(self.limit, other.limit),
            _sum(self.storage, other.storage),
        )


NOTHING: Final = Cost(0.0, 0.0)


def spent(lines: Iterable[tuple[float, float | None]]) -> float | None:
    """The sum of GPU-hours by their prices; None if the price of some is unknown."""
    total = 0.0
    for hours, price in lines:
        if hours and price is None:
            return None
        total += hours * (price or 0.0)
    return total


def prices(
    flavors: Mapping[str, Flavor], counted: Iterable[Measure], pools: Iterable[PoolCost]
) -> dict[str, float | None]:
    """US dollars per hour for one unit of what is counted, by its label: a GPU, or a thousandth of a CPU.

    The node price divided by the node's GPUs or CPUs, averaged over pools by their GPUs or CPUs. None if the price of a
    pool is unknown. Memory costs nothing of its own.

    Args:
        flavors: by name.
        counted: what is counted.
        pools: costs of the node pools.
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


def cost_of(holdings: Iterable[Holding], prices: Mapping[str, float | None]) -> Cost:
    """Monthly cost of guarantees and of limits; each GPU, or CPU without GPUs, includes its share of the node."""
    total = NOTHING
    for holding in holdings:
        price = prices.get(holding.flavor)
        total += Cost(_month(price, holding.guaranteed), _month(price, holding.limit))
    return total


def cost_of_storage(cluster: Cluster, prices: Mapping[str, PriceEntry], storage: Iterable[Storage]) -> Cost:
    """Monthly cost of a team's claims, at their size."""
    return sum((Cost(0.0, 0.0, storage_cost(cluster, prices, claim)) for claim in storage), NOTHING)


def _month(price: float | None, units: int) -> float | None:
    return 0.0 if units == 0 else None if price is None else price * units * HOURS


def _sum(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left + right
