"""What pools cost: floor and ceiling, by which price, and unknown where it is unknown."""

from typing import Any

import pytest
from builders import Data, pool, stack

from gpu_tenancy.model.catalogue import Price, find_machine
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.costs import PoolCost, counted_on_demand, pool_costs
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.source import Source

MACHINE = "a2-ultragpu-8g"


def cost(nodes: int | Data = 2, *, cluster: Data | None = None, prices: Data | None = None, **fields: Any) -> PoolCost:
    where = cluster or {"cloud": "existing", "provider": "gcp"}
    sections = stack(cluster=where, pools={"a100": pool(MACHINE, nodes, **fields)}, teams={}, prices=prices or {})
    (pool_cost,) = pool_costs(Environment(load(Source(sections))))
    return pool_cost


def find_price(machine_type: str) -> Price:
    machine = find_machine(machine_type)
    assert machine
    return machine.price


def listed(kind: str) -> float:
    price = find_price(MACHINE)
    amount = price.on_demand if kind == "on-demand" else price.spot
    assert amount
    return amount


def test_a_pool_costs_from_its_least_nodes_to_its_most() -> None:
    cost_range = cost({"min": 1, "max": 3})
    assert (cost_range.floor, cost_range.ceiling) == (listed("on-demand"), 3 * listed("on-demand"))


def test_spot_has_a_price_of_its_own() -> None:
    assert cost(capacity="spot").node == listed("spot") != listed("on-demand")


def test_spot_without_a_price_costs_at_most_the_price_on_demand() -> None:
    assert cost(prices={MACHINE: {"onDemand": 20.0}}, capacity="spot").node == 20.0
    aws = {"cloud": "existing", "provider": "aws"}
    sections = stack(cluster=aws, pools={"l4": pool("g6.12xlarge", 1, capacity="spot")}, teams={})
    environment = Environment(load(Source(sections)))
    (pool_cost,) = pool_costs(environment)
    assert pool_cost.node == find_price("g6.12xlarge").on_demand
    assert counted_on_demand(environment.stack, environment.pools["l4"])


def test_a_reservation_costs_its_machines() -> None:
    assert cost(capacity={"kind": "reserved", "reservation": "ml"}).node == listed("on-demand")


@pytest.mark.parametrize("kind", ["flex-start", "queued"])
def test_capacity_with_an_unlisted_price_is_unknown(kind: str) -> None:
    cost_range = cost({"min": 0, "max": 2}, capacity={"kind": kind, "maxRun": "1d"})
    assert (cost_range.node, cost_range.ceiling) == (None, None)
    assert cost_range.floor == 0.0  # No node costs nothing, at whatever price.


def test_the_stacks_own_price_comes_first() -> None:
    prices = {MACHINE: {"onDemand": 20.0}}
    assert cost(prices=prices).node == 20.0
    assert cost(prices={MACHINE: {"onDemand": 20.0, "spot": 5.0}}, capacity="spot").node == 5.0
    assert cost({"min": 0, "max": 2}, prices=prices, capacity={"kind": "flex-start", "maxRun": "1d"}).node == 20.0


def test_a_described_machine_has_no_price() -> None:
    sections = stack(pools={"cpu": {"cpu": 8, "memory": "32Gi", "nodes": 2}}, teams={})
    (pool_cost,) = pool_costs(Environment(load(Source(sections))))
    assert (pool_cost.node, pool_cost.floor) == (None, None)


def test_without_an_autoscaler_there_are_never_more_nodes_than_at_least() -> None:
    cost_range = cost({"min": 1, "max": 3}, cluster={"cloud": "existing", "provider": "gcp", "autoscaler": False})
    assert cost_range.ceiling == cost_range.floor
