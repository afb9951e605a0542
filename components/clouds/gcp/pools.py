"""What GKE is told of a node pool: pure functions from a planned pool to inputs of `gcp.container.NodePool`.

The source of each fact, where it is no other page: https://cloud.google.com/kubernetes-engine/docs and, for what goes
with what, the preconditions of Google's own module
https://github.com/GoogleCloudPlatform/cluster-toolkit/blob/main/modules/compute/gke-node-pool/main.tf.
"""

from collections.abc import Mapping
from typing import Final

import pulumi
from pulumi_gcp.container import (
    NodePoolAutoscalingArgsDict,
    NodePoolManagementArgsDict,
    NodePoolNetworkConfigArgsDict,
    NodePoolNodeConfigArgsDict,
    NodePoolNodeConfigGuestAcceleratorArgsDict,
    NodePoolNodeConfigTaintArgsDict,
    NodePoolUpgradeSettingsArgsDict,
)

from gpu_tenancy.model.catalogue import Machine
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.plan.fleet import NodePool, SystemNodes
from gpu_tenancy.model.plan.supply import NodeTaint
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster
from gpu_tenancy.model.spec.pools import FlexStart, Queued, Reserved, Spot

GKE_LABELS: Final = "cloud.google.com/"
"""Labels under this prefix are GKE's own: it writes them by the pool's inputs, so they are no input."""
OPERATOR: Final = "operator"
"""The driver mode in which Google's installer is a DaemonSet of ours: `components.clouds.gcp.drivers`."""

_GIB: Final = 2**30
_SYSTEM_DISK: Final = 100
_EFFECTS: Final = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}
_HYPERDISK_ONLY: Final = (
    "a3-ultragpu-",
    "a4-",
    "a4x-",
    "c4-",
    "c4a-",
    "c4d-",
    "g4-",
    "h4d-",
    "m4-",
    "n4-",
    "n4a-",
    "n4d-",
)
"""Families that boot from no Persistent Disk: https://cloud.google.com/compute/docs/disks/hyperdisks."""
_LOCAL_SSDS: Final = {"a3-highgpu-8g": 16, "a3-megagpu-8g": 16, "a3-ultragpu-8g": 32, "a4-highgpu-8g": 32}
"""Disks that these machines always have, given to pods as ephemeral storage, as Google's own module does:
https://github.com/GoogleCloudPlatform/cluster-toolkit/blob/main/modules/compute/gke-node-pool/disk_definitions.tf."""
_LATEST_DRIVER: Final = frozenset({"nvidia-rtx-pro-6000"})
"""GPUs newer than GKE's default driver: https://github.com/GoogleCloudPlatform/cluster-toolkit/tree/main/examples/gke-g4."""


def node_config(pool: NodePool, account: pulumi.Input[str], tags: Mapping[str, str]) -> NodePoolNodeConfigArgsDict:
    """The nodes of a pool.

    Args:
        pool: as planned.
        account: address of the nodes' service account.
        tags: GCP's labels on the machines.

    Raises:
        ValueError: the machine has GPUs whose name in GKE nobody said.
    """
    config: NodePoolNodeConfigArgsDict = {
        **_every_node(pool.machine, account, tags),
        "disk_size_gb": pool.disk.size // _GIB,
        "labels": {key: value for key, value in pool.labels.items() if not key.startswith(GKE_LABELS)},
        "taints": [_taint(taint) for taint in pool.supply.taints if not _of_gke(pool, taint)],
        **_bought(pool),
    }
    if pool.disk.key:
        config["boot_disk_kms_key"] = pool.disk.key
    if pool.gpus:
        config["guest_accelerators"] = [_accelerator(pool)]
    if pool.machine.type in _LOCAL_SSDS:
        config["ephemeral_storage_local_ssd_config"] = {"local_ssd_count": _LOCAL_SSDS[pool.machine.type]}
    if pool.machine.architecture == "arm64":
        # Else GKE taints Arm nodes by itself, and no flavor would tolerate it; the GPU's taint keeps others away.
        # https://docs.cloud.google.com/php/docs/reference/cloud-container/latest/V1.TaintConfig.ArchitectureTaintBehavior
        config["taint_config"] = {"architecture_taint_behavior": "NONE"}
    return config


def system_config(
    nodes: SystemNodes, account: pulumi.Input[str], tags: Mapping[str, str]
) -> NodePoolNodeConfigArgsDict:
    """The nodes of the cluster's own pods: without GPUs and without taints."""
    return {**_every_node(nodes.machine, account, tags), "disk_size_gb": _SYSTEM_DISK}


def _every_node(machine: Machine, account: pulumi.Input[str], tags: Mapping[str, str]) -> NodePoolNodeConfigArgsDict:
    """What all nodes have: https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster.

    Access is by the service account's roles, so the scope is the one that leaves it to them. Secure boot admits
    Google's drivers, which are signed.
    """
    return {
        "machine_type": machine.type,
        "image_type": "COS_CONTAINERD",
        "disk_type": "hyperdisk-balanced" if machine.type.startswith(_HYPERDISK_ONLY) else "pd-balanced",
        "service_account": account,
        "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "workload_metadata_config": {"mode": "GKE_METADATA"},
        "shielded_instance_config": {"enable_secure_boot": True, "enable_integrity_monitoring": True},
        "gvnic": {"enabled": True},
        "resource_labels": dict(tags),
    }


def _bought(pool: NodePool) -> NodePoolNodeConfigArgsDict:
    """How the machines are bought.

    https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations,
    https://cloud.google.com/kubernetes-engine/docs/concepts/dws.
    """
    match pool.capacity:
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
        case FlexStart(max_run=seconds) | Queued(max_run=seconds):
            return {
                "flex_start": True,
                "max_run_duration": f"{int(seconds)}s",
                "reservation_affinity": {"consume_reservation_type": "NO_RESERVATION"},
            }
        case _:
            return {}


def _accelerator(pool: NodePool) -> NodePoolNodeConfigGuestAcceleratorArgsDict:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/gpus, and there: gpus-multi, timesharing-gpus."""
    if pool.machine.accelerator is None:
        msg = f"pool {pool.name}: GKE's name for the GPUs of {pool.machine.name} is not known"
        raise ValueError(msg)
    accelerator: NodePoolNodeConfigGuestAcceleratorArgsDict = {"type": pool.machine.accelerator, "count": pool.gpus}
    if pool.driver == OPERATOR:
        accelerator["gpu_driver_installation_config"] = {"gpu_driver_version": "INSTALLATION_DISABLED"}
    elif pool.driver:
        version = "LATEST" if pool.machine.accelerator in _LATEST_DRIVER else "DEFAULT"
        accelerator["gpu_driver_installation_config"] = {"gpu_driver_version": version}
    if pool.partitioning.mig_profile:
        accelerator["gpu_partition_size"] = pool.partitioning.mig_profile
    if pool.partitioning.turns:
        accelerator["gpu_sharing_config"] = {
            "gpu_sharing_strategy": "TIME_SHARING",
            "max_shared_clients_per_gpu": pool.partitioning.turns,
        }
    return accelerator


def _taint(taint: NodeTaint) -> NodePoolNodeConfigTaintArgsDict:
    return {"key": taint.key, "value": taint.value, "effect": _EFFECTS[taint.effect]}


def _of_gke(pool: NodePool, taint: NodeTaint) -> bool:
    """Whether GKE puts the taint there itself, which is then no input."""
    return f"{taint.key}={taint.value}:{taint.effect}" in clouds()["gcp"].capacity[pool.capacity.kind].taints


def autoscaling(pool: NodePool) -> NodePoolAutoscalingArgsDict:
    """Between how many nodes the autoscaler moves, all zones together; per zone would be as many times that.

    `ANY` takes the zone that has machines, and unused reservations first; `BALANCED` spreads:
    https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler#location_policy.
    """
    scarce = pool.gpus > 0 or pool.capacity.kind != "on-demand"
    return {
        "total_min_node_count": pool.supply.least,
        "total_max_node_count": pool.supply.most,
        "location_policy": "ANY" if scarce else "BALANCED",
    }


def first_nodes(least: int, most: int, zones: int) -> int:
    """Nodes of each zone at first, after which the autoscaler owns their number.

    As many as there must always be, rounded up where that does not exceed the most.
    """
    up = -(-least // zones)
    return up if up * zones <= most else least // zones


def network(pool: NodePool, cluster: GcpCluster) -> NodePoolNetworkConfigArgsDict:
    """No public address, and a network for each interface of the GPUs' fabric where it is wanted.

    https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom.
    """
    config: NodePoolNetworkConfigArgsDict = {"enable_private_nodes": True}
    if pool.fabric and pool.fabric.fabric:
        networks = cluster.fabric_networks_for(pool.fabric.fabric, pool.fabric.interfaces)
        config["additional_node_network_configs"] = [
            {"network": each.network, "subnetwork": each.subnetwork} for each in networks
        ]
    return config


def short_lived(pool: NodePool) -> bool:
    """Whether nodes go after a time by themselves, so that GKE upgrades them by bringing no more of the old."""
    return isinstance(pool.capacity, FlexStart | Queued)


def management(pool: NodePool) -> NodePoolManagementArgsDict:
    """Upgrades, and repair where nodes stay: flex-start does not go with repair."""
    return {"auto_upgrade": True, "auto_repair": not short_lived(pool)}


def upgrades(pool: NodePool) -> NodePoolUpgradeSettingsArgsDict | None:
    """How many nodes an upgrade may add or take away; nothing for short-lived nodes, which GKE upgrades its own way.

    https://cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies#short-lived-upgrades-flex-start.
    """
    if short_lived(pool):
        return None
    return {"strategy": "SURGE", "max_surge": pool.surge.added, "max_unavailable": pool.surge.unavailable}
