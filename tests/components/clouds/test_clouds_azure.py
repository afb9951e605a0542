"""AKS: what is sent for its node pools and to a cluster that exists, from the smallest stack with one thing changed."""

import base64
import json
from typing import Any, Final, cast

import pulumi
import pytest
import yaml
from aks_builders import (
    A100,
    GROUPS,
    RESERVATION,
    SPOT,
    SUBNET,
    SUBSCRIPTION,
    creation,
    cut,
    gpu,
    inputs,
    made,
    only,
    pool,
    sent,
    stack,
)
from aks_description import CLUSTER, POOL
from builders import Data, errors
from components_builders import program
from pulumi_azure_native.containerservice import ListManagedClusterUserCredentialsResult
from pulumi_azure_native.containerservice.outputs import CredentialResultResponse

from components.clouds.azure import own_kubeconfig
from components.clouds.azure.pools import REPLACED
from gpu_tenancy.engine.recording import UNKNOWN
from gpu_tenancy.model.kubeconfig import AKS_SERVER_ID

# Pools


def test_every_pool_of_the_stack_is_a_user_pool_of_its_cluster_in_the_given_subnet() -> None:
    pools = [cast("Any", resource.inputs) for resource in sent(stack()) if resource.type == POOL]
    assert [pool["agentPoolName"] for pool in pools] == ["cpu", "gpu"]
    assert {(pool["mode"], pool["resourceGroupName"], pool["vnetSubnetID"]) for pool in pools} == {
        ("User", "ml-group", SUBNET)
    }
    assert all(pool["resourceName"] == UNKNOWN for pool in pools)  # The cluster's own word, so that it comes first.
    assert gpu()["vmSize"] == A100


def test_a_pool_is_created_in_the_named_subscription() -> None:
    registrations = sent(stack())
    (provider,) = (resource for resource in registrations if resource.type == "pulumi:providers:azure-native")
    assert provider.inputs["subscriptionId"] == SUBSCRIPTION
    pools = [resource for resource in registrations if resource.type == POOL]
    assert all(pool.provider.startswith(provider.urn) for pool in pools)


def test_autoscaled_pools_have_bounds_and_no_count() -> None:
    sections = stack(gpu=pool(nodes={"min": 1, "max": 4}))
    pool_inputs = inputs(sections)
    assert (pool_inputs["enableAutoScaling"], pool_inputs["minCount"], pool_inputs["maxCount"]) == (True, 1, 4)
    assert "count" not in pool_inputs  # An update would set it back.
    assert only(sections, POOL, "-gpu").ignore_changes == ("count",)


def test_a_pool_can_scale_from_0() -> None:
    sections = stack(idle=pool("Standard_NC4as_T4_v3", nodes={"min": 0, "max": 2}))
    pool_inputs = inputs(sections, "idle")
    assert (
        pool_inputs["enableAutoScaling"],
        pool_inputs["minCount"],
        pool_inputs["maxCount"],
        pool_inputs["mode"],
    ) == (True, 0, 2, "User")


def test_a_fixed_pool_has_no_autoscaler_and_the_stacks_size() -> None:
    sections = stack(gpu=pool(nodes=2))
    pool_inputs = inputs(sections)
    assert (pool_inputs["enableAutoScaling"], pool_inputs["count"]) == (False, 2)
    assert not {"minCount", "maxCount"} & set(pool_inputs)
    assert only(sections, POOL, "-gpu").ignore_changes == ()


def test_gpu_nodes_have_the_gpus_taint_and_the_stacks_own_and_others_only_the_latter() -> None:
    own = [{"key": "example.com/team", "value": "a", "effect": "NoExecute"}]
    sections = stack(gpu=pool(taints=own), cpu={"machine": "Standard_D32s_v5", "nodes": 3, "taints": own})
    assert inputs(sections)["nodeTaints"] == ["nvidia.com/gpu=present:NoSchedule", "example.com/team=a:NoExecute"]
    assert inputs(sections, "cpu")["nodeTaints"] == ["example.com/team=a:NoExecute"]


def test_a_taint_without_a_value_is_written_without_one() -> None:
    assert "example.com/slow:NoSchedule" in gpu(taints=[{"key": "example.com/slow"}])["nodeTaints"]


def test_nodes_are_labelled_with_their_gpu_pool_and_capacity_and_the_stacks_own_labels() -> None:
    assert gpu(labels={"example.com/row": "b"})["nodeLabels"] == {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "gpu-tenancy.dev/pool": "gpu",
        "gpu-tenancy.dev/capacity": "on-demand",
        "example.com/row": "b",
    }


def test_on_demand_is_regular_priority_without_a_price() -> None:
    pool_inputs = gpu()
    assert pool_inputs["scaleSetPriority"] == "Regular"
    assert not {"scaleSetEvictionPolicy", "spotMaxPrice", "capacityReservationGroupID"} & set(pool_inputs)


def test_spot_pools_have_akss_label_and_no_upgrade_settings() -> None:
    pool_inputs = gpu(capacity="spot")
    assert (pool_inputs["scaleSetPriority"], pool_inputs["scaleSetEvictionPolicy"], pool_inputs["spotMaxPrice"]) == (
        "Spot",
        "Delete",
        -1,
    )
    assert pool_inputs["nodeTaints"] == ["nvidia.com/gpu=present:NoSchedule", f"{SPOT}=spot:NoSchedule"]
    assert pool_inputs["nodeLabels"][SPOT] == "spot"
    assert "upgradeSettings" not in pool_inputs
    assert pool_inputs["type"] == "VirtualMachineScaleSets"


def test_reserved_names_the_reservation_group() -> None:
    pool_inputs = inputs(
        stack(t4=pool("Standard_NC64as_T4_v3", capacity={"kind": "reserved", "reservation": RESERVATION})), "t4"
    )
    assert (pool_inputs["capacityReservationGroupID"], pool_inputs["scaleSetPriority"]) == (RESERVATION, "Regular")


def test_a_block_reservation_is_a_reservation_group_too() -> None:
    block = {"kind": "capacity-block", "reservation": RESERVATION}
    assert gpu(nodes={"min": 0, "max": 2}, capacity=block)["capacityReservationGroupID"] == RESERVATION


def test_aks_installs_the_driver_unless_the_gpu_operator_does() -> None:
    assert gpu()["gpuProfile"] == {"driver": "Install"}
    assert gpu(driver="operator")["gpuProfile"] == {"driver": "None"}


def test_a_pool_without_gpus_has_no_driver() -> None:
    assert "gpuProfile" not in inputs(stack(), "cpu")


def test_amds_gpus_get_no_driver_of_akss_and_the_taint_of_their_own_resource() -> None:
    pool_inputs = inputs(stack(amd=pool("Standard_ND96isr_MI300X_v5")), "amd")
    assert pool_inputs["gpuProfile"] == {"driver": "None"}
    assert pool_inputs["nodeTaints"] == ["amd.com/gpu=present:NoSchedule"]


@pytest.mark.parametrize(
    ("machine", "profile", "name"),
    [
        (A100, "1g.10gb", "MIG1g"),
        (A100, "2g.20gb", "MIG2g"),
        (A100, "3g.40gb", "MIG3g"),
        (A100, "4g.40gb", "MIG4g"),
        (A100, "7g.80gb", "MIG7g"),
        ("Standard_ND96asr_v4", "1g.5gb", "MIG1g"),
        ("Standard_NC40ads_H100_v5", "1g.12gb", "MIG1g"),
        ("Standard_ND96isr_H200_v5", "2g.35gb", "MIG2g"),
    ],
)
def test_aks_cuts_gpus_by_its_own_names_for_the_partitions(machine: str, profile: str, name: str) -> None:
    pool_inputs = inputs(stack(cut=cut(machine, profile)), "cut")
    assert pool_inputs["gpuInstanceProfile"] == name


def test_mig_by_the_operator_is_a_label_and_no_input_of_aks() -> None:
    pool_inputs = gpu(nodes=4, sharing={"mig": {"profile": "1g.20gb"}}, driver="operator")
    assert "gpuInstanceProfile" not in pool_inputs
    assert pool_inputs["nodeLabels"]["nvidia.com/mig.config"] == "all-1g.20gb"


def test_pods_that_take_turns_are_the_gpu_operators_too() -> None:
    pool_inputs = gpu(sharing={"timeSlicing": 4})
    assert "gpuInstanceProfile" not in pool_inputs
    assert pool_inputs["nodeLabels"]["nvidia.com/device-plugin.config"] == "gpu"


def test_zones_are_those_of_the_pool_or_left_to_azure() -> None:
    assert gpu(zones=["1", "3"])["availabilityZones"] == ["1", "3"]
    assert "availabilityZones" not in gpu()


def test_compact_nodes_share_a_place_that_has_their_machines() -> None:
    sections = stack(gpu=pool(compact=True, zones=["2"]))
    place = cast("Any", only(sections, "azure-native:compute:ProximityPlacementGroup").inputs)
    assert (place["proximityPlacementGroupName"], place["zones"], place["intent"]) == (
        "ml-gpu",
        ["2"],
        {"vmSizes": [A100]},
    )
    assert "proximityPlacementGroupID" in inputs(sections)
    assert "proximityPlacementGroupID" not in inputs(sections, "cpu")


def test_infiniband_needs_no_input_of_the_pool() -> None:
    assert gpu(fabric=True) == gpu()


@pytest.mark.parametrize(("size", "gib"), [("512Gi", 512), ("100G", 94)])
def test_boot_disks_are_sized_in_gib_and_encrypted_at_host(size: str, gib: int) -> None:
    pool_inputs = gpu(disk={"size": size})
    assert (pool_inputs["osDiskSizeGB"], pool_inputs["osDiskType"], pool_inputs["enableEncryptionAtHost"]) == (
        gib,
        "Managed",
        True,
    )


def test_no_node_has_a_public_address() -> None:
    pools = [cast("Any", resource.inputs) for resource in sent(stack(creation())) if resource.type == POOL]
    system = made(stack(creation()))["agentPoolProfiles"]
    assert [pool["enableNodePublicIP"] for pool in (*pools, *system)] == [False, False, False]


def test_an_upgrade_adds_no_gpu_node_and_takes_one_away_at_a_time() -> None:
    assert gpu()["upgradeSettings"] == {"maxSurge": "0", "maxUnavailable": "1", "drainTimeoutInMinutes": 60}
    assert inputs(stack(), "cpu")["upgradeSettings"]["maxSurge"] == "1"


def test_nodes_without_gpus_use_secure_boot() -> None:
    assert inputs(stack(), "cpu")["securityProfile"] == {"enableSecureBoot": True, "enableVTPM": True}
    assert "securityProfile" not in gpu()


def test_arm_has_no_such_boot() -> None:
    arm = {"cpu": 32, "memory": "128Gi", "architecture": "arm64"}
    sections = stack(arm={"machine": "Standard_D32ps_v6", "nodes": 1, "labels": {"node-type": "arm"}})
    pool_inputs = inputs(sections | {"machines": {"Standard_D32ps_v6": arm}}, "arm")
    assert pool_inputs["vmSize"] == "Standard_D32ps_v6"
    assert "securityProfile" not in pool_inputs


def test_a_pool_is_deleted_before_its_replacement() -> None:
    assert only(stack(), POOL, "-gpu").delete_before_replace


def test_changes_of_immutable_properties_replace_the_pool() -> None:
    assert set(only(stack(), POOL, "-gpu").replace_on_changes) == set(REPLACED)


UPDATED = {
    # https://learn.microsoft.com/cli/azure/aks/nodepool#az-aks-nodepool-update
    *("enableAutoScaling", "minCount", "maxCount", "count", "nodeLabels", "nodeTaints", "tags", "upgradeSettings"),
    *("orchestratorVersion", "securityProfile"),
}
BY_PROVIDER = {"vmSize", "gpuInstanceProfile"}
"""https://github.com/pulumi/pulumi-azure-native/blob/master/provider/pkg/gen/replacement.go."""
NAMES = {"agentPoolName", "resourceGroupName", "resourceName"}
"""In the path of the request, so another value is another pool."""
CONSTANT = {"mode": "User", "type": "VirtualMachineScaleSets", "osType": "Linux", "osSKU": "Ubuntu"}


def test_the_effect_of_a_change_is_known_for_each_property() -> None:
    reserved = {"kind": "reserved", "reservation": RESERVATION}
    pools: dict[str, Data] = {
        "fixed": cut(A100, "1g.10gb"),
        "spot": pool(capacity="spot", labels={"example.com/spot": "yes"}),
        "near": pool(compact=True, zones=["1"], numa="restricted", labels={"example.com/near": "yes"}),
        "t4": pool("Standard_NC64as_T4_v3", capacity=reserved),
    }
    sections = stack(creation())
    sections["pools"] |= pools
    sent_keys = {key for name in ("cpu", "gpu", *pools) for key in inputs(sections, name)}
    top = {key.partition(".")[0] for key in REPLACED}
    constant = set(CONSTANT) | {"enableNodePublicIP"}
    assert sent_keys == top | UPDATED | BY_PROVIDER | NAMES | constant
    assert all(inputs(sections, name)[key] == value for name in pools for key, value in CONSTANT.items())
    assert set(inputs(sections)["gpuProfile"]) == {"driver"}


def test_a_placement_group_whose_machines_change_is_replaced_after_its_pool() -> None:
    group = only(stack(gpu=pool(compact=True, zones=["2"])), "azure-native:compute:ProximityPlacementGroup")
    assert set(group.replace_on_changes) == {"intent", "zones"}
    assert group.delete_before_replace
    # The pool is deleted first, because its property uses the group.
    nodes = only(stack(gpu=pool(compact=True, zones=["2"])), POOL, "-gpu")
    assert group.urn in nodes.property_dependencies["proximityPlacementGroupID"]
    assert "proximityPlacementGroupID" in nodes.replace_on_changes


def test_hosts_without_encryption_do_not_request_it() -> None:
    row = {"cpu": 96, "memory": "1900Gi", "gpu": "a100-80gb", "gpus": 8, "hostEncryption": False}
    sections = stack(gpu=pool()) | {"machines": {A100: row}}
    assert inputs(sections)["enableEncryptionAtHost"] is False
    assert gpu()["enableEncryptionAtHost"] is True


@pytest.mark.parametrize("driver", ["managed", "operator"])
def test_pools_with_mig_have_a_fixed_size(driver: str) -> None:
    parts = pool(
        "Standard_NC24ads_A100_v4",
        nodes={"min": 1, "max": 4},
        sharing={"mig": {"profile": "1g.10gb"}},
        driver=driver,
        labels={"example.com/cut": "yes"},
    )
    whole = pool(driver=driver, labels={"example.com/whole": "yes"})
    (problem,) = [text for text in errors(stack(gpu=whole, parts=parts)) if "pools.parts.nodes" in text]
    assert problem.endswith(
        "must be a fixed number: the autoscaler of AKS does not add nodes with MIG partitions;"
        " set one number of nodes, such as 4"
    )
    assert errors(stack(gpu=whole, parts={**parts, "nodes": 4})) == []


def test_only_production_resources_are_protected() -> None:
    guarded = {CLUSTER, POOL, "azure-native:managedidentity:UserAssignedIdentity"}
    production = sent(stack(creation(), environment="prod"))
    assert {resource.type for resource in production if resource.protect} == guarded
    assert all(resource.protect for resource in production if resource.type in guarded)
    assert not any(resource.protect for resource in sent(stack(creation())))


def test_all_taggable_resources_have_the_stacks_tags() -> None:
    expected = {"cost-center": "x", "environment": "dev", "managed-by": "gpu-tenancy"}
    registrations = sent(stack(creation() | {"tags": {"cost-center": "x"}}, gpu=pool(compact=True)))
    bare = ("RoleAssignment", "DiagnosticSetting", "MaintenanceConfiguration")
    own = [
        resource
        for resource in registrations
        if resource.type.startswith("azure-native:") and not resource.type.endswith(bare)
    ]
    assert len({resource.type for resource in own}) == 4
    assert all(resource.inputs["tags"] == expected for resource in own)


# A cluster that exists


def test_a_cluster_that_exists_is_only_read() -> None:
    registrations = sent(stack())
    (cluster,) = (resource for resource in registrations if resource.type == CLUSTER)
    assert cluster.external_id == f"{GROUPS}/ml-group/providers/Microsoft.ContainerService/managedClusters/ml"
    azure_types = {
        resource.type
        for resource in registrations
        if resource.type.startswith("azure-native:") and not resource.external_id
    }
    assert azure_types == {POOL}


def test_its_kubernetes_provider_has_a_stable_cluster_identifier() -> None:
    provider = only(stack(), "pulumi:providers:kubernetes")
    assert provider.inputs["clusterIdentifier"] == "ml"
    assert provider.inputs["kubeconfig"] == UNKNOWN


def credentials(user: Data, server: str = "https://ml.example.com:443") -> ListManagedClusterUserCredentialsResult:
    """What AKS answers."""
    cluster = {"server": server, "certificate-authority-data": "Q0E="}
    config = {
        "clusters": [{"name": "ml", "cluster": cluster}],
        "users": [{"name": "clusterUser_ml", "user": user}],
    }
    value = base64.b64encode(yaml.safe_dump(config).encode()).decode()
    return ListManagedClusterUserCredentialsResult([CredentialResultResponse(name="clusterUser", value=value)])


def test_the_kubeconfig_has_the_clusters_address_and_ca_and_kubelogin_for_its_user() -> None:
    config = json.loads(own_kubeconfig(credentials({})))
    (cluster,) = config["clusters"]
    assert cluster["cluster"] == {"server": "https://ml.example.com:443", "certificate-authority-data": "Q0E="}
    (user,) = config["users"]
    login = user["user"]["exec"]
    assert login["command"] == "kubelogin"
    assert login["args"] == ["get-token", "--login", "azurecli", "--server-id", AKS_SERVER_ID]
    (context,) = config["contexts"]
    assert config["current-context"] == context["name"]
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}


def test_the_kubeconfig_has_no_credential_of_aks() -> None:
    user = {"client-certificate-data": "PUBLIC", "client-key-data": "KEYKEY", "token": "TOKENTOKEN"}
    text = own_kubeconfig(credentials(user))
    assert not any(secret in text for secret in user.values())
    assert "clusterUser" not in text


def test_an_answer_without_a_kubeconfig_names_the_missing_role() -> None:
    with pytest.raises(pulumi.RunError, match="Azure Kubernetes Service Cluster User"):
        own_kubeconfig(ListManagedClusterUserCredentialsResult([]))


def test_a_cluster_of_another_cloud_is_refused() -> None:
    body = """
        from components.clouds.azure import open_cluster
        open_cluster("cluster", made.cluster)
    """
    with pytest.raises(TypeError, match="existing is another cloud"):
        program({"pools": {"cpu": {"cpu": 4, "memory": "16Gi", "nodes": 1}}, "teams": {}}, body)


TEMPLATE: Final = "k8s.io_cluster-autoscaler_node-template_resources_"


@pytest.mark.parametrize(
    ("fields", "devices"),
    [
        ({"machine": "Standard_ND96isr_H100_v5", "fabric": True}, {"nvidia.com_gpu": "8", "rdma_ib": "8"}),
        ({"machine": "Standard_ND96isr_MI300X_v5"}, {"amd.com_gpu": "8"}),
        ({"machine": "Standard_NC64as_T4_v3", "sharing": {"timeSlicing": 4}}, {"nvidia.com_gpu": "16"}),
    ],
)
def test_a_pool_grows_from_zero_only_if_the_autoscaler_knows_its_devices(fields: Data, devices: Data) -> None:
    grows = {"nodes": {"min": 0, "max": 2}, **fields}
    (problem,) = (text for text in errors(stack(gpu=grows)) if "nodes.min" in text)
    assert problem.startswith("pools.gpu.nodes.min: 0 is not possible")
    assert problem.endswith("; set 1 or more, or test cluster.autoscalerTags: true")
    assert not [text for text in errors(stack(gpu={**grows, "nodes": {"min": 1, "max": 2}})) if "nodes.min" in text]
    told = stack(gpu=grows)
    told["cluster"] = {**told["cluster"], "autoscalerTags": True}
    assert errors(told) == []
    tags = inputs(told, "gpu")["tags"]
    assert {tag.removeprefix(TEMPLATE): tags[tag] for tag in tags if tag.startswith(TEMPLATE)} == devices
    whole = {**told, "pools": {**told["pools"], "gpu": {**grows, "nodes": 2}}}
    assert not any(tag.startswith(TEMPLATE) for tag in inputs(whole, "gpu")["tags"])
