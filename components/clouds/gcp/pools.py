"""Node pools of GKE."""

# The source of each fact, unless another page is named: https://cloud.google.com/kubernetes-engine/docs and, for valid
# combinations, the preconditions of Google's own module
# https://github.com/GoogleCloudPlatform/cluster-toolkit/blob/main/modules/compute/gke-node-pool/main.tf.

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
from pulumi import ResourceOptions
from pulumi_gcp import container

from gpu_tenancy.model.catalogue import Machine
from gpu_tenancy.model.catalogue.clouds import boot_disk, clouds
from gpu_tenancy.model.plan.cluster import NodePool, SystemNodes
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster
from gpu_tenancy.model.spec.pools import FlexStart, Queued, Reserved, Spot

from .. import node_taints

GKE_LABELS: Final = "cloud.google.com/"
"""Prefix of labels that GKE sets from the pool's other inputs, and that must not be an input."""
_DRANET: Final = {f"{GKE_LABELS}gke-networking-dra-driver": "true"}
"""Label by which GKE's DRANET runs on nodes:
https://docs.cloud.google.com/kubernetes-engine/docs/how-to/allocate-network-resources-dra."""
OPERATOR: Final = "operator"
"""The driver mode in which this program installs Google's installer: `components.clouds.gcp.daemons`."""

_GIB: Final = 2**30
_LATEST_DRIVER: Final = frozenset({"nvidia-rtx-pro-6000"})
"""GPUs that need GKE's latest driver: https://github.com/GoogleCloudPlatform/cluster-toolkit/tree/main/examples/gke-g4."""

SYSTEM_POOL: Final = "gpu-tenancy-system"  # start of the system node pool's name
_REGIONS_ZONES: Final = 3
"""Default for regional clusters: https://cloud.google.com/kubernetes-engine/docs/concepts/regional-clusters."""
_OF_OTHERS: Final = (
    # The autoscaler owns the number of nodes.
    "initialNodeCount",
    "nodeCount",
    # GKE sets them for machines with local SSDs, and a change would replace the pool.
    "nodeConfig.ephemeralStorageLocalSsdConfig",
    "nodeConfig.localNvmeSsdBlockConfig",
)


@dataclass(frozen=True, slots=True)
class PoolCluster:
    """The cluster of pools, with the address of the nodes' service account; pools are created after `before`."""

    section: GcpCluster
    account: pulumi.Input[str]
    tags: Mapping[str, str]
    parent: pulumi.Resource
    before: Sequence[pulumi.Resource]
    protect: bool


def _node_config(pool: NodePool, cluster: PoolCluster) -> container.NodePoolNodeConfigArgsDict:
    """The node configuration of a pool; a ValueError if GKE's name for the machine's GPUs is unknown."""
    set_by_gke = clouds()["gcp"].capacity[pool.spec.capacity.kind].taints  # they must not be inputs
    config: container.NodePoolNodeConfigArgsDict = {
        **_every_node(pool.machine, cluster),
        "disk_size_gb": -(-pool.spec.disk.size // _GIB),
        "labels": {
            **{key: value for key, value in pool.labels.items() if not key.startswith(GKE_LABELS)},
            **(_DRANET if pool.dranet else {}),
        },
        "taints": node_taints(
            taint for taint in pool.supply.taints if f"{taint.key}={taint.value}:{taint.effect}" not in set_by_gke
        ),
        **_capacity(pool),
    }
    if pool.spec.disk.key:
        config["boot_disk_kms_key"] = pool.spec.disk.key
    if pool.spec.image_disk:
        config["secondary_boot_disks"] = [{"disk_image": pool.spec.image_disk, "mode": "CONTAINER_IMAGE_CACHE"}]
    if pool.spec.numa:
        config["kubelet_config"] = {"cpu_manager_policy": "static", "topology_manager": {"policy": pool.spec.numa}}
    if pool.gpus:
        config["guest_accelerators"] = [_accelerator(pool)]
    if pool.machine.local_disk and (local_ssd := clouds()["gcp"].local_disk):
        config["ephemeral_storage_local_ssd_config"] = {"local_ssd_count": pool.machine.local_disk // local_ssd}
    if pool.machine.architecture == "arm64":
        # Otherwise GKE adds a taint to Arm nodes, which no flavor tolerates. The GPU taint keeps other pods off.
        # https://docs.cloud.google.com/php/docs/reference/cloud-container/latest/V1.TaintConfig.ArchitectureTaintBehavior
        config["taint_config"] = {"architecture_taint_behavior": "NONE"}
    return config


def _every_node(machine: Machine, cluster: PoolCluster) -> container.NodePoolNodeConfigArgsDict:
    # See https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster. The scope `cloud-platform`
    # leaves authorization to the service account's roles. Secure Boot accepts Google's drivers, because they are
    # signed. Image streaming is set only if it is used, so that other pools keep the setting of their cluster:
    # https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming.
    config: container.NodePoolNodeConfigArgsDict = {
        "machine_type": machine.type,
        "image_type": "COS_CONTAINERD",
        "disk_type": boot_disk("gcp").kind_of(machine.type),
        "service_account": cluster.account,
        "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "workload_metadata_config": {"mode": "GKE_METADATA"},
        "shielded_instance_config": {"enable_secure_boot": True, "enable_integrity_monitoring": True},
        "gvnic": {"enabled": True},
        "resource_labels": dict(cluster.tags),
    }
    if cluster.section.image_streaming:
        config["gcfs_config"] = {"enabled": True}
    return config


def _capacity(pool: NodePool) -> container.NodePoolNodeConfigArgsDict:
    # https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations,
    # https://cloud.google.com/kubernetes-engine/docs/concepts/dws.
    match pool.spec.capacity:
        case Spot():
            return {"spot": True, "reservation_affinity": {"consume_reservation_type": "NO_RESERVATION"}}
        case Reserved(reservation=reservation):
            return {
                "reservation_affinity": {
                    "consume_reservation_type": "SPECIFIC_RESERVATION",
                    "key": "compute.googleapis.com/reservation-name",
                    "values": [reservation],
                }
            }
        case FlexStart(max_run=seconds) | Queued(max_run=int() as seconds):
            return {
                "flex_start": True,
                # pyrefly: ignore[bad-argument-type]
                "max_run_duration": f"{seconds}s",
                "reservation_affinity": {"consume_reservation_type": "NO_RESERVATION"},
            }
        case _:
            return {}


def _accelerator(pool: NodePool) -> container.NodePoolNodeConfigGuestAcceleratorArgsDict:
    """GPUs, their driver and sharing: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus."""
    if pool.machine.accelerator is None:
        raise ValueError(f"pool {pool.name}: GKE's name for the GPUs of {pool.machine.name} is not known")
    accelerator: container.NodePoolNodeConfigGuestAcceleratorArgsDict = {
        "type": pool.machine.accelerator,
        "count": pool.gpus,
    }
    if pool.driver == OPERATOR:
        accelerator["gpu_driver_installation_config"] = {"gpu_driver_version": "INSTALLATION_DISABLED"}
    elif pool.driver:
        version = "LATEST" if pool.machine.accelerator in _LATEST_DRIVER else "DEFAULT"
        accelerator["gpu_driver_installation_config"] = {"gpu_driver_version": version}
    if pool.sharing and pool.sharing.mig:
        accelerator["gpu_partition_size"] = pool.sharing.mig.profile
    if pool.sharing and pool.sharing.pods:
        accelerator["gpu_sharing_config"] = {
            "gpu_sharing_strategy": "TIME_SHARING",
            "max_shared_clients_per_gpu": pool.sharing.pods,
        }
    return accelerator


def _zones(section: GcpCluster, zones: Sequence[str] = ()) -> int:
    return len(section.node_zones(zones)) or _REGIONS_ZONES


def first_nodes(minimum: int, maximum: int, zones: int) -> int:
    """Initial number of nodes per zone; then the autoscaler owns it."""
    # It is the minimum divided by the zones, rounded up if that does not exceed the maximum.
    rounded_up = -(-minimum // zones)
    return rounded_up if rounded_up * zones <= maximum else minimum // zones


def _network(pool: NodePool, cluster: GcpCluster) -> container.NodePoolNetworkConfigArgsDict:
    """Private nodes, and an additional network for each interface of the GPU fabric if the pool uses it."""
    # GKE itself creates the networks of DRANET, and rejects others beside them:
    # https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom.
    config: container.NodePoolNetworkConfigArgsDict = {"enable_private_nodes": True}
    if pool.dranet:
        config["accelerator_network_profile"] = "auto"
    elif pool.fabric and pool.fabric.fabric:
        networks = cluster.fabric_networks_for(pool.fabric.fabric, pool.fabric.interfaces)
        config["additional_node_network_configs"] = [
            {"network": fabric_network.network, "subnetwork": fabric_network.subnetwork} for fabric_network in networks
        ]
    return config


def node_pool(name: str, pool: NodePool, cluster: PoolCluster, domain: pulumi.Input[str] | None) -> container.NodePool:
    """A node pool of GKE; `domain` is the name of the policy for its NVLink domain."""
    # Nodes with a maximum run time (flex-start) do not support auto-repair, and have no upgrade settings: GKE waits
    # until old nodes end
    # (https://cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies#short-lived-upgrades-flex-start).
    # Other GPU pools can be excluded from upgrades until the end of support of the control plane's version, `end_time`
    # of this message (read 2026-11-24):
    # https://docs.cloud.google.com/dotnet/docs/reference/Google.Cloud.Container.V1/latest/Google.Cloud.Container.V1.NodePool.Types.ExclusionUntilEndOfSupport.
    section, supply = cluster.section, pool.supply
    # Close together: by an existing policy, by the one of an NVLink domain, or by one that GKE creates. A reservation
    # is used only with its own policy: https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/3347.
    placement: container.NodePoolPlacementPolicyArgsDict | None = {"type": "COMPACT"} if pool.spec.compact else None
    policy = pool.spec.placement_policy or domain
    if policy is not None:
        placement = {"type": "COMPACT", "policy_name": policy}
    short_lived = isinstance(pool.spec.capacity, FlexStart | Queued)
    excluded = pool.gpus and not short_lived and section.gpu_upgrades != "windows"
    maintenance: list[container.NodePoolMaintenancePolicyArgsDict] = [
        {"exclusion_until_end_of_supports": [{"enabled": True}]}
    ]
    surge: container.NodePoolUpgradeSettingsArgsDict = {
        "strategy": "SURGE",
        "max_surge": pool.surge.added,
        "max_unavailable": pool.surge.unavailable,
    }
    queued: container.NodePoolQueuedProvisioningArgsDict = {"enabled": True}
    scarce = pool.gpus > 0 or pool.spec.capacity.kind != "on-demand"
    return container.NodePool(
        name,
        name=pool.name,
        cluster=section.name,
        location=section.location,
        project=section.project,
        node_locations=list(pool.spec.zones) or None,
        initial_node_count=first_nodes(supply.min_nodes, supply.max_nodes, _zones(section, pool.spec.zones)),
        # In all zones together. `ANY` uses zones with available machines, and unused reservations first; `BALANCED`
        # spreads nodes over zones:
        # https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler#location_policy.
        autoscaling={
            "total_min_node_count": supply.min_nodes,
            "total_max_node_count": supply.max_nodes,
            "location_policy": "ANY" if scarce else "BALANCED",
        },
        management={"auto_upgrade": True, "auto_repair": not short_lived},
        upgrade_settings=None if short_lived else surge,
        maintenance_policies=maintenance if excluded else None,
        placement_policy=placement,
        queued_provisioning=queued if pool.spec.capacity.kind == "queued" else None,
        network_config=_network(pool, section),
        node_config=_node_config(pool, cluster),
        opts=_options(cluster),
    )


def system_pool(name: str, system: SystemNodes, cluster: PoolCluster) -> container.NodePool:
    """The system pool, without GPUs and taints."""
    # Of the stack's changes, only another service account replaces it, with a new name: Pulumi creates it before it
    # deletes the old pool, and Kueue keeps running. GKE changes the machine type in place, one new node at a time.
    section, account = cluster.section, cluster.section.node_service_account
    suffix = f"-{hashlib.sha256(account.encode()).hexdigest()[:8]}" if account else ""
    return container.NodePool(
        name,
        name=f"{SYSTEM_POOL}{suffix}",
        cluster=section.name,
        location=section.location,
        project=section.project,
        initial_node_count=first_nodes(system.minimum, system.maximum, _zones(section)),
        autoscaling={
            "total_min_node_count": system.minimum,
            "total_max_node_count": system.maximum,
            "location_policy": "BALANCED",
        },
        management={"auto_upgrade": True, "auto_repair": True},
        upgrade_settings={"strategy": "SURGE", "max_surge": 1, "max_unavailable": 0},
        network_config={"enable_private_nodes": True},
        node_config={**_every_node(system.machine, cluster), "disk_size_gb": system.disk // _GIB},
        opts=_options(cluster, replaced_by_name=True),
    )


def _options(cluster: PoolCluster, *, replaced_by_name: bool = False) -> ResourceOptions:
    return ResourceOptions(
        parent=cluster.parent,
        depends_on=[*cluster.before],
        protect=cluster.protect,
        ignore_changes=list(_OF_OTHERS),
        # Two pools cannot have the same name. Otherwise the provider deletes a pool first only if the name stays.
        delete_before_replace=None if replaced_by_name else True,
    )
