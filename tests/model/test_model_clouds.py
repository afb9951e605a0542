"""Pools on each cloud: what the clouds refuse, what they must be told, and what follows for flavors and operators."""

from typing import Any, Final

import pytest
import yaml
from builders import EXISTING, PROVIDED, Data, errors, job, line, planned, pool, queue_of, stack, team

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
REGIONAL: Final = {**GCP, "location": "us-central1"}
GKE: Final = {
    "version": "1.35",
    "network": "ml",
    "subnetwork": "ml",
    "podRange": "pods",
    "serviceRange": "services",
    "system": {"machine": "n2-standard-16"},
}
AZURE: Final = {
    "cloud": "azure",
    "name": "ml",
    "subscription": "00000000-0000-0000-0000-000000000000",
    "resourceGroup": "ml",
    "location": "eastus",
    "subnet": ("/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/ml/subnets/nodes"),
}
OWN_H100: Final[Data] = {
    "cpu": 208,
    "memory": "1872Gi",
    "gpu": "h100-80gb",
    "gpus": 8,
    "accelerator": "nvidia-h100-80gb",
}
"""A row of the stack for a machine of the catalogue."""
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


def gb200(nodes: int, **fields: Any) -> Data:
    """A pool of machines that form an NVLink domain."""
    return stack(
        cluster=GCP,
        pools={"gb200": pool("a4x-highgpu-4g", nodes, capacity={"kind": "reserved", "reservation": "gb200"}, **fields)},
        teams={"a": team(gpus={"gb200": {"guaranteed": 8}})},
    )


def pool_of(sections: Data, name: str = "h100") -> Any:
    (pool_plan,) = (pool for pool in planned(sections).cluster.pools if pool.name == name)
    return pool_plan


def test_zones_that_the_catalogue_does_not_know_are_not_checked() -> None:
    row = {"cpu": 96, "memory": "1Ti", "gpu": "h100-80gb", "gpus": 8, "accelerator": "nvidia-h100-80gb"}
    sections = on("gcp", zones=["us-central1-f"]) | {"cluster": {**REGIONAL, **PROVIDED}}
    assert errors(sections) != []
    assert errors(sections | {"machines": {H100["gcp"]: row}}) == []
    known = {**row, "zones": ["us-central1-a"]}
    (problem,) = errors(sections | {"machines": {H100["gcp"]: known}})
    assert "us-central1-f does not have a3-highgpu-8g; set pools.h100.zones to one or more of: us-central1-a" in problem


def test_node_locations_are_the_zones_of_pools_without_their_own() -> None:
    located = {**REGIONAL, "create": {**GKE, "nodeLocations": ["us-central1-a", "us-central1-b"]}}
    assert errors(on("gcp") | {"cluster": located}) == []


def test_a_pool_without_gpus_leaves_its_zones_to_gke() -> None:
    sections = stack(cluster={**REGIONAL, **PROVIDED}, pools={"cpu": pool("n2-standard-32", 3)}, teams={})
    assert errors(sections) == []


def test_a_compact_pool_may_name_the_policy_of_its_reservation() -> None:
    reserved = {"kind": "reserved", "reservation": "ml-h100"}
    assert errors(on("gcp", compact=True, placementPolicy="ml-h100", capacity=reserved)) == []


def test_a_rack_of_gb200_is_a_pool() -> None:
    assert errors(gb200(18)) == []


def test_an_exclusion_may_be_a_date_of_yaml() -> None:
    text = "{start: 2026-12-18, end: 2026-12-31}"
    creation = {**GKE, "maintenance": {"exclusions": {"launch": yaml.safe_load(text)}}}
    assert errors(on("gcp") | {"cluster": {**GCP, "create": creation}}) == []


def test_scratch_space_on_gke_is_on_the_local_ssds_of_the_machine() -> None:
    def problems(scratch: str, **row: Any) -> list[str]:
        owner = team(gpus={"h100": {"guaranteed": 8}}, training={"t": job(flavor="h100", scratch=scratch)})
        machines = {"machines": {H100["gcp"]: {**OWN_H100, **row}}} if row else {}
        return errors(on("gcp", teams={"a": owner}) | machines)

    assert problems("5Ti") == []
    (problem,) = problems("6Ti")
    assert problem.endswith("6Ti is more than the 6000Gi of the largest disk of nodes of h100; lower it")
    assert problems("6Ti", localDisk="12000Gi") == []


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


def test_a_pool_that_is_to_be_made_names_its_machine() -> None:
    sections = on("gcp") | {
        "pools": {"h100": {"cpu": 200, "memory": "1Ti", "gpu": "h100-80gb", "gpusPerNode": 8, "nodes": 2}}
    }
    assert errors(sections) == [
        (
            "pools.h100: has no machine type, which GKE needs to create the pool; set machine; if it is not in"
            " the catalogue, add it under machines"
        )
    ]


def test_a_pools_name_is_one_that_its_cloud_takes() -> None:
    sections = on("azure", teams={}) | {"pools": {"gpu-h100": pool(H100["azure"])}}
    assert errors(sections) == [
        (
            "pools.gpu-h100: is not a valid pool name on AKS; use at most 12 lowercase letters and digits,"
            " starting with a letter"
        )
    ]


def test_drivers_that_exclude_each_other_cannot_be_in_one_cluster() -> None:
    pools = {"a": pool(H100["azure"]), "b": pool("Standard_ND96asr_v4", driver="operator")}
    (problem,) = errors(stack(cluster=AZURE, pools=pools, teams={}))
    assert problem.startswith("pools.b.driver: operator needs other GPU Operator values than driver managed of pool a,")
    assert "; set the same driver for both pools" in problem


def test_drivers_that_agree_on_the_operator_can_be_in_one_cluster() -> None:
    pools = {"a": pool(), "b": pool("p4de.24xlarge", driver="bottlerocket")}
    assert errors(stack(cluster=AWS, pools=pools, teams={})) == []


def test_another_driver_than_the_usual_is_approved_by_a_second_word() -> None:
    sections = on("azure", driver="operator")
    assert errors(sections) == []
    assert errors(sections | {"operators": {}}) == [
        (
            "pools.h100.driver: operator needs other GPU Operator values than managed, and the change removes"
            " the driver from running nodes; drain the nodes, then set operators.driver: operator to confirm the"
            " change"
        )
    ]


def test_the_way_back_is_approved_too() -> None:
    (problem,) = errors(on("azure") | {"operators": {"driver": "operator"}})
    assert problem.startswith("pools.h100.driver: managed needs other GPU Operator values than operator,")


def test_modes_that_want_the_same_of_the_operator_need_no_approval() -> None:
    assert errors(on("aws", driver="bottlerocket") | {"operators": {}}) == []


def test_whoever_installs_the_operator_elsewhere_approves_there() -> None:
    assert errors(on("azure", driver="operator") | {"operators": {"gpuOperator": "installed"}}) == []


def test_what_is_approved_is_a_mode_of_the_cloud() -> None:
    assert errors(on("azure") | {"operators": {"driver": "bottlerocket"}}) == [
        "operators.driver: unknown AKS driver mode 'bottlerocket'; use one of: managed, operator"
    ]


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


@pytest.mark.parametrize(("driver", "reason"), [("managed", "need hostIPC"), ("operator", "is not known")])
def test_mps_is_refused_on_gke_with_the_reason(driver: str, reason: str) -> None:
    problems = errors(on("gcp", driver=driver, sharing={"mps": 4}, teams={}))
    (problem,) = [one for one in problems if "sharing.mps" in one]
    assert problem.startswith("pools.h100.sharing.mps: is not supported on GKE with this driver mode (")
    assert reason in problem
    assert problem.endswith("; remove it")


def test_a_container_gets_one_part_of_a_gpu_that_is_shared_by_mps() -> None:
    def with_gpus(gpus: int) -> list[str]:
        quota = {"h100": {"guaranteed": 8}}
        return errors(on("aws", sharing={"mps": 4}, teams={"a": team(gpus=quota, training={"fit": job(gpus=gpus)})}))

    assert with_gpus(1) == []
    assert with_gpus(2) == [
        (
            "teams.a.training.fit.gpus: 2 exceeds 1, the most that a container gets of GPUs shared with mps (h100); set"
            " gpus: 1, lower pools.h100.sharing.mps, or use another flavor"
        )
    ]


def test_faults_of_mps_reach_only_teams_that_accept_it() -> None:
    assert errors(on("aws", teams=SHARED, sharing={"mps": 4})) == [
        (
            "pools.h100.sharing.mps: pods of a and b share a GPU without isolation of faults; use mig, give the flavor"
            " to one team, or confirm that the teams trust each other with trusting: [a, b]"
        )
    ]
    assert errors(on("aws", teams=SHARED, sharing={"mps": {"clients": 4, "trusting": ["a", "b"]}})) == []


def test_a_gpu_is_shared_in_one_way() -> None:
    (problem,) = errors(on("aws", sharing={"mps": 4, "timeSlicing": 4}))
    assert problem == (
        "pools.h100.sharing: must set exactly one of mig, timeSlicing and mps; set one of them, and remove the others"
    )


# Teams that trust each other.

SHARED: Final = {"a": team(gpus={"h100": {"guaranteed": 8}}), "b": team(gpus={"h100": {"guaranteed": 8}})}


def test_time_slicing_between_teams_requires_trust() -> None:
    assert errors(on("aws", teams=SHARED, sharing={"timeSlicing": 4})) == [
        (
            "pools.h100.sharing.timeSlicing: pods of a and b share a GPU without memory isolation; use mig, give"
            " the flavor to one team, or confirm that the teams trust each other with trusting: [a, b]"
        )
    ]
    assert errors(on("aws", teams=SHARED, sharing={"timeSlicing": {"turns": 4, "trusting": ["a", "b"]}})) == []


def test_one_team_may_take_turns_with_itself() -> None:
    assert errors(on("aws", sharing={"timeSlicing": 4})) == []


def test_a_stranger_among_those_who_trust_each_other_is_refused() -> None:
    problems = errors(on("aws", teams=SHARED, sharing={"timeSlicing": {"turns": 4, "trusting": ["a"]}}))
    assert len(problems) == 1


def test_who_is_trusted_is_a_team() -> None:
    problems = errors(on("aws", sharing={"timeSlicing": {"turns": 4, "trusting": ["ab"]}}))
    assert problems == ["pools.h100.sharing.timeSlicing.trusting[0]: unknown team 'ab' (did you mean 'a'?); use a"]


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


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_cluster_declares_that_its_autoscaler_knows_requests_of_the_queue(cloud: str) -> None:
    sections = on(cloud, nodes={"min": 0, "max": 2}, capacity={"kind": "queued"})
    sections["cluster"] = {**sections["cluster"], "provides": ["networkPolicies"]}
    (problem,) = errors(sections)
    assert problem.startswith("cluster.provides: does not include provisioningRequests, which pools ")


def test_gke_requires_the_lifetime_of_queued_nodes() -> None:
    (problem,) = errors(on("gcp", nodes={"min": 0, "max": 2}, capacity={"kind": "queued"}))
    assert problem == ("pools.h100.capacity: queued has no maxRun, which GKE requires; set {kind: queued, maxRun: 7d}")


@pytest.mark.parametrize(("autoscaler", "who"), [("karpenter", "Karpenter ignores"), ("none", "no autoscaler handles")])
def test_queued_nodes_need_an_autoscaler_that_handles_requests(autoscaler: str, who: str) -> None:
    sections = on("aws", nodes={"min": 0, "max": 2}, capacity={"kind": "queued"}, teams={})
    sections["cluster"] = {**sections["cluster"], "autoscaler": autoscaler}
    (problem,) = errors(sections)
    assert problem == (
        f"pools.h100.capacity: queued is not available: {who} requests of Kueue for nodes; set cluster.autoscaler:"
        " cluster-autoscaler, or another kind of capacity"
    )


def test_no_other_pool_needs_a_check() -> None:
    plan = planned(on("gcp", nodes={"min": 0, "max": 2}, capacity={"kind": "flex-start", "maxRun": "2d"}))
    assert plan.queues.checks == ()
    assert queue_of(plan, "a").checks == ()


def test_all_pools_of_a_flavor_are_provisioned_alike() -> None:
    sections = queued(flavor="gpus")
    sections["pools"]["more"] = pool(H100["gcp"], flavor="gpus")
    sections["teams"] = {}
    (problem,) = errors(sections)
    assert problem.startswith("pools.more.capacity: on-demand differs from pool h100 (queued)")


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


def test_a_machine_type_has_gpu_and_count_together() -> None:
    sections = on("aws") | {"machines": {"p9.metal": {"cpu": 256, "memory": "4Ti", "gpu": "h100-80gb"}}}
    assert errors(sections) == ["machines.p9.metal: sets only one of gpu and gpus; set both or remove both"]


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
