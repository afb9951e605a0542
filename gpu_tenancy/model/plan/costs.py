"""What pools cost: of each the floor, for nodes that are always there, and the ceiling, for the most there may be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.model.catalogue import Price
from gpu_tenancy.model.plan.gpus import machine_of
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.pools import Pool

_PRICED_AS: Final[Mapping[str, Literal["on_demand", "spot"]]] = {
    "on-demand": "on_demand",
    "reserved": "on_demand",  # A reservation holds machines at the usual price; discounts are a contract of their own.
    "spot": "spot",
}
"""Which price of a machine a kind of capacity goes by; a block of days and a flexible start have their own prices."""


@dataclass(frozen=True, slots=True)
class PoolCost:
    """What a pool costs, in US dollars an hour; None where nobody knows.

    Attributes:
        node: one node.
        floor: the nodes that are always there.
        ceiling: the most nodes there may be.
    """

    pool: str
    node: float | None
    least: int
    most: int

    @property
    def floor(self) -> float | None:
        """Nothing is nothing, at whatever price."""
        return _times(self.node, self.least)

    @property
    def ceiling(self) -> float | None:
        """As if every node were there all the time."""
        return _times(self.node, self.most)


def _times(price: float | None, nodes: int) -> float | None:
    return 0.0 if nodes == 0 else None if price is None else price * nodes


def pool_costs(stack: Stack) -> tuple[PoolCost, ...]:
    """Each pool's cost, by the stack's own prices first, then the catalogue's."""
    return tuple(
        PoolCost(name, _node(stack, pool), pool.nodes.min, pool.nodes.max if stack.cluster.grows else pool.nodes.min)
        for name, pool in stack.pools.items()
    )


def _node(stack: Stack, pool: Pool) -> float | None:
    machine = machine_of(stack, pool)
    if machine is None:
        return None
    own = stack.prices.get(machine.name)
    kind = _PRICED_AS.get(pool.capacity.kind)
    if own is not None:  # Whatever is bought by another kind of contract, the stack's own price is what is paid for it.
        return own.spot if kind == "spot" else own.on_demand
    listed: Price = machine.price
    return None if kind is None else listed.spot if kind == "spot" else listed.on_demand
