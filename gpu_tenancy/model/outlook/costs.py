"""Monthly costs of guarantees and limits, at the prices of the flavors' node pools."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.outlook.shares import Holding
from gpu_tenancy.model.plan.costs import PoolCost
from gpu_tenancy.model.plan.supply import Flavor

HOURS: Final = 730
"""Hours per month, as in the clouds' calculators: https://aws.amazon.com/calculator/calculator-assumptions/."""


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars per month; None if a price is unknown."""

    guaranteed: float | None
    limit: float | None

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(_sum(self.guaranteed, other.guaranteed), _sum(self.limit, other.limit))


NOTHING: Final = Cost(0.0, 0.0)


def gpu_prices(flavors: Mapping[str, Flavor], pools: Iterable[PoolCost]) -> dict[str, float | None]:
    """US dollars per hour for one GPU of each flavor: node price divided by GPUs, averaged over pools by their GPUs.

    None if the price of a pool is unknown. Flavors without GPUs are omitted.
    """
    costs = {cost.pool: cost for cost in pools}
    prices: dict[str, float | None] = {}
    for name, flavor in flavors.items():
        if flavor.resource is None:
            continue
        parts = [(costs[pool.name].node, pool.max_nodes, pool.gpus_per_node) for pool in flavor.pools if pool.max_nodes]
        gpus = sum(nodes * gpus_per_node for _, nodes, gpus_per_node in parts)
        if not gpus or any(price is None for price, _, _ in parts):
            prices[name] = None
        else:
            prices[name] = sum((price or 0) * nodes for price, nodes, _ in parts) / gpus
    return prices


def cost_of(holdings: Iterable[Holding], prices: Mapping[str, float | None]) -> Cost:
    """Monthly cost of guarantees and of limits; each GPU includes its share of the node."""
    total = NOTHING
    for holding in holdings:
        price = prices.get(holding.flavor)
        total += Cost(_month(price, holding.guaranteed), _month(price, holding.limit))
    return total


def _month(price: float | None, gpus: int) -> float | None:
    return 0.0 if gpus == 0 else None if price is None else price * gpus * HOURS


def _sum(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left + right
