"""GKE: what each thing that a stack says becomes. Every test starts from the smallest stack and changes one thing."""

import json
import sys
from subprocess import run
from typing import Any, cast

import pytest
from builders import Data, errors
from components_builders import Program, texts
from components_builders import cluster as cluster_of
from gke_description import DESCRIPTION
from gke_rules import CLUSTER, POOL
from pulumi_gcp.container import outputs

from components.clouds.gcp.access import authority, dns_name, kubeconfig
from components.clouds.gcp.pools import first_nodes
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.model.catalogue import find_machine
from gpu_tenancy.model.catalogue.clouds import clouds

GROUPS = {"securityGroup": "gke-security-groups@example.com", "admins": ["admins@example.com"]}
NETWORKS = [{"network": f"gpu-{n}", "subnetwork": f"gpu-{n}-sub"} for n in range(10)]
H100 = {"machine": "a3-highgpu-8g", "nodes": {"min": 0, "max": 2}}
GB200 = {"machine": "a4x-highgpu-4g", "capacity": {"kind": "reserved", "reservation": "gb200"}}
INSTALLER = "nvidia-driver-installer"
REGION = "us-central1"
RESOURCE_POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"


def new(**fields: Any) -> Data:
    """A cluster to be made."""
    creation = {
        "version": "1.35",
        "network": "ml",
        "subnetwork": "ml-sub",
        "podRange": "pods",
        "serviceRange": "services",
        "system": {"machine": "n2-standard-16"},
    }
    return {**creation, **fields}


def zoned(pool: Data) -> Data:
    """A pool in the zones of the region that have its machine type, as a regional cluster requires of GPU pools."""
    machine = find_machine(pool["machine"], "gcp")
    if machine is None or not machine.gpus:
        return pool
    zones = sorted(zone for zone in machine.zones or {f"{REGION}-a"} if zone.startswith(REGION))
    return {"zones": zones, **pool}


def opened(pool: Data | None = None, environment: str = "dev", stack: Data | None = None, **cluster: Any) -> Program:
    """A cluster that exists with one pool of L4s, unless it is said otherwise."""
    section = {"cloud": "gcp", "name": "ml", "project": "example-ml", "location": REGION, **cluster}
    pools = {"gpus": pool or {}, **(stack or {}).get("pools", {})}
    driver = next((pool["driver"] for pool in pools.values() if "driver" in pool), None)
    sections: Data = {
        "operators": {"driver": driver} if driver else {},
        "environment": environment,
        "cluster": section,
        "pools": {"gpus": {"machine": "g2-standard-48", "nodes": {"min": 0, "max": 4}, **(pool or {})}},
        "teams": {},
        **(stack or {}),
    }
    if section["location"] == REGION:
        sections["pools"] = {name: zoned(pool) for name, pool in sections["pools"].items()}
    rendered = cluster_of(sections)
    for registration in rendered.rendered.registrations:
        if registration.type in DESCRIPTION.types and not registration.external_id:
            assert DESCRIPTION.problems(registration.type, registration.inputs) == []
    return rendered


def every(made: Program, token: str) -> list[Registration]:
    return [registration for registration in made.rendered.registrations if registration.type == token]


def the_pool(made: Program, name: str = "gpus") -> Registration:
    (registration,) = (resource for resource in every(made, POOL) if resource.inputs["name"] == name)
    return registration


def said(made: Program, name: str = "gpus") -> Any:
    """The inputs of a pool."""
    return cast("Any", the_pool(made, name).inputs)


def node(made: Program, name: str = "gpus") -> Any:
    return said(made, name)["nodeConfig"]


def gpu(made: Program) -> Any:
    (accelerator,) = node(made)["guestAccelerators"]
    return accelerator


def the_cluster(made: Program) -> Any:
    (registration,) = every(made, CLUSTER)
    return cast("Any", registration.inputs)


def taints(made: Program) -> list[tuple[str, str, str]]:
    return [(taint["key"], taint["value"], taint["effect"]) for taint in node(made)["taints"]]


def test_an_existing_cluster_is_read_and_not_created() -> None:
    (cluster,) = every(opened(), CLUSTER)
    assert cluster.external_id == "projects/example-ml/locations/us-central1/clusters/ml"
    assert not {"gcp:kms/keyRing:KeyRing"} & {registration.type for registration in opened().rendered.registrations}


def test_an_existing_cluster_gets_no_system_pool() -> None:
    assert [resource.inputs["name"] for resource in every(opened(), POOL)] == ["gpus"]


def test_a_pool_has_machine_accelerator_count_and_googles_driver() -> None:
    rendered = opened()
    assert node(rendered)["machineType"] == "g2-standard-48"
    assert gpu(rendered) == {
        "type": "nvidia-l4",
        "count": 4,
        "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
    }
    assert "gke-no-default-nvidia-gpu-device-plugin" not in node(rendered)["labels"]
    assert rendered.every("DaemonSet") == []


def test_a_gpu_newer_than_the_default_driver_gets_the_latest() -> None:
    assert gpu(opened({"machine": "g4-standard-48"}))["gpuDriverInstallationConfig"] == {"gpuDriverVersion": "LATEST"}


def test_the_operators_driver_mode_gives_the_label_and_googles_installer_once() -> None:
    operator = {"machine": "g2-standard-48", "nodes": 1, "driver": "operator", "flavor": "l4"}
    pools = {"gpus": operator, "more": operator}
    rendered = opened(stack={"pools": pools})
    assert gpu(rendered)["gpuDriverInstallationConfig"] == {"gpuDriverVersion": "INSTALLATION_DISABLED"}
    assert node(rendered)["labels"]["gke-no-default-nvidia-gpu-device-plugin"] == "true"
    assert rendered.only("DaemonSet").namespace == "kube-system"


def test_the_driver_installer_runs_only_on_nodes_without_a_driver() -> None:
    spec = opened({"driver": "operator"}).spec("DaemonSet")["template"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {expression["key"]: expression["operator"] for expression in term["matchExpressions"]} == {
        "cloud.google.com/gke-accelerator": "Exists",
        "cloud.google.com/gke-gpu-driver-version": "DoesNotExist",
        "gke-no-default-nvidia-gpu-device-plugin": "In",
    }
    (installer,) = spec["initContainers"]
    assert (installer["image"], installer["imagePullPolicy"]) == ("cos-nvidia-installer:fixed", "Never")
    assert "@sha256:" in spec["containers"][0]["image"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in installer["volumeMounts"]} == volumes
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_a_gpu_pool_is_tainted_and_labelled_by_pool_capacity_and_model() -> None:
    rendered = opened(
        {"taints": [{"key": "example.com/for", "value": "research"}], "labels": {"example.com/rack": "7"}}
    )
    assert taints(rendered) == [
        ("nvidia.com/gpu", "present", "NO_SCHEDULE"),
        ("example.com/for", "research", "NO_SCHEDULE"),
    ]
    assert node(rendered)["labels"] == {
        "example.com/rack": "7",
        "gpu-tenancy.dev/capacity": "on-demand",
        "gpu-tenancy.dev/pool": "gpus",
        "nvidia.com/gpu.product": "NVIDIA-L4",
    }


@pytest.mark.parametrize(
    ("effect", "written"),
    [("NoSchedule", "NO_SCHEDULE"), ("PreferNoSchedule", "PREFER_NO_SCHEDULE"), ("NoExecute", "NO_EXECUTE")],
)
def test_a_taints_effect_is_written_as_gke_does(effect: str, written: str) -> None:
    assert taints(opened({"taints": [{"key": "k", "value": "v", "effect": effect}]}))[-1] == ("k", "v", written)


def test_a_pool_of_cpus_has_neither_accelerator_nor_taint() -> None:
    rendered = opened({"machine": "n2-standard-32", "nodes": 3, "labels": {"node-type": "cpu"}})
    assert "guestAccelerators" not in node(rendered)
    assert taints(rendered) == []
    assert said(rendered)["autoscaling"]["locationPolicy"] == "BALANCED"


def test_on_demand_is_bought_without_any_further_word() -> None:
    rendered = opened()
    assert not {"spot", "flexStart", "maxRunDuration", "reservationAffinity"} & set(node(rendered))
    assert "queuedProvisioning" not in said(rendered)


def test_spot_takes_no_reservation_and_whichever_zone_has_machines() -> None:
    rendered = opened({"capacity": "spot"})
    assert node(rendered)["spot"] is True
    assert node(rendered)["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert said(rendered)["autoscaling"]["locationPolicy"] == "ANY"
    assert taints(rendered) == [("nvidia.com/gpu", "present", "NO_SCHEDULE")]


def test_reserved_takes_that_reservation_and_no_other_machine() -> None:
    rendered = opened({"capacity": {"kind": "reserved", "reservation": "ours"}, "zones": ["us-central1-a"]})
    assert node(rendered)["reservationAffinity"] == {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["ours"],
    }


def test_flex_start_has_a_run_duration_and_no_repair_or_surge() -> None:
    rendered = opened({**H100, "capacity": {"kind": "flex-start", "maxRun": "12h"}})
    assert (node(rendered)["flexStart"], node(rendered)["maxRunDuration"]) == (True, "43200s")
    assert node(rendered)["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    inputs = said(rendered)
    assert inputs["management"] == {"autoRepair": False, "autoUpgrade": True}
    assert "upgradeSettings" not in inputs
    assert "maintenancePolicies" not in inputs
    assert "queuedProvisioning" not in inputs
    assert "spot" not in node(rendered)


def test_queued_pools_are_provisioned_by_requests_with_gkes_taint() -> None:
    rendered = opened({**H100, "capacity": {"kind": "queued", "maxRun": "1d"}})
    assert said(rendered)["queuedProvisioning"] == {"enabled": True}
    assert (node(rendered)["flexStart"], node(rendered)["maxRunDuration"]) == (True, "86400s")
    assert clouds()["gcp"].capacity["queued"].taints == ("cloud.google.com/gke-queued=true:NoSchedule",)
    assert taints(rendered) == [("nvidia.com/gpu", "present", "NO_SCHEDULE")]


def test_the_number_of_nodes_counts_all_zones_together_and_may_begin_at_none() -> None:
    rendered = opened({"nodes": {"min": 0, "max": 7}})
    scaling = said(rendered)["autoscaling"]
    assert scaling == {"totalMinNodeCount": 0, "totalMaxNodeCount": 7, "locationPolicy": "ANY"}
    assert said(rendered)["initialNodeCount"] == 0


def test_the_autoscaler_owns_the_number_of_nodes() -> None:
    assert {"initialNodeCount", "nodeCount"} <= set(the_pool(opened()).ignore_changes)
    assert "nodeCount" not in said(opened())


@pytest.mark.parametrize(
    ("least", "most", "zones", "first"),
    [(0, 4, 3, 0), (2, 3, 3, 1), (2, 2, 3, 0), (4, 9, 3, 2), (4, 4, 1, 4), (3, 4, 2, 2)],
)
def test_nodes_begin_with_as_many_as_there_must_be_in_each_zone(least: int, most: int, zones: int, first: int) -> None:
    assert first_nodes(least, most, zones) == first
    assert first * zones <= most


def test_a_pool_in_one_zone_begins_with_all_its_nodes_there() -> None:
    inputs = said(opened({"nodes": {"min": 2, "max": 4}, "zones": ["us-central1-b"]}))
    assert (inputs["nodeLocations"], inputs["initialNodeCount"]) == (["us-central1-b"], 2)


def test_a_cluster_of_one_zone_has_no_more() -> None:
    assert said(opened({"nodes": 2}, location="us-central1-b"))["initialNodeCount"] == 2


def test_an_upgrade_takes_gpu_nodes_away_before_it_adds_any() -> None:
    assert said(opened())["upgradeSettings"] == {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 1}
    cpus = opened({"machine": "n2-standard-32"})
    assert said(cpus)["upgradeSettings"] == {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0}


def test_compact_nodes_have_a_placement_policy() -> None:
    rendered = opened({"machine": "a2-ultragpu-8g", "compact": True, "zones": ["us-central1-a"]})
    assert said(rendered)["placementPolicy"] == {"type": "COMPACT"}
    assert "placementPolicy" not in said(opened())


def test_nodes_with_fabric_have_gvnic() -> None:
    assert node(opened({**H100, "fabric": True}, fabricNetworks=NETWORKS))["gvnic"] == {"enabled": True}


def test_a_fabric_takes_only_the_networks_that_are_not_anothers() -> None:
    networks = [{**network, "fabric": "gpudirect-rdma"} for network in NETWORKS[:5]] + NETWORKS[5:]
    rendered = opened({**H100, "fabric": True}, fabricNetworks=networks)
    network = said(rendered)["networkConfig"]
    assert network["additionalNodeNetworkConfigs"] == NETWORKS[5:9]


def test_a_compact_pool_of_a_reservation_uses_the_reservations_own_policy() -> None:
    reserved = {"kind": "reserved", "reservation": "ours"}
    pool = {"machine": "a2-ultragpu-8g", "compact": True, "zones": ["us-central1-a"], "capacity": reserved}
    rendered = opened({**pool, "placementPolicy": "ours-compact"})
    assert said(rendered)["placementPolicy"] == {"type": "COMPACT", "policyName": "ours-compact"}
    assert every(rendered, RESOURCE_POLICY) == []


@pytest.mark.slow
def test_gb200_machines_are_placed_in_one_nvlink_domain() -> None:
    rendered = opened({**GB200, "nodes": 18})
    (policy,) = every(rendered, RESOURCE_POLICY)
    assert policy.inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "1x72"}
    assert (policy.inputs["region"], policy.inputs["project"]) == (REGION, "example-ml")
    assert said(rendered)["placementPolicy"] == {"type": "COMPACT", "policyName": policy.inputs["name"]}


def test_an_existing_policy_replaces_that_of_the_nvlink_domain() -> None:
    rendered = opened({**GB200, "placementPolicy": "ours"})
    assert every(rendered, RESOURCE_POLICY) == []
    assert said(rendered)["placementPolicy"]["policyName"] == "ours"


def test_images_are_streamed_only_where_the_stack_sets_it() -> None:
    rendered = opened(create=new(), imageStreaming=True)
    assert [cast("Any", pool.inputs)["nodeConfig"]["gcfsConfig"] for pool in every(rendered, POOL)] == [
        {"enabled": True},
        {"enabled": True},
    ]
    assert "gcfsConfig" not in node(opened())


def test_images_of_a_disk_image_are_on_a_secondary_boot_disk_of_nodes_that_stream() -> None:
    image = "projects/example-ml/global/images/training"
    pool = {"machine": "g2-standard-48", "nodes": 1, "zones": [f"{REGION}-a"], "imageDisk": image}
    config = node(opened(pool, imageStreaming=True))
    assert config["secondaryBootDisks"] == [{"diskImage": image, "mode": "CONTAINER_IMAGE_CACHE"}]
    with pytest.raises(Exception, match="needs image streaming"):
        opened(pool)


def test_the_cluster_and_pools_without_zones_have_the_node_locations() -> None:
    rendered = opened(
        {"machine": "n2-standard-32", "nodes": {"min": 2, "max": 4}},
        create=new(nodeLocations=["us-central1-a", "us-central1-c"]),
    )
    assert the_cluster(rendered)["nodeLocations"] == ["us-central1-a", "us-central1-c"]
    assert said(rendered)["initialNodeCount"] == 1
    assert "nodeLocations" not in the_cluster(opened(create=new()))


def test_google_serves_no_metrics_of_gpus_beside_the_gpu_operators_exporter() -> None:
    components = the_cluster(opened(create=new()))["monitoringConfig"]["enableComponents"]
    assert "SYSTEM_COMPONENTS" in components
    assert "DCGM" not in components


def test_upgrades_are_in_a_daily_window_by_default_but_not_of_gpu_pools() -> None:
    assert the_cluster(opened(create=new()))["maintenancePolicy"] == {"dailyMaintenanceWindow": {"startTime": "03:00"}}
    assert said(opened(H100))["maintenancePolicies"] == [{"exclusionUntilEndOfSupports": [{"enabled": True}]}]
    assert "maintenancePolicies" not in said(opened({"machine": "n2-standard-32"}))
    assert "maintenancePolicies" not in said(opened(H100, gpuUpgrades="windows"))


def test_upgrades_are_in_the_windows_of_the_stack_and_not_in_its_exclusions() -> None:
    maintenance = {
        "start": "22:30",
        "hours": 6,
        "days": ["saturday", "sunday"],
        "exclusions": {
            "launch": {"start": "2026-11-20", "end": "2026-11-30"},
            "training": {"start": "2026-12-01", "scope": "minor-or-node-upgrades"},
        },
    }
    policy = the_cluster(opened(create=new(maintenance=maintenance)))["maintenancePolicy"]
    window = policy["recurringWindow"]
    assert (window["startTime"], window["endTime"]) == ("2026-01-01T22:30:00Z", "2026-01-02T04:30:00Z")
    assert window["recurrence"] == "FREQ=WEEKLY;BYDAY=SA,SU"
    launch, training = policy["maintenanceExclusions"]
    # The last day counts.
    assert (launch["startTime"], launch["endTime"]) == ("2026-11-20T00:00:00Z", "2026-12-01T00:00:00Z")
    assert launch["exclusionOptions"] == {"scope": "NO_UPGRADES"}
    assert "endTime" not in training
    assert training["exclusionOptions"] == {
        "scope": "NO_MINOR_OR_NODE_UPGRADES",
        "endTimeBehavior": "UNTIL_END_OF_SUPPORT",
    }


def test_without_fabric_a_pool_takes_no_further_network() -> None:
    network = said(opened(H100, fabricNetworks=NETWORKS))["networkConfig"]
    assert network == {"enablePrivateNodes": True}


def test_with_dranet_gke_makes_the_networks_of_a_pool_and_runs_its_driver_there() -> None:
    of_pool = {"machine": "a3-ultragpu-8g", "zones": ["us-central1-b"], "capacity": "spot", "fabric": "dranet"}
    rendered = opened(of_pool, fabricNetworks=NETWORKS)
    assert said(rendered)["networkConfig"] == {"enablePrivateNodes": True, "acceleratorNetworkProfile": "auto"}
    assert node(rendered)["labels"]["cloud.google.com/gke-networking-dra-driver"] == "true"
    assert "cloud.google.com/gke-networking-dra-driver" not in node(opened(H100))["labels"]


def test_multi_networking_is_on_where_there_are_networks_for_it() -> None:
    assert the_cluster(opened(create=new(), fabricNetworks=NETWORKS))["enableMultiNetworking"] is True
    assert the_cluster(opened(create=new()))["enableMultiNetworking"] is False


def test_mig_by_google_is_an_input_and_its_label_is_gkes_own() -> None:
    rendered = opened({"machine": "a2-highgpu-1g", "sharing": {"mig": {"profile": "1g.5gb"}}})
    assert gpu(rendered)["gpuPartitionSize"] == "1g.5gb"
    assert "gpuSharingConfig" not in gpu(rendered)
    assert not [label for label in node(rendered)["labels"] if label.startswith("cloud.google.com/")]


def test_turns_by_google_are_an_input_and_their_labels_are_gkes_own() -> None:
    rendered = opened({"sharing": {"timeSlicing": 4}})
    assert gpu(rendered)["gpuSharingConfig"] == {"gpuSharingStrategy": "TIME_SHARING", "maxSharedClientsPerGpu": 4}
    assert not [label for label in node(rendered)["labels"] if label.startswith("cloud.google.com/")]


def test_time_slicing_by_the_operator_is_not_an_input_of_the_pool() -> None:
    rendered = opened({"nodes": 1, "driver": "operator", "sharing": {"timeSlicing": 4}})
    assert "gpuSharingConfig" not in gpu(rendered)
    assert node(rendered)["labels"]["nvidia.com/device-plugin.config"] == "gpus"


@pytest.mark.parametrize(
    ("machine", "disk"),
    [
        ("g2-standard-48", "pd-balanced"),
        ("a3-megagpu-8g", "pd-balanced"),
        ("a3-ultragpu-8g", "hyperdisk-balanced"),
        ("a4-highgpu-8g", "hyperdisk-balanced"),
        ("g4-standard-48", "hyperdisk-balanced"),
    ],
)
def test_the_boot_disk_is_one_that_the_machine_has(machine: str, disk: str) -> None:
    assert node(opened({"machine": machine, "nodes": 1, "capacity": "spot"}))["diskType"] == disk


def test_the_boot_disk_has_the_stacks_size_and_key() -> None:
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    rendered = node(opened({"disk": {"size": "300Gi", "key": key}}))
    assert (rendered["diskSizeGb"], rendered["bootDiskKmsKey"]) == (300, key)
    assert "bootDiskKmsKey" not in node(opened())


def test_local_disks_of_the_machine_are_ephemeral_storage_and_no_reason_to_replace_it() -> None:
    rendered = opened(H100)
    assert node(rendered)["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 16}
    assert "nodeConfig.ephemeralStorageLocalSsdConfig" in the_pool(rendered).ignore_changes
    own = {"cpu": 96, "memory": "360Gi", "localDisk": "3000Gi"}
    rendered = opened({"machine": "n2-standard-96"}, stack={"machines": {"n2-standard-96": own}})
    assert node(rendered)["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 8}


def test_arm_nodes_get_no_taint_of_their_own() -> None:
    assert node(opened(GB200))["taintConfig"] == {"architectureTaintBehavior": "NONE"}
    assert "taintConfig" not in node(opened())


def test_nodes_are_shielded_private_and_show_pods_no_machine_credential() -> None:
    for rendered in (opened(), opened(create=new())):
        for resource in every(rendered, POOL):
            inputs = cast("Any", resource.inputs)
            assert inputs["networkConfig"]["enablePrivateNodes"] is True
            config = inputs["nodeConfig"]
            assert config["shieldedInstanceConfig"] == {"enableSecureBoot": True, "enableIntegrityMonitoring": True}
            assert config["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
            assert config["oauthScopes"] == ["https://www.googleapis.com/auth/cloud-platform"]


def test_nodes_have_an_account_of_their_own_with_two_roles() -> None:
    rendered = opened()
    (account,) = every(rendered, "gcp:serviceaccount/account:Account")
    assert account.inputs["accountId"] == "ml-nodes"
    rights = every(rendered, "gcp:projects/iAMMember:IAMMember")
    roles = {cast("str", role.inputs["role"]) for role in rights}
    assert roles == {"roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader"}
    assert {role.urn for role in rights} <= set(the_pool(rendered).dependencies)


def test_an_account_that_is_given_is_taken_and_none_is_made() -> None:
    rendered = opened(nodeServiceAccount="nodes@example-ml.iam.gserviceaccount.com")
    assert node(rendered)["serviceAccount"] == "nodes@example-ml.iam.gserviceaccount.com"
    assert every(rendered, "gcp:serviceaccount/account:Account") == []


def test_an_accounts_name_is_never_too_long() -> None:
    rendered = opened(name="a" * 40)
    (account,) = every(rendered, "gcp:serviceaccount/account:Account")
    assert len(cast("str", account.inputs["accountId"])) == 30


def test_tags_are_on_the_cluster_and_on_machines() -> None:
    rendered = opened(create=new(), tags={"owner": "ml"})
    wanted = {"environment": "dev", "managed-by": "gpu-tenancy", "owner": "ml"}
    assert the_cluster(rendered)["resourceLabels"] == wanted
    assert all(
        cast("Any", resource.inputs)["nodeConfig"]["resourceLabels"] == wanted for resource in every(rendered, POOL)
    )


def test_prod_is_protected_twice_and_dev_is_not() -> None:
    for environment, protected in (("prod", True), ("dev", False)):
        rendered = opened(environment=environment, create=new())
        assert [resource.protect for resource in [*every(rendered, CLUSTER), *every(rendered, POOL)]] == [protected] * 3
        assert [resource.protect for resource in every(rendered, "gcp:kms/cryptoKey:CryptoKey")] == [protected]
        assert the_cluster(rendered)["deletionProtection"] is protected


def test_a_new_cluster_has_no_public_endpoint_unless_networks_are_allowed() -> None:
    rendered = the_cluster(opened(create=new()))
    assert rendered["privateClusterConfig"] == {"enablePrivateNodes": True, "enablePrivateEndpoint": True}
    assert rendered["masterAuthorizedNetworksConfig"] == {"cidrBlocks": [], "gcpPublicCidrsAccessEnabled": False}


def test_authorized_networks_are_the_stacks() -> None:
    rendered = the_cluster(opened(create=new(allowFrom=["203.0.113.0/24"])))
    assert rendered["privateClusterConfig"]["enablePrivateEndpoint"] is False
    assert rendered["masterAuthorizedNetworksConfig"]["cidrBlocks"] == [{"cidrBlock": "203.0.113.0/24"}]


@pytest.mark.parametrize("endpoint", ["ip", "dns"])
def test_the_dns_name_is_accepted_and_used_if_the_stack_says_so_and_never_with_a_token_of_kubernetes(
    endpoint: str,
) -> None:
    by_name = endpoint == "dns"
    (cluster,) = every(opened(create=new(), endpoint=endpoint), CLUSTER)
    dns = cast("Any", cluster.inputs)["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]
    assert dns == {
        "allowExternalTraffic": by_name,
        "enableK8sCertsViaDns": False,
        "enableK8sTokensViaDns": False,
    }


def test_the_kubeconfig_of_a_dns_name_trusts_public_authorities() -> None:
    dns = outputs.ClusterControlPlaneEndpointsConfigDnsEndpointConfig(endpoint="gke-0a1b.us-central1.gke.goog")
    name = dns_name(outputs.ClusterControlPlaneEndpointsConfig(dns_endpoint_config=dns))
    assert dns_name(outputs.ClusterControlPlaneEndpointsConfig()) == ""
    config = json.loads(kubeconfig({"name": "ml", "endpoint": name, "authority": None}))
    assert config["clusters"][0]["cluster"] == {"server": "https://gke-0a1b.us-central1.gke.goog"}


def test_secrets_are_encrypted_by_a_key_that_is_made_and_that_gke_may_use() -> None:
    rendered = opened(create=new())
    assert the_cluster(rendered)["databaseEncryption"]["state"] == "ENCRYPTED"
    (right,) = every(rendered, "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember")
    assert right.inputs["role"] == "roles/cloudkms.cryptoKeyEncrypterDecrypter"
    (cluster,) = every(rendered, CLUSTER)
    assert right.urn in cluster.dependencies
    (ring,) = every(opened(create=new(), location="us-central1-b"), "gcp:kms/keyRing:KeyRing")
    assert ring.inputs["location"] == "us-central1"


def test_a_key_that_is_given_is_taken_and_none_is_made() -> None:
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    rendered = opened(create=new(secretsKey=key))
    assert the_cluster(rendered)["databaseEncryption"] == {"state": "ENCRYPTED", "keyName": key}
    assert every(rendered, "gcp:kms/cryptoKey:CryptoKey") == []


def test_a_new_cluster_is_in_the_given_network_with_its_ranges() -> None:
    rendered = the_cluster(opened(create=new()))
    assert (rendered["network"], rendered["subnetwork"], rendered["networkingMode"]) == ("ml", "ml-sub", "VPC_NATIVE")
    ranges = {"clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"}
    assert rendered["ipAllocationPolicy"] == ranges
    assert rendered["datapathProvider"] == "ADVANCED_DATAPATH"


def test_a_new_cluster_has_workload_identity_logs_and_no_node_auto_provisioning() -> None:
    rendered = the_cluster(opened(create=new()))
    assert rendered["workloadIdentityConfig"] == {"workloadPool": "example-ml.svc.id.goog"}
    assert {"APISERVER", "CONTROLLER_MANAGER", "SCHEDULER"} <= set(rendered["loggingConfig"]["enableComponents"])
    assert rendered["clusterAutoscaling"]["enabled"] is False
    assert (rendered["enableShieldedNodes"], rendered["enableLegacyAbac"]) == (True, False)
    assert (rendered["releaseChannel"], rendered["minMasterVersion"]) == ({"channel": "REGULAR"}, "1.35")


def test_a_new_cluster_has_a_system_pool_without_gpus_in_place_of_the_default_one() -> None:
    rendered = opened(create=new())
    assert (the_cluster(rendered)["removeDefaultNodePool"], the_cluster(rendered)["initialNodeCount"]) == (True, 1)
    assert "nodeConfig" in every(rendered, CLUSTER)[0].ignore_changes
    system = node(rendered, "gpu-tenancy-system")
    assert system["machineType"] == "n2-standard-16"
    assert not {"guestAccelerators", "taints"} & set(system)
    scaling = said(rendered, "gpu-tenancy-system")["autoscaling"]
    assert (scaling["totalMinNodeCount"], scaling["totalMaxNodeCount"]) == (2, 3)


def test_google_groups_administer_a_new_cluster() -> None:
    rendered = opened(create=new(**GROUPS))
    assert the_cluster(rendered)["authenticatorGroupsConfig"] == {"securityGroup": "gke-security-groups@example.com"}
    binding = cast("Any", rendered.only("ClusterRoleBinding").manifest)
    assert [(subject["kind"], subject["name"]) for subject in binding["subjects"]] == [("Group", "admins@example.com")]
    assert binding["roleRef"]["name"] == "cluster-admin"


def test_without_administrators_none_is_created() -> None:
    rendered = opened(create=new())
    assert rendered.every("ClusterRoleBinding") == []
    assert "authenticatorGroupsConfig" not in the_cluster(rendered)


def test_google_groups_without_the_group_that_gke_looks_them_up_in_are_an_error() -> None:
    section = {"cloud": "gcp", "name": "ml", "project": "example-ml", "location": "us-central1"}
    (error,) = errors({"cluster": {**section, "create": new(admins=["admins@example.com"])}, "pools": {}, "teams": {}})
    assert "GKE only finds Google Groups in a security group; set securityGroup" in error


def test_the_kubeconfig_uses_googles_plugin_without_a_credential() -> None:
    config = json.loads(kubeconfig({"name": "ml", "endpoint": "203.0.113.7", "authority": "Q0E="}))
    assert config["clusters"][0]["cluster"] == {
        "server": "https://203.0.113.7",
        "certificate-authority-data": "Q0E=",
    }
    (user,) = config["users"]
    assert set(user["user"]) == {"exec"}
    assert user["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    assert config["current-context"] == config["contexts"][0]["name"]
    assert not [text for _, text in texts(config) if "token" in text or "client-key" in text]


def test_the_certificate_authority_is_the_clusters_or_unknown() -> None:
    assert authority(outputs.ClusterMasterAuth(client_certificate_config={}, cluster_ca_certificate="Q0E=")) == "Q0E="  # pyright: ignore[reportArgumentType]
    assert authority(outputs.ClusterMasterAuth(client_certificate_config={})) == ""  # pyright: ignore[reportArgumentType]


def test_the_provider_keeps_its_cluster_when_the_kubeconfig_changes() -> None:
    (provider,) = every(opened(), "pulumi:providers:kubernetes")
    assert provider.inputs["clusterIdentifier"] == "example-ml/us-central1/ml"
    assert provider.secret_paths == ()


def test_a_pool_whose_name_stays_is_deleted_before_its_successor_is_made() -> None:
    assert the_pool(opened()).delete_before_replace


def test_everything_is_inside_the_component_and_pools_wait_for_the_cluster() -> None:
    rendered = opened(create=new())
    (component,) = every(rendered, "gpu-tenancy:clouds:GkeCluster")
    (cluster,) = every(rendered, CLUSTER)
    for resource in every(rendered, POOL):
        assert resource.parent == component.urn
        assert cluster.urn in resource.dependencies


@pytest.mark.process
@pytest.mark.slow
def test_no_other_clouds_package_is_imported() -> None:
    code = "import components.clouds.gcp, sys; print(*sys.modules)"
    imported = set(run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert "pulumi_gcp" in imported
    assert not imported & {"pulumi_aws", "pulumi_azure_native"}
