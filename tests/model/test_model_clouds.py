"""Pools on each cloud, networks with access to the API server, and costs."""

from typing import Any, Final

import pytest
import yaml
from builders import (
    AKS,
    CREATED,
    EKS,
    EXISTING,
    GKE,
    Data,
    environment_of,
    errors,
    line,
    patched,
    planned,
    pool,
    queue_of,
    stack,
    stack_of,
    team,
)

from gpu_tenancy.model.catalogue import Price, find_machine
from gpu_tenancy.model.catalogue.clouds import CloudRules, clouds
from gpu_tenancy.model.plan.costs import PoolCost, counted_on_demand, fixed_costs, pool_costs

CLUSTERS: Final = {"aws": EKS, "gcp": GKE, "azure": AKS}
H100: Final = {"aws": "p5.48xlarge", "gcp": "a3-highgpu-8g", "azure": "Standard_ND96isr_H100_v5"}
RESERVATIONS: Final = {
    "aws": "cr-0123456789abcdef0",
    "gcp": "ml-h100",
    "azure": "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/ml",
}
SEVENTHS: Final = {"mig": {"profile": "1g.10gb"}}
EVERY: Final = pytest.mark.parametrize("cloud", CLUSTERS)


def on(cloud: str, *, teams: Data | None = None, nodes: int | Data = 2, **fields: Any) -> Data:
    """One pool of two nodes of eight H100s, half of which belong to a team."""
    return stack(
        cluster=CLUSTERS[cloud],
        operators={"driver": fields["driver"]} if "driver" in fields else {},
        pools={"h100": pool(H100[cloud], nodes, **fields)},
        teams=teams if teams is not None else {"a": team(gpus={"h100": {"guaranteed": 8}})},
    )


def mig_of(sections: Data) -> str:
    return pool_of(sections).sharing.mig.profile


def pool_of(sections: Data, name: str = "h100") -> Any:
    (pool_plan,) = (pool for pool in planned(sections).cluster.pools if pool.name == name)
    return pool_plan


@EVERY
def test_the_smallest_stack_of_a_cloud_is_coherent(cloud: str) -> None:
    assert errors(on(cloud)) == []


@EVERY
@pytest.mark.parametrize("kind", ["on-demand", "spot", "reserved", "capacity-block", "flex-start", "queued"])
def test_each_kind_of_capacity_is_either_made_or_refused_by_name(cloud: str, kind: str) -> None:
    words: Data = {"kind": kind}
    if kind in {"reserved", "capacity-block"}:
        words["reservation"] = RESERVATIONS[cloud]
    if kind == "flex-start" or (kind, cloud) == ("queued", "gcp"):
        words["maxRun"] = "7d"
    zones = ["eu-central-1a"] if kind in {"reserved", "capacity-block"} and cloud == "aws" else []
    sections = on(cloud, teams={}, nodes={"min": 0, "max": 2}, capacity=words, zones=zones)
    if (cloud, kind) == ("azure", "reserved"):  # Azure reserves no machines with H100s.
        sections["pools"]["h100"]["machine"] = "Standard_NC64as_T4_v3"
    problems = errors(sections)
    rule = clouds()[cloud].capacity[kind]
    if rule.refused:
        assert problems == [f"pools.h100.capacity: {kind} is not available: {rule.refused}; {rule.instead}"]
    else:
        assert problems == []


REFUSED: Final = {"aws": {"flex-start"}, "gcp": {"capacity-block"}, "azure": {"flex-start"}}


@EVERY
def test_the_table_refuses_unsupported_values(cloud: str) -> None:
    assert {kind for kind, rule in clouds()[cloud].capacity.items() if rule.refused} == REFUSED[cloud]


@EVERY
def test_a_machine_of_another_cloud_is_refused(cloud: str) -> None:
    for other in H100.keys() - {cloud}:
        sections = on(cloud) | {"pools": {"h100": pool(H100[other])}}
        (problem,) = errors(sections)
        title, theirs = clouds()[cloud].title, clouds()[other].title
        assert problem.startswith(
            f"pools.h100.machine: {H100[other]} is a machine type of {theirs}, but the cluster is on {title}; use a"
            f" machine type of {title}, such as "
        )


# What a pool's driver mode becomes, on both of its sides.


@EVERY
def test_every_driver_mode_gives_the_operator_its_half(cloud: str) -> None:
    for name, mode in clouds()[cloud].drivers.items():
        plan = planned(on(cloud, driver=name))
        for section, values in mode.operator.items():
            operator_values = plan.cluster.gpu_operator[section]
            assert {key: operator_values[key] for key in values} == values
        assert mode.labels.items() <= plan.cluster.pools[0].labels.items()


def test_the_operator_tolerates_every_taint_of_the_gpu_nodes() -> None:
    taints = [{"key": "example.com/reserved", "value": "research", "effect": "NoExecute"}]
    values = planned(on("azure", taints=taints, capacity="spot")).cluster.gpu_operator
    assert values["daemonsets"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "example.com/reserved", "operator": "Exists", "effect": "NoExecute"},
        {"key": "kubernetes.azure.com/scalesetpriority", "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert values["node-feature-discovery"]["worker"]["tolerations"] == values["daemonsets"]["tolerations"]


def test_no_values_of_the_gpu_operator_without_nvidia_gpus() -> None:
    sections = stack(cluster=EKS, pools={"cpu": pool("m7i.8xlarge", labels={"node-type": "cpu"})}, teams={})
    assert planned(sections).cluster.gpu_operator == {}


def test_partitions_by_the_operator_are_a_node_label() -> None:
    sections = on("aws", teams={"a": team(gpus={"h100": {"guaranteed": 56}})}, sharing=SEVENTHS)
    plan = planned(sections)
    assert pool_of(sections).labels["nvidia.com/mig.config"] == "all-1g.10gb"
    assert pool_of(sections).sharing is None
    assert plan.cluster.gpu_operator["mig"] == {"strategy": "mixed"}
    assert plan.cluster.gpu_operator["migManager"] == {"enabled": True}
    assert line(queue_of(plan, "a"), "h100", "nvidia.com/mig-1g.10gb").nominal == 56


def test_partitions_by_aks_are_an_input_of_the_pool() -> None:
    teams = {"a": team(gpus={"h100": {"guaranteed": 56}})}
    sections = on("azure", teams=teams, sharing={"mig": {"profile": "1g.10gb"}})
    assert mig_of(sections) == "1g.10gb"
    assert "nvidia.com/mig.config" not in pool_of(sections).labels
    assert planned(sections).cluster.gpu_operator["migManager"] == {"enabled": False}
    assert line(queue_of(planned(sections), "a"), "h100", "nvidia.com/mig-1g.10gb").nominal == 56


def test_gkes_partitions_are_requested_as_gpus_with_a_label() -> None:
    sections = on("gcp", teams={"a": team(gpus={"h100": {"guaranteed": 56}})}, sharing=SEVENTHS)
    assert mig_of(sections) == "1g.10gb"
    (flavor,) = environment_of(sections).flavors.values()
    assert flavor.resource == "nvidia.com/gpu"
    assert flavor.node_labels["cloud.google.com/gke-gpu-partition-size"] == "1g.10gb"
    assert flavor.capacity["nvidia.com/gpu"] == 2 * 8 * 7


@pytest.mark.parametrize(("cloud", "way"), [("aws", "timeSlicing"), ("aws", "mps"), ("azure", "mps")])
def test_shared_gpus_are_a_configuration_of_the_plugin(cloud: str, way: str) -> None:
    sections = on(cloud, sharing={way: 4})
    config = planned(sections).cluster.gpu_operator["devicePlugin"]["config"]
    assert pool_of(sections).labels["nvidia.com/device-plugin.config"] == "h100"
    assert config["create"] is True
    assert config["default"] in config["data"]
    shared = yaml.safe_load(config["data"]["h100"])["sharing"]
    assert shared == {way: {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}
    assert "sharing" not in yaml.safe_load(config["data"][config["default"]])
    (flavor,) = environment_of(sections).flavors.values()
    assert flavor.capacity["nvidia.com/gpu"] == 2 * 8 * 4
    assert str(flavor.product).endswith("-SHARED")


def test_turns_by_gke_are_an_input_of_the_pool() -> None:
    sections = on("gcp", sharing={"timeSlicing": 4})
    assert pool_of(sections).sharing.pods == 4
    assert "config" not in planned(sections).cluster.gpu_operator["devicePlugin"]
    (flavor,) = environment_of(sections).flavors.values()
    assert flavor.capacity["nvidia.com/gpu"] == 2 * 8 * 4
    assert not str(flavor.product).endswith("-SHARED")


# What goes on the nodes.


def test_flavors_tolerate_taints_of_cpu_nodes_only() -> None:
    sections = on("azure", capacity="spot")
    sections["pools"]["cpu"] = pool("Standard_D32s_v5", capacity="spot", labels={"node-type": "cpu"})
    tolerated = {flavor.name: [taint.key for taint in flavor.tolerated] for flavor in planned(sections).queues.flavors}
    assert tolerated == {"cpu": ["kubernetes.azure.com/scalesetpriority"], "h100": []}
    assert planned(sections).guards.taints["nvidia.com/gpu"] == (
        "nvidia.com/gpu",
        "kubernetes.azure.com/scalesetpriority",
    )


def test_resource_of_amd_gpus_follows_from_the_machine() -> None:
    sections = stack(
        cluster=AKS,
        pools={"mi300x": pool("Standard_ND96isr_MI300X_v5")},
        teams={"a": team(gpus={"mi300x": {"guaranteed": 8}})},
    )
    plan = planned(sections)
    (taint,) = plan.cluster.pools[0].supply.taints
    assert (taint.key, taint.value, taint.effect) == ("amd.com/gpu", "present", "NoSchedule")
    assert plan.cluster.pools[0].driver is None
    assert line(queue_of(plan, "a"), "mi300x", "amd.com/gpu").nominal == 8


def test_gpu_pools_never_grow_for_an_upgrade_and_cpu_pools_do() -> None:
    pools = {"h100": pool(), "cpu": pool("m7i.8xlarge", labels={"node-type": "cpu"})}
    pool_plans = {pool.name: pool.surge for pool in planned(stack(cluster=EKS, pools=pools)).cluster.pools}
    assert (pool_plans["h100"].added, pool_plans["h100"].unavailable) == (0, 1)
    assert (pool_plans["cpu"].added, pool_plans["cpu"].unavailable) == (1, 0)


def test_existing_clusters_follow_the_rules_of_their_cloud() -> None:
    sections = on("azure", capacity="spot") | {"cluster": {**EXISTING, "provider": "azure"}}
    plan = planned(sections)
    assert plan.cluster.pools == planned(stack()).cluster.pools == ()
    assert plan.cluster.gpu_operator["operator"] == {"runtimeClass": "nvidia-container-runtime"}
    keys = [taint.key for taint in plan.queues.flavors[0].taints]
    assert keys == ["nvidia.com/gpu", "kubernetes.azure.com/scalesetpriority"]


# Queued provisioning: the queue asks for the nodes.


def queued(**fields: Any) -> Data:
    return on("gcp", nodes={"min": 0, "max": 2}, capacity={"kind": "queued", "maxRun": "2d"}, **fields)


def test_only_queued_pools_have_an_admission_check() -> None:
    plan = planned(queued())
    (check,) = plan.queues.checks
    assert (check.flavor, check.resource) == ("h100", "nvidia.com/gpu")
    assert check.provisioning.provisioning_class == "queued-provisioning.gke.io"
    assert check.provisioning.seconds == 2 * 86400
    assert queue_of(plan, "a").checks == (check,)
    other = planned(on("gcp", nodes={"min": 0, "max": 2}, capacity={"kind": "flex-start", "maxRun": "2d"}))
    assert other.queues.checks == queue_of(other, "a").checks == ()


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_cluster_autoscaler_adds_all_nodes_of_a_workload(cloud: str) -> None:
    sections = on(cloud, nodes={"min": 1, "max": 2}, capacity={"kind": "queued"})
    (check,) = planned(sections).queues.checks
    assert check.provisioning.provisioning_class == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    assert check.provisioning.seconds is None
    sections["pools"]["h100"]["capacity"] |= {"maxRun": "7d"}
    (problem,) = errors(sections)
    assert problem.startswith("pools.h100.capacity.maxRun: 7d is not supported on ")


# Machines and prices of a stack's own.


def test_a_stack_may_add_a_machine_and_its_price() -> None:
    sections = on("aws") | {
        "pools": {"h100": pool("p9.metal")},
        "machines": {
            "p9.metal": {
                "cpu": 256, "memory": "4Ti", "gpu": "h100-80gb", "gpus": 16,
                "network": {"gbps": 3200, "fabric": "efa", "interfaces": 16},
            }
        },
    }  # fmt: skip
    pool_plan = pool_of(sections)
    assert (pool_plan.machine.type, pool_plan.gpus, pool_plan.machine.network.interfaces) == ("p9.metal", 16, 16)
    assert pool_plan.supply.node["nvidia.com/gpu"] == 16


# The table itself.


@pytest.mark.parametrize("cloud", clouds())
def test_every_kind_of_capacity_has_a_rule(cloud: str) -> None:
    rules: CloudRules = clouds()[cloud]
    assert set(rules.capacity) == {"on-demand", "spot", "reserved", "capacity-block", "flex-start", "queued"}
    assert set(rules.compact) <= {kind for kind, rule in rules.capacity.items() if not rule.refused}
    for rule in rules.capacity.values():
        assert (rule.refused is None) == (rule.instead is None)
    for mode in rules.drivers.values():
        assert mode.source.startswith("https://")


# Networks of the API server.


def reached_from(*networks: str) -> list[str]:
    cluster = patched(CREATED, {"create": {"allowFrom": list(networks)}})
    return [problem for problem in errors(stack(cluster=cluster)) if "allowFrom" in problem]


@pytest.mark.parametrize(
    ("networks", "words"),
    [
        (("0.0.0.0/1", "128.0.0.0/1"), "IPv4 addresses than a /7 network"),
        (("0.0.0.0/1",), "IPv4 addresses than a /7 network"),
        (tuple(f"{first}.0.0.0/8" for first in range(1, 255)), "IPv4 addresses than a /7 network"),
        (("::/1", "8000::/1"), "IPv6 addresses than a /16 network"),
        (("10.0.0.0/8", "2000::/3"), "IPv6 addresses than a /16 network"),
    ],
)
def test_networks_that_together_are_the_internet_are_refused(networks: tuple[str, ...], words: str) -> None:
    [problem] = reached_from(*networks)
    assert problem == (
        f"cluster.create.allowFrom: opens the API server to more public {words} has;"
        " list only the networks that need access, such as 203.0.113.0/24"
    )


def test_networks_of_an_organisation_are_allowed() -> None:
    private = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fd00::/8")
    assert reached_from("17.0.0.0/8", "203.0.113.0/24", "2a01:4f8::/29", *private) == []


# Costs.

MACHINE = "a2-ultragpu-8g"


def priced(
    nodes: int | Data = 2, *, cluster: Data | None = None, prices: Data | None = None, **fields: Any
) -> PoolCost:
    where = cluster or {"cloud": "existing", "provider": "gcp"}
    sections = stack(cluster=where, pools={"a100": pool(MACHINE, nodes, **fields)}, teams={}, prices=prices or {})
    (pool_cost,) = pool_costs(environment_of(sections))
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
    cost_range = priced({"min": 1, "max": 3})
    assert (cost_range.floor, cost_range.ceiling) == (listed("on-demand"), 3 * listed("on-demand"))
    manual = priced({"min": 1, "max": 3}, cluster={"cloud": "existing", "provider": "gcp", "autoscaler": False})
    reserved = priced({"min": 0, "max": 3}, capacity={"kind": "reserved", "reservation": "ml"})
    assert (manual.ceiling, reserved.ceiling) == (manual.floor, reserved.floor)


def test_spot_without_a_price_costs_at_most_the_price_on_demand() -> None:
    aws = {"cloud": "existing", "provider": "aws"}
    sections = stack(cluster=aws, pools={"l4": pool("g6.12xlarge", 1, capacity="spot")}, teams={})
    environment = environment_of(sections)
    (pool_cost,) = pool_costs(environment)
    assert pool_cost.node == find_price("g6.12xlarge").on_demand
    assert counted_on_demand(environment.stack, environment.pools["l4"])


@pytest.mark.parametrize("kind", ["flex-start", "queued"])
def test_capacity_with_an_unlisted_price_is_unknown(kind: str) -> None:
    cost_range = priced({"min": 0, "max": 2}, capacity={"kind": kind, "maxRun": "1d"})
    assert (cost_range.node, cost_range.ceiling) == (None, None)
    assert cost_range.floor == 0.0  # No node costs nothing, at whatever price.


OWN: Data = {MACHINE: {"onDemand": 20.0}}
FLEX: Data = {"nodes": {"min": 0, "max": 2}, "capacity": {"kind": "flex-start", "maxRun": "1d"}}


@pytest.mark.parametrize(
    ("fields", "prices", "node"),
    [
        ({"capacity": "spot"}, {}, listed("spot")),
        ({"capacity": {"kind": "reserved", "reservation": "ml"}}, {}, listed("on-demand")),
        ({}, OWN, 20.0),
        ({"capacity": "spot"}, OWN, 20.0),
        ({"capacity": "spot"}, {MACHINE: {"onDemand": 20.0, "spot": 5.0}}, 5.0),
        (FLEX, OWN, 20.0),
    ],
)
def test_a_node_costs_the_stacks_own_price_or_the_listed_one(fields: Data, prices: Data, node: float) -> None:
    assert priced(prices=prices, **fields).node == node


def test_a_described_machine_has_no_price() -> None:
    sections = stack(pools={"cpu": {"cpu": 8, "memory": "32Gi", "nodes": 2}}, teams={})
    (pool_cost,) = pool_costs(environment_of(sections))
    assert (pool_cost.node, pool_cost.floor) == (None, None)


ZONES = ["eu-central-1a", "eu-central-1b"]
SYSTEM = {"nodes": {"min": 3, "max": 3}}
EKS_MADE: Data = patched(CREATED, {"subnets": None, "create": {"zones": ZONES, "system": SYSTEM}})


def fixed(cluster: Data, **sections: Any) -> dict[str, tuple[int, float | None, str]]:
    declared = stack_of(stack(cluster=cluster, **sections))
    return {cost.name: (cost.number, cost.price.usd, cost.price.source) for cost in fixed_costs(declared)}


def test_costs_of_a_created_cluster() -> None:
    assert fixed(EKS) == {}, "a cluster that exists costs its owner"
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
        "version": "1.35",
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
