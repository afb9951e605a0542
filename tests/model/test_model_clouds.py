"""Pools on each cloud: what the clouds refuse, what they must be told, and what follows for flavors and operators."""

from typing import Any, Final

import pytest
import yaml
from builders import EXISTING, Data, errors, line, planned, pool, queue_of, stack, team

from gpu_tenancy.model.catalogue.clouds import CloudRules, clouds
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.source import Source

AWS: Final = {
    "cloud": "aws",
    "name": "ml",
    "region": "eu-central-1",
    "subnets": {"eu-central-1a": "subnet-0123456789abcdef0", "eu-central-1b": "subnet-0123456789abcdef1"},
}
GCP: Final = {"cloud": "gcp", "name": "ml", "project": "ml-platform", "location": "us-central1-a"}
AZURE: Final = {
    "cloud": "azure",
    "name": "ml",
    "subscription": "00000000-0000-0000-0000-000000000000",
    "resourceGroup": "ml",
    "location": "eastus",
    "subnet": ("/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/ml/subnets/nodes"),
}
CLUSTERS: Final = {"aws": AWS, "gcp": GCP, "azure": AZURE}
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


REFUSED: Final = {
    "aws": {"flex-start"},
    "gcp": {"capacity-block"},
    "azure": {"flex-start"},
}


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


def test_a_stack_without_nvidias_gpus_has_no_values_for_their_operator() -> None:
    sections = stack(cluster=AWS, pools={"cpu": pool("m7i.8xlarge", labels={"node-type": "cpu"})}, teams={})
    assert planned(sections).cluster.gpu_operator == {}


def test_partitions_by_the_operator_are_a_label_of_the_node_and_keep_their_own_resource() -> None:
    sections = on("aws", teams={"a": team(gpus={"h100": {"guaranteed": 56}})}, sharing=SEVENTHS)
    plan = planned(sections)
    assert pool_of(sections).labels["nvidia.com/mig.config"] == "all-1g.10gb"
    assert pool_of(sections).partitioning.mig_profile is None
    assert plan.cluster.gpu_operator["mig"] == {"strategy": "mixed"}
    assert plan.cluster.gpu_operator["migManager"] == {"enabled": True}
    assert line(queue_of(plan, "a"), "h100", "nvidia.com/mig-1g.10gb").nominal == 56


def test_partitions_by_aks_are_an_input_of_the_pool_and_keep_their_own_resource() -> None:
    sections = on(
        "azure", teams={"a": team(gpus={"h100": {"guaranteed": 56}})}, sharing={"mig": {"profile": "1g.10gb"}}
    )
    assert pool_of(sections).partitioning.mig_profile == "1g.10gb"
    assert "nvidia.com/mig.config" not in pool_of(sections).labels
    assert planned(sections).cluster.gpu_operator["migManager"] == {"enabled": False}
    assert line(queue_of(planned(sections), "a"), "h100", "nvidia.com/mig-1g.10gb").nominal == 56


def test_gkes_partitions_are_requested_as_gpus_with_a_label() -> None:
    sections = on("gcp", teams={"a": team(gpus={"h100": {"guaranteed": 56}})}, sharing=SEVENTHS)
    assert pool_of(sections).partitioning.mig_profile == "1g.10gb"
    (flavor,) = Environment(load(Source(sections))).flavors.values()
    assert flavor.resource == "nvidia.com/gpu"
    assert flavor.node_labels["cloud.google.com/gke-gpu-partition-size"] == "1g.10gb"
    assert flavor.capacity["nvidia.com/gpu"] == 2 * 8 * 7


def test_turns_by_the_operator_are_a_configuration_of_the_plugin_for_that_pool() -> None:
    sections = on("aws", sharing={"timeSlicing": 4})
    config = planned(sections).cluster.gpu_operator["devicePlugin"]["config"]
    assert pool_of(sections).labels["nvidia.com/device-plugin.config"] == "h100"
    assert config["create"] is True
    assert config["default"] in config["data"]
    resources = yaml.safe_load(config["data"]["h100"])["sharing"]["timeSlicing"]["resources"]
    assert resources == [{"name": "nvidia.com/gpu", "replicas": 4}]
    assert "sharing" not in yaml.safe_load(config["data"][config["default"]])


def test_turns_by_gke_are_an_input_of_the_pool() -> None:
    sections = on("gcp", sharing={"timeSlicing": 4})
    assert pool_of(sections).partitioning.turns == 4
    assert "config" not in planned(sections).cluster.gpu_operator["devicePlugin"]
    (flavor,) = Environment(load(Source(sections))).flavors.values()
    assert flavor.capacity["nvidia.com/gpu"] == 2 * 8 * 4
    assert not str(flavor.product).endswith("-SHARED")


# MPS.


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_mps_is_a_configuration_of_the_plugin_for_that_pool(cloud: str) -> None:
    sections = on(cloud, sharing={"mps": 4})
    config = planned(sections).cluster.gpu_operator["devicePlugin"]["config"]
    assert pool_of(sections).labels["nvidia.com/device-plugin.config"] == "h100"
    resources = yaml.safe_load(config["data"]["h100"])["sharing"]
    assert resources == {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}
    (flavor,) = Environment(load(Source(sections))).flavors.values()
    assert flavor.capacity["nvidia.com/gpu"] == 2 * 8 * 4
    assert str(flavor.product).endswith("-SHARED")


# Teams that trust each other.

SHARED: Final = {"a": team(gpus={"h100": {"guaranteed": 8}}), "b": team(gpus={"h100": {"guaranteed": 8}})}


# What goes on the nodes.


@EVERY
def test_a_pools_nodes_carry_model_pool_and_capacity(cloud: str) -> None:
    labels = pool_of(on(cloud, capacity="spot")).labels
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["gpu-tenancy.dev/pool"] == "h100"
    assert labels["gpu-tenancy.dev/capacity"] == "spot"


def test_the_taint_that_aks_puts_on_spot_nodes_is_tolerated_by_their_flavor() -> None:
    (flavor,) = planned(on("azure", capacity="spot")).queues.flavors
    assert [(taint.key, taint.value) for taint in flavor.tolerated] == [
        ("kubernetes.azure.com/scalesetpriority", "spot")
    ]


def test_the_resource_of_another_vendors_gpus_follows_from_the_machine() -> None:
    sections = stack(
        cluster=AZURE,
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
    pool_plans = {pool.name: pool.surge for pool in planned(stack(cluster=AWS, pools=pools)).cluster.pools}
    assert (pool_plans["h100"].added, pool_plans["h100"].unavailable) == (0, 1)
    assert (pool_plans["cpu"].added, pool_plans["cpu"].unavailable) == (1, 0)


@pytest.mark.parametrize(("environment", "protected"), [("prod", True), ("staging", False)])
def test_production_is_protected(environment: str, *, protected: bool) -> None:
    assert planned(on("aws") | {"environment": environment}).cluster.protect is protected


def test_an_existing_clusters_pools_are_described_and_not_made() -> None:
    assert planned(stack()).cluster.pools == ()


def test_an_existing_cluster_of_a_known_service_follows_its_rules() -> None:
    sections = on("azure", capacity="spot") | {"cluster": {**EXISTING, "provider": "azure"}}
    plan = planned(sections)
    assert plan.cluster.pools == ()
    assert plan.cluster.gpu_operator["operator"] == {"runtimeClass": "nvidia-container-runtime"}
    assert [taint.key for taint in plan.queues.flavors[0].taints] == [
        "nvidia.com/gpu",
        "kubernetes.azure.com/scalesetpriority",
    ]


# Queued provisioning: the queue asks for the nodes.


def queued(**fields: Any) -> Data:
    return on("gcp", nodes={"min": 0, "max": 2}, capacity={"kind": "queued", "maxRun": "2d"}, **fields)


def test_a_queued_pools_flavor_is_held_by_a_check_until_its_nodes_are_there() -> None:
    plan = planned(queued())
    (check,) = plan.queues.checks
    assert (check.flavor, check.resource) == ("h100", "nvidia.com/gpu")
    assert check.provisioning.provisioning_class == "queued-provisioning.gke.io"
    assert check.provisioning.seconds == 2 * 86400
    assert queue_of(plan, "a").checks == (check,)


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_queues_request_all_nodes_of_a_workload_from_cluster_autoscaler(cloud: str) -> None:
    sections = on(cloud, nodes={"min": 1, "max": 2}, capacity={"kind": "queued"})
    (check,) = planned(sections).queues.checks
    assert check.provisioning.provisioning_class == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    assert check.provisioning.seconds is None
    sections["pools"]["h100"]["capacity"] |= {"maxRun": "7d"}
    (problem,) = errors(sections)
    assert problem.startswith("pools.h100.capacity.maxRun: 7d is not supported on ")


def test_no_other_pool_needs_a_check() -> None:
    plan = planned(on("gcp", nodes={"min": 0, "max": 2}, capacity={"kind": "flex-start", "maxRun": "2d"}))
    assert plan.queues.checks == ()
    assert queue_of(plan, "a").checks == ()


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
def test_every_kind_of_capacity_has_a_rule_and_every_refusal_a_mend(cloud: str) -> None:
    rules: CloudRules = clouds()[cloud]
    assert set(rules.capacity) == {"on-demand", "spot", "reserved", "capacity-block", "flex-start", "queued"}
    assert set(rules.compact) <= {kind for kind, rule in rules.capacity.items() if not rule.refused}
    for rule in rules.capacity.values():
        assert (rule.refused is None) == (rule.instead is None)
    for mode in rules.drivers.values():
        assert mode.source.startswith("https://")
