"""Monthly costs of guarantees and limits, at the prices of the flavors' node pools.

A GPU costs its part of its node. Where nodes have no GPUs, a CPU costs its part, and memory is included.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.outlook.shares import Holding
from gpu_tenancy.model.plan.costs import storage_cost
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
