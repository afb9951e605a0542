"""AKS: what is sent for a cluster that is made, held against AKS's own description, since no stack here makes one."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, cast

import pytest
from aks_builders import (
    ADMINS,
    DISKS,
    GROUPS,
    KEY,
    LOGS,
    RESERVATION,
    SUBNET,
    TENANT,
    VAULT,
    creation,
    gpu,
    inputs,
    made,
    only,
    pool,
    sent,
    stack,
)
from aks_description import CLUSTER, DESCRIPTION, POOL, problems_of
from azure.mgmt.containerservice import models
from builders import Data, errors
from cloud_descriptions import Place

from gpu_tenancy.engine.recording import Registration


def test_a_cluster_is_private_where_the_stack_names_no_networks() -> None:
    entrance = made(stack(creation()))["apiServerAccessProfile"]
    assert entrance["enablePrivateCluster"] is True
    assert entrance["enablePrivateClusterPublicFQDN"] is False
    assert entrance["disableRunCommand"] is True
    assert "authorizedIPRanges" not in entrance


def test_networks_that_the_stack_names_are_all_that_reach_the_api_server() -> None:
    entrance = made(stack(creation(allowFrom=["203.0.113.0/24"])))["apiServerAccessProfile"]
    assert entrance == {"authorizedIPRanges": ["203.0.113.0/24"], "disableRunCommand": True}


def test_only_entra_groups_administer() -> None:
    cluster = made(stack(creation()))
    assert cluster["disableLocalAccounts"] is True
    assert cluster["aadProfile"] == {
        "managed": True,
        "tenantID": TENANT,
        "adminGroupObjectIDs": [ADMINS],
        "enableAzureRBAC": False,
    }


def test_a_cluster_without_administrators_is_refused_on_aks() -> None:
    assert any("cluster.create.admins" in problem for problem in errors(stack(creation(admins=[]))))


def test_secrets_are_encrypted_by_the_key_of_the_stack_by_an_identity_that_may_use_it() -> None:
    registrations = sent(stack(creation()))
    cluster = made(stack(creation()))
    assert cluster["securityProfile"]["azureKeyVaultKms"] == {
        "enabled": True,
        "keyId": KEY,
        "keyVaultNetworkAccess": "Public",
    }
    assert cluster["identity"]["type"] == "UserAssigned"
    roles = [resource for resource in registrations if resource.type.endswith("RoleAssignment")]
    sent_roles = [cast("Mapping[str, str]", role.inputs) for role in roles]
    scopes = {(resource["scope"], resource["roleDefinitionId"].rpartition("/")[2]) for resource in sent_roles}
    assert scopes == {
        (SUBNET, "4d97b98b-1d4f-4787-a291-c67834d212e7"),
        (VAULT, "12338af0-0e69-4776-bea7-57ae8d297424"),
    }
    assert {resource["principalType"] for resource in sent_roles} == {"ServicePrincipal"}
    (resource,) = (resource for resource in registrations if resource.type == CLUSTER)
    assert {str(role.urn) for role in roles} <= set(resource.dependencies)


def test_the_identity_may_use_each_resource_group_with_reservations_once() -> None:
    reserved = {"kind": "reserved", "reservation": RESERVATION}
    t4 = pool("Standard_NC64as_T4_v3", capacity=reserved)
    more = pool("Standard_NC24ads_A100_v4", capacity={**reserved, "reservation": RESERVATION.replace("a100", "other")})
    scopes = [
        resource.inputs["scope"]
        for resource in sent(stack(creation(), t4=t4, more=more))
        if "RoleAssignment" in resource.type
    ]
    assert sorted(map(str, scopes)) == sorted([SUBNET, VAULT, f"{GROUPS}/reserved"])


def test_role_assignments_have_stable_names() -> None:
    t4 = pool("Standard_NC64as_T4_v3", capacity={"kind": "reserved", "reservation": RESERVATION})
    before, after = (
        {
            resource.inputs["scope"]: resource.urn
            for resource in sent(stack(cluster, t4=t4))
            if "RoleAssignment" in resource.type
        }
        for cluster in (creation(), creation(diskEncryptionSet=DISKS))
    )
    assert len(after) == len(before) + 1
    assert before.items() <= after.items()


def test_disks_are_encrypted_by_a_key_of_the_stacks_own_where_it_has_one() -> None:
    assert made(stack(creation(diskEncryptionSet=DISKS)))["diskEncryptionSetID"] == DISKS
    assert "diskEncryptionSetID" not in made(stack(creation()))
    scopes = [
        resource.inputs["scope"]
        for resource in sent(stack(creation(diskEncryptionSet=DISKS)))
        if "Role" in resource.type
    ]
    assert DISKS in scopes


def test_audit_logs_are_enabled() -> None:
    setting = cast("Any", only(stack(creation()), "azure-native:monitor:DiagnosticSetting").inputs)
    assert setting["workspaceId"] == LOGS
    assert {log["category"] for log in setting["logs"] if log["enabled"]} == {"kube-audit-admin", "guard"}


def test_patches_come_by_themselves_only_where_they_end_no_job() -> None:
    upgrade = made(stack(creation(gpuUpgrades="windows")))["autoUpgradeProfile"]
    assert upgrade == {"upgradeChannel": "patch", "nodeOSUpgradeChannel": "SecurityPatch"}
    assert made(stack(creation()))["autoUpgradeProfile"] == {"upgradeChannel": "none", "nodeOSUpgradeChannel": "None"}


def test_the_control_plane_is_the_one_with_a_promise_and_has_kubernetes_own_rbac() -> None:
    cluster = made(stack(creation()))
    assert cluster["sku"] == {"name": "Base", "tier": "Standard"}
    assert cluster["enableRBAC"] is True


def test_datasets_on_blob_can_be_mounted() -> None:
    assert made(stack(creation()))["storageProfile"] == {"blobCSIDriver": {"enabled": True}}


def test_nodes_run_the_one_image_that_takes_all_gpus() -> None:
    assert (gpu()["osType"], gpu()["osSKU"]) == ("Linux", "Ubuntu")
    (system,) = made(stack(creation()))["agentPoolProfiles"]
    assert (system["osType"], system["osSKU"], system["enableEncryptionAtHost"]) == ("Linux", "Ubuntu", True)


def test_pods_have_identities_of_their_own() -> None:
    cluster = made(stack(creation()))
    assert cluster["oidcIssuerProfile"] == {"enabled": True}
    assert cluster["securityProfile"]["workloadIdentity"] == {"enabled": True}


def test_system_pods_have_their_own_nodes() -> None:
    sections = stack(creation(system={"machine": "Standard_D16s_v5", "nodes": {"min": 2, "max": 5}}))
    (system,) = made(sections)["agentPoolProfiles"]
    assert (system["mode"], system["vmSize"]) == ("System", "Standard_D16s_v5")
    assert (system["enableAutoScaling"], system["minCount"], system["maxCount"]) == (True, 2, 5)
    assert "count" not in system
    assert not {"gpuProfile", "gpuInstanceProfile"} & set(system)
    assert only(sections, CLUSTER).ignore_changes == ("agentPoolProfiles[0].count",)


def test_system_nodes_take_the_operators_whatever_capacity_the_pools_get() -> None:
    (system,) = made(stack(creation()))["agentPoolProfiles"]
    assert system["nodeTaints"] == []


def windows(sections: Data) -> dict[str, Any]:
    """Maintenance windows that are sent, by the name of their configuration."""
    return {
        str(resource.inputs["configName"]): resource.inputs["maintenanceWindow"]
        for resource in sent(sections)
        if resource.type == "azure-native:containerservice:MaintenanceConfiguration"
    }


def test_upgrades_are_in_a_daily_window_by_default() -> None:
    daily = {
        "schedule": {"daily": {"intervalDays": 1}},
        "startTime": "03:00",
        "durationHours": 4,
        "utcOffset": "+00:00",
    }
    assert windows(stack(creation())) == {
        "aksManagedAutoUpgradeSchedule": daily,
        "aksManagedNodeOSUpgradeSchedule": daily,
    }


def test_upgrades_are_in_the_window_of_the_stack_and_not_in_its_exclusions() -> None:
    maintenance = {
        "start": "22:30",
        "hours": 8,
        "days": ["saturday"],
        "exclusions": {"launch": {"start": "2026-11-20", "end": "2026-11-30"}},
    }
    configurations = windows(stack(creation(maintenance=maintenance)))
    assert set(configurations) == {"aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule", "default"}
    for window in configurations.values():
        assert window == {
            "schedule": {"weekly": {"dayOfWeek": "Saturday", "intervalWeeks": 1}},
            "startTime": "22:30",
            "durationHours": 8,
            "utcOffset": "+00:00",
            "notAllowedDates": [{"start": "2026-11-20", "end": "2026-11-30"}],
        }


def test_windows_are_what_aks_describes() -> None:
    exclusions = {"launch": {"start": "2026-11-20", "end": "2026-11-30"}}
    weekly = windows(stack(creation(maintenance={"days": ["saturday"], "exclusions": exclusions})))
    for window in (*windows(stack(creation())).values(), *weekly.values()):
        assert problems_of(models.MaintenanceWindow, window) == []
        for place in places(window):
            if isinstance(place[-1], str):
                copy, around, inner = without(window, place)
                around[f"{place[-1]}X"] = inner
                assert problems_of(models.MaintenanceWindow, copy)


def test_a_window_on_some_days_of_the_week_is_refused() -> None:
    (problem,) = errors(stack(creation(maintenance={"days": ["saturday", "sunday"]})))
    assert "cluster.create.maintenance" in problem
    assert "set one day, such as saturday, or remove days" in problem


def test_the_version_is_the_clusters_and_all_of_its_pools() -> None:
    sections = stack(creation(version="1.34"))
    cluster = made(sections)
    assert (cluster["kubernetesVersion"], cluster["agentPoolProfiles"][0]["orchestratorVersion"]) == ("1.34", "1.34")
    assert inputs(sections)["orchestratorVersion"] == "1.34"
    assert "orchestratorVersion" not in gpu()  # That of the cluster that exists.


def test_pods_are_in_an_overlay_and_the_name_server_is_the_tenth_of_the_services() -> None:
    network = made(stack(creation(pods="10.200.0.0/16", services="172.20.0.0/16")))["networkProfile"]
    assert (network["networkPluginMode"], network["networkDataplane"]) == ("overlay", "cilium")
    assert (network["podCidr"], network["serviceCidr"], network["dnsServiceIP"]) == (
        "10.200.0.0/16",
        "172.20.0.0/16",
        "172.20.0.10",
    )


@pytest.mark.parametrize(
    ("said", "sent_as"),
    [("load-balancer", "loadBalancer"), ("nat-gateway", "userAssignedNATGateway"), ("routes", "userDefinedRouting")],
)
def test_outbound_access_follows_the_stack(said: str, sent_as: str) -> None:
    assert made(stack(creation(egress=said)))["networkProfile"]["outboundType"] == sent_as


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ({"pods": "10.0.0.0/8"}, "overlap"),
        ({"services": "10.9.0.0/30"}, "tenth address"),
        ({"allowFrom": ["0.0.0.0/0"]}, "to the whole internet"),
    ],
)
def test_networks_that_cannot_be_are_refused(words: Data, place: str) -> None:
    assert any(place in problem for problem in errors(stack(creation(**words))))


# What no stack of the repository sends, held against AKS's own description

WHOLE: Final = stack(
    creation(diskEncryptionSet=DISKS),
    gpu=pool(compact=True, zones=["1"], driver="operator", labels={"example.com/whole": "yes"}),
    spot=pool(capacity="spot", driver="operator", labels={"example.com/spot": "yes"}),
)


def places(value: object, at: Place = ()) -> Iterator[Place]:
    """The place of every key of some inputs, but for those of the stack's own maps."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield (*at, key)
            yield from places(inner, (*at, key)) if key not in {"tags", "nodeLabels"} else ()
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from places(inner, (*at, index))


def without(value: object, place: Place) -> tuple[Any, Any, Any]:
    """A copy of some inputs with something taken out: the copy, what was around it, and the thing itself."""
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
        (POOL, {"capacityReservationGroupID": RESERVATION}, "proximity placement group"),
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
