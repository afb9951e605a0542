"""What teams and cost centres pay for: their guarantees and their limits at the prices of their flavors' pools."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.outlook.shares import Holding
from gpu_tenancy.model.plan.costs import PoolCost
from gpu_tenancy.model.plan.supply import Flavor

HOURS: Final = 730
"""Hours of a month, as the clouds' calculators count: https://aws.amazon.com/calculator/calculator-assumptions/."""


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars a month; None where a price is not known."""

    guaranteed: float | None
    limit: float | None

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(_sum(self.guaranteed, other.guaranteed), _sum(self.limit, other.limit))


NOTHING: Final = Cost(0.0, 0.0)


def gpu_prices(flavors: Mapping[str, Flavor], pools: Iterable[PoolCost]) -> dict[str, float | None]:
    """US dollars an hour for one GPU of each flavor: a node's price by its GPUs; of several pools the mean by GPUs.

    None where the price of one of them is not known. Flavors without GPUs are left out.
    """
    costs = {cost.pool: cost for cost in pools}
    found: dict[str, float | None] = {}
    for name, flavor in flavors.items():
        if flavor.resource is None:
            continue
        parts = [(costs[pool.name].node, pool.most, pool.gpus_per_node) for pool in flavor.pools if pool.most]
        gpus = sum(most * each for _, most, each in parts)
        if not gpus or any(price is None for price, _, _ in parts):
            found[name] = None
        else:
            found[name] = sum((price or 0) * most for price, most, _ in parts) / gpus
    return found


def cost_of(holdings: Iterable[Holding], prices: Mapping[str, float | None]) -> Cost:
    """A month of all that is guaranteed, and of all that may be reached: whole GPUs with their part of the node."""
    total = NOTHING
    for each in holdings:
        price = prices.get(each.flavor)
        total += Cost(_month(price, each.guaranteed), _month(price, each.limit))
    return total


def _month(price: float | None, gpus: int) -> float | None:
    return 0.0 if gpus == 0 else None if price is None else price * gpus * HOURS


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
