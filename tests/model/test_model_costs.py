"""What pools cost: floor and ceiling, by which price, and unknown where it is unknown."""

from typing import Any

import pytest
from builders import AKS, EKS, Data, pool, stack

from gpu_tenancy.model.catalogue import Price, find_machine
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.costs import PoolCost, counted_on_demand, fixed_costs, pool_costs
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


MADE: Data = {"version": "1.35", "system": {"machine": "m7i.4xlarge", "nodes": {"min": 3, "max": 3}}}
EKS_MADE: Data = {
    **{key: value for key, value in EKS.items() if key != "subnets"},
    "create": {
        **MADE,
        "admins": ["arn:aws:iam::111122223333:role/admins"],
        "zones": ["eu-central-1a", "eu-central-1b"],
    },
}


def fixed(cluster: Data, **sections: Any) -> dict[str, tuple[int, float | None, str]]:
    declared = load(Source(stack(cluster=cluster, **sections)))
    return {cost.name: (cost.number, cost.hour, cost.source) for cost in fixed_costs(declared)}


def test_a_created_cluster_costs_its_control_plane_system_nodes_and_way_out() -> None:
    costs = fixed(EKS_MADE)
    assert list(costs) == ["eks-control-plane", "m7i.4xlarge", "aws-nat-gateway"]
    assert costs["m7i.4xlarge"][:2] == (3, find_price("m7i.4xlarge").on_demand)
    assert costs["aws-nat-gateway"][0] == 2, "one for each zone"
    assert all("https://" in source and "2026" in source for _, _, source in costs.values())


def test_the_stacks_own_price_of_a_fixed_part_comes_first() -> None:
    costs = fixed(EKS_MADE, prices={"eks-control-plane": {"onDemand": 0.09}, "aws-nat-gateway": {"onDemand": 0.04}})
    assert costs["eks-control-plane"] == (1, 0.09, "prices")
    assert costs["aws-nat-gateway"] == (2, 0.04, "prices")


def test_a_part_without_a_price_is_unknown() -> None:
    group = "/subscriptions/5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d/resourceGroups/ml/providers"
    created: Data = {
        **MADE,
        "system": {"machine": "Standard_D16s_v5"},
        "tenant": "1b2c3d4e-0e4f-4a6b-9c8d-7e6f5a4b3c2d",
        "admins": ["2b2c3d4e-0e4f-4a6b-9c8d-7e6f5a4b3c2d"],
        "secretsKey": "https://ml.vault.azure.net/keys/secrets/0a1b2c",
        "vault": f"{group}/Microsoft.KeyVault/vaults/ml",
        "logs": f"{group}/Microsoft.OperationalInsights/workspaces/ml",
    }
    machines = {"cpu": pool("Standard_D32s_v5", 3)}
    costs = fixed({**AKS, "create": created}, pools=machines, teams={})
    assert {name: number for name, (number, hour, _) in costs.items() if hour is None} == {"azure-load-balancer": 1}
    routed = {**AKS, "create": {**created, "egress": "routes"}}
    assert "azure-load-balancer" not in fixed(routed, pools=machines, teams={})


def test_a_cluster_that_exists_costs_its_owner() -> None:
    assert fixed(EKS) == {}
