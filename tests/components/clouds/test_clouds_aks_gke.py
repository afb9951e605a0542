"""AKS and GKE: inputs that replace a pool, kubeconfigs, rights, and inputs that AKS would refuse."""

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from subprocess import run
from typing import Any, Final, cast

import pulumi
import pytest
import yaml
from aks_description import CLUSTER, DESCRIPTION, POOL, problems_of
from azure.mgmt.containerservice import models
from builders import Data, errors
from cloud_descriptions import Place
from cloud_stacks import DISKS, RESERVED, aks_creation, aks_inputs, aks_nodes, aks_pool, aks_stack, sent
from components_builders import program, texts
from pulumi_azure_native.containerservice import ListManagedClusterUserCredentialsResult
from pulumi_azure_native.containerservice.outputs import CredentialResultResponse
from pulumi_gcp.container import outputs

from components.clouds.azure import own_kubeconfig
from components.clouds.azure.pools import REPLACED
from components.clouds.gcp.access import authority, dns_name, kubeconfig
from components.clouds.gcp.pools import first_nodes
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.kubeconfig import AKS_SERVER_ID


def test_infiniband_needs_no_input_of_the_pool() -> None:
    in_one = aks_pool(zones=["1"])
    assert aks_inputs(aks_stack(gpu={**in_one, "fabric": True})) == aks_inputs(aks_stack(gpu=in_one))


def test_changes_of_immutable_properties_replace_the_pool() -> None:
    assert set(aks_nodes(aks_stack()).replace_on_changes) == set(REPLACED)


def credentials(user: Data, server: str = "https://ml.example.com:443") -> ListManagedClusterUserCredentialsResult:
    cluster = {"server": server, "certificate-authority-data": "Q0E="}
    config = {"clusters": [{"name": "ml", "cluster": cluster}], "users": [{"name": "clusterUser_ml", "user": user}]}
    value = base64.b64encode(yaml.safe_dump(config).encode()).decode()
    return ListManagedClusterUserCredentialsResult([CredentialResultResponse(name="clusterUser", value=value)])


def test_the_kubeconfig_has_address_authority_and_kubelogin() -> None:
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


def test_an_answer_without_a_kubeconfig_names_the_role() -> None:
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
        (
            {"machine": "Standard_ND96isr_H100_v5", "fabric": True, "zones": ["1"]},
            {"nvidia.com_gpu": "8", "rdma_ib": "8"},
        ),
        ({"machine": "Standard_ND96isr_MI300X_v5"}, {"amd.com_gpu": "8"}),
        ({"machine": "Standard_NC64as_T4_v3", "sharing": {"timeSlicing": 4}}, {"nvidia.com_gpu": "16"}),
    ],
)
def test_growth_from_0_needs_tags_of_devices_for_the_autoscaler(fields: Data, devices: Data) -> None:
    grows = {"nodes": {"min": 0, "max": 2}, **fields}
    (problem,) = (text for text in errors(aks_stack(gpu=grows)) if "nodes.min" in text)
    assert problem.startswith("pools.gpu.nodes.min: 0 is not possible")
    assert problem.endswith("; set 1 or more, or test cluster.autoscalerTags: true")
    assert not [text for text in errors(aks_stack(gpu={**grows, "nodes": {"min": 1, "max": 2}})) if "nodes.min" in text]
    told = aks_stack(gpu=grows)
    told["cluster"] = {**told["cluster"], "autoscalerTags": True}
    assert errors(told) == []
    tags = aks_inputs(told, "gpu")["tags"]
    assert {tag.removeprefix(TEMPLATE): tags[tag] for tag in tags if tag.startswith(TEMPLATE)} == devices
    whole = {**told, "pools": {**told["pools"], "gpu": {**grows, "nodes": 2}}}
    assert not any(tag.startswith(TEMPLATE) for tag in aks_inputs(whole, "gpu")["tags"])


def test_role_assignments_have_stable_names() -> None:
    t4 = aks_pool("Standard_NC64as_T4_v3", capacity={"kind": "reserved", "reservation": RESERVED})
    before, after = (
        {
            resource.inputs["scope"]: resource.urn
            for resource in sent(aks_stack(cluster, t4=t4))
            if "RoleAssignment" in resource.type
        }
        for cluster in (aks_creation(), aks_creation(diskEncryptionSet=DISKS))
    )
    assert len(after) == len(before) + 1
    assert before.items() <= after.items()


def windows(sections: Data) -> dict[str, Any]:
    """Registered maintenance windows, by the name of their configuration."""
    return {
        str(resource.inputs["configName"]): resource.inputs["maintenanceWindow"]
        for resource in sent(sections)
        if resource.type == "azure-native:containerservice:MaintenanceConfiguration"
    }


def test_windows_are_what_aks_describes() -> None:
    exclusions = {"launch": {"start": "2026-11-20", "end": "2026-11-30"}}
    weekly = windows(aks_stack(aks_creation(maintenance={"days": ["saturday"], "exclusions": exclusions})))
    for window in (*windows(aks_stack(aks_creation())).values(), *weekly.values()):
        assert problems_of(models.MaintenanceWindow, window) == []
        for place in places(window):
            if isinstance(place[-1], str):
                copy, around, inner = without(window, place)
                around[f"{place[-1]}X"] = inner
                assert problems_of(models.MaintenanceWindow, copy)


# What no stack of the repository sends, held against AKS's own description

WHOLE: Final = aks_stack(
    aks_creation(diskEncryptionSet=DISKS),
    gpu=aks_pool(compact=True, zones=["1"], driver="operator", labels={"example.com/whole": "yes"}),
    spot=aks_pool(capacity="spot", driver="operator", labels={"example.com/spot": "yes"}),
)


def places(value: object, at: Place = ()) -> Iterator[Place]:
    """The place of every key of some inputs, except in the stack's own maps."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield (*at, key)
            yield from places(inner, (*at, key)) if key not in {"tags", "nodeLabels"} else ()
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from places(inner, (*at, index))


def without(value: object, place: Place) -> tuple[Any, Any, Any]:
    """Inputs without one value: the copy, the value's container, and the value."""
    copy: Any = deepcopy(value)
    around = copy
    for part in place[:-1]:
        around = around[part]
    return copy, around, around.pop(place[-1])


@pytest.fixture(scope="module")
def described() -> list[Registration]:
    return [resource for resource in sent(WHOLE) if resource.type in DESCRIPTION.types]


def test_inputs_of_a_created_cluster_match_azures_model(described: list[Registration]) -> None:
    assert {resource.type for resource in described} == {CLUSTER, POOL}
    assert [DESCRIPTION.problems(resource.type, resource.inputs) for resource in described] == [[]] * len(described)


def test_a_mutation_of_each_of_its_inputs_is_noticed(described: list[Registration]) -> None:
    missed: list[tuple[str, Place]] = []
    for resource in described:
        required, words = (
            DESCRIPTION.required(resource.type, resource.inputs),
            DESCRIPTION.enumerated(resource.type, resource.inputs),
        )
        assert len(required) >= 3
        assert len(words) >= 5
        for place in (key_path for key_path in places(resource.inputs) if not isinstance(key_path[-1], int)):
            copy, around, inner = without(resource.inputs, place)
            if place in required and not DESCRIPTION.problems(resource.type, copy):
                missed.append(("missing", place))
            around[f"{place[-1]}X"] = inner
            if not DESCRIPTION.problems(resource.type, copy):
                missed.append(("key", place))
        for place in words:
            copy, around, inner = without(resource.inputs, place)
            around[place[-1]] = f"{inner}X"
            if not DESCRIPTION.problems(resource.type, copy):
                missed.append(("word", place))
    assert missed == []


@pytest.mark.parametrize(
    ("token", "change", "said"),
    [
        (POOL, {"count": 9}, "not in order"),
        (POOL, {"count": "1"}, "is no"),
        (POOL, {"provisioningState": "Succeeded"}, "AKS's to write"),
        (POOL, {"agentPoolName": "Not-A-Name"}, "no name of a Linux node pool"),
        (POOL, {"nodeLabels": {"kubernetes.azure.com/x": "y"}}, "prefix of AKS's own"),
        (POOL, {"nodeTaints": ["a=b:Sometimes"]}, "is no taint"),
        (POOL, {"nodeTaints": ["a=b:NoSchedule", "a=c:NoSchedule"]}, "two taints of one key"),
        (POOL, {"osDiskSizeGB": 4096}, "between 0 and 2048"),
        (POOL, {"upgradeSettings": {"maxSurge": "0", "maxUnavailable": "0"}}, "neither adds a node"),
        (POOL, {"upgradeSettings": {"maxSurge": "many"}}, "neither a number"),
        (POOL, {"scaleSetPriority": "Spot"}, "has the spot taint"),
        (POOL, {"capacityReservationGroupID": RESERVED}, "proximity placement group"),
        (POOL, {"availabilityZones": ["1", "2"]}, "is in one zone"),
        (POOL, {"gpuProfile": {"driver": "Install"}, "securityProfile": {"enableSecureBoot": True}}, "Secure Boot"),
        (CLUSTER, {"agentPoolProfiles": []}, "no system pool"),
        (CLUSTER, {"identity": {"type": "SystemAssigned"}}, "by an identity that was there before it"),
        (CLUSTER, {"tags": {"a": 1}}, "is no"),
    ],
)
def test_documented_rules_of_aks_are_checked(
    described: list[Registration], token: str, change: Data, said: str
) -> None:
    (registration,) = (
        resource
        for resource in described
        if resource.type == token and resource.name.endswith(("-gpu", "-control-plane-cluster"))
    )
    assert any(said in problem for problem in DESCRIPTION.problems(token, {**registration.inputs, **change}))


# GKE: the driver installer, numbers of nodes, kubeconfigs, and what the program imports


def test_queued_pools_have_the_taint_of_gke() -> None:
    assert clouds()["gcp"].capacity["queued"].taints == ("cloud.google.com/gke-queued=true:NoSchedule",)


@pytest.mark.parametrize(
    ("least", "most", "zones", "first"),
    [(0, 4, 3, 0), (2, 3, 3, 1), (2, 2, 3, 0), (4, 9, 3, 2), (4, 4, 1, 4), (3, 4, 2, 2)],
)
def test_nodes_of_each_zone_begin_with_the_minimum(least: int, most: int, zones: int, first: int) -> None:
    assert first_nodes(least, most, zones) == first
    assert first * zones <= most


def test_the_kubeconfig_of_a_dns_name_trusts_public_authorities() -> None:
    dns = outputs.ClusterControlPlaneEndpointsConfigDnsEndpointConfig(endpoint="gke-0a1b.us-central1.gke.goog")
    name = dns_name(outputs.ClusterControlPlaneEndpointsConfig(dns_endpoint_config=dns))
    assert dns_name(outputs.ClusterControlPlaneEndpointsConfig()) == ""
    config = json.loads(kubeconfig({"name": "ml", "endpoint": name, "authority": None}))
    assert config["clusters"][0]["cluster"] == {"server": "https://gke-0a1b.us-central1.gke.goog"}


def test_the_kubeconfig_uses_googles_plugin_without_a_credential() -> None:
    config = json.loads(kubeconfig({"name": "ml", "endpoint": "203.0.113.7", "authority": "Q0E="}))
    server = {"server": "https://203.0.113.7", "certificate-authority-data": "Q0E="}
    assert config["clusters"][0]["cluster"] == server
    (user,) = config["users"]
    assert set(user["user"]) == {"exec"}
    assert user["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    assert config["current-context"] == config["contexts"][0]["name"]
    assert not [text for _, text in texts(config) if "token" in text or "client-key" in text]


def test_the_certificate_authority_is_the_clusters_or_unknown() -> None:
    assert authority(outputs.ClusterMasterAuth(client_certificate_config={}, cluster_ca_certificate="Q0E=")) == "Q0E="  # pyright: ignore[reportArgumentType]
    assert authority(outputs.ClusterMasterAuth(client_certificate_config={})) == ""  # pyright: ignore[reportArgumentType]


@pytest.mark.process
@pytest.mark.slow
def test_no_other_clouds_package_is_imported() -> None:
    code = "import components.clouds.gcp, sys; print(*sys.modules)"
    imported = set(run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert "pulumi_gcp" in imported
    assert not imported & {"pulumi_aws", "pulumi_azure_native"}
