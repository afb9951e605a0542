"""Node pools of AKS, and the setup of their nodes with InfiniBand."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pulumi
from pulumi import ResourceOptions
from pulumi_azure_native import containerservice
from pulumi_kubernetes.core.v1 import ContainerArgsDict, PodSpecArgsDict

from gpu_tenancy.model.catalogue.pods import fabrics
from gpu_tenancy.model.catalogue.updates import cloud_type
from gpu_tenancy.model.plan.cluster import NodePool
from gpu_tenancy.model.spec.clouds.azure import AzureCluster

from ...objects import Component, Options, node_daemon_set, on_pools

SPOT: Final = "kubernetes.azure.com/scalesetpriority"
"""Label of spot nodes, beside the taint of this name. AKS reserves its prefix, but spot pools accept it, and a pool
without it differs from its state in AKS: https://learn.microsoft.com/azure/aks/spot-node-pool."""
TEMPLATE: Final = "k8s.io_cluster-autoscaler_node-template_resources_"
"""Start of the tags that tell Cluster Autoscaler what nodes of an empty scale set have."""
DRAIN_MINUTES: Final = 60  # minutes that an upgrade waits for a node's pods (a checkpoint); AKS's default is 30
MIG: Final = {1: "MIG1g", 2: "MIG2g", 3: "MIG3g", 4: "MIG4g", 7: "MIG7g"}
"""AKS's MIG profiles by compute slices of a partition. They are NVIDIA's profiles 19, 14, 9, 5 and 0:
https://github.com/Azure/AgentBaker/blob/master/parts/linux/cloud-init/artifacts/mig-partition.sh."""
REPLACED: Final = tuple(cloud_type("azure-native:containerservice:AgentPool").creation)
"""Properties that AKS sets only at a pool's creation; AKS rejects updates, and pulumi-azure-native sends them."""
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class PoolCluster:
    """The cluster that pools belong to: its name as an output, so that pools depend on it, and the nodes' subnet."""

    section: AzureCluster
    name: pulumi.Output[str]
    subnet: pulumi.Input[str]
    tags: dict[str, str]
    parent: pulumi.Resource
    protect: bool


def agent_pool(
    name: str, pool: NodePool, cluster: PoolCluster, placement: pulumi.Output[str] | None
) -> containerservice.AgentPool:
    """A node pool of AKS.

    If minimum and maximum of `nodes` differ, AKS's autoscaler owns the number of nodes, which is not set: each update
    would reset it (https://github.com/Azure/AKS/issues/1627). GPU partitions require a fixed size, because the
    autoscaler supports only whole NVIDIA GPUs (https://github.com/Azure/AKS/issues/5161). Hosts encrypt disks and
    caches, except of machine types with `machines.<type>.hostEncryption: false`; the feature EncryptionAtHost of
    Microsoft.Compute must be registered in the subscription. A change of `REPLACED` properties replaces the pool: the
    old one, whose name is in use, is deleted first, and its pods are evicted.
    """
    section, supply, spot = cluster.section, pool.supply, pool.spec.capacity.kind == "spot"
    varies = supply.min_nodes < supply.max_nodes
    # The devices of nodes, which the autoscaler does not know of an empty scale set; `_` stands for `/`:
    # https://github.com/kubernetes/autoscaler/tree/master/cluster-autoscaler/cloudprovider/azure
    devices = {supply.resource: supply.gpus_per_node}
    if pool.fabric and (fabric := fabrics().get(pool.fabric.fabric or "")):
        devices[fabric.resource] = pool.fabric.interfaces
    told = {f"{TEMPLATE}{name.replace('/', '_')}": str(count) for name, count in devices.items() if name}
    # For each number of compute slices, AKS has only the profile with the most partitions: for an A100 with 80 GB
    # `1g.10gb`, but not `1g.20gb` (`leastMemory` in `model/catalogue/clouds.yaml`). The profile of a pool cannot be
    # changed: https://learn.microsoft.com/azure/aks/gpu-multi-instance.
    mig = pool.sharing.mig.profile if pool.sharing and pool.sharing.mig else None
    # Trusted Launch: https://learn.microsoft.com/azure/aks/use-trusted-launch. GPU machines do not support it: Secure
    # Boot rejects NVIDIA's driver as AKS and the GPU Operator install it, and the ND family with A100 has no Trusted
    # Launch. Arm machines do not either.
    boot: containerservice.AgentPoolSecurityProfileArgsDict = {"enable_secure_boot": True, "enable_vtpm": True}
    # https://learn.microsoft.com/azure/aks/upgrade-aks-node-pools-rolling
    upgrade: containerservice.AgentPoolUpgradeSettingsArgsDict = {
        "max_surge": str(pool.surge.added),
        "max_unavailable": str(pool.surge.unavailable),
        "drain_timeout_in_minutes": DRAIN_MINUTES,
    }
    # AKS installs no driver for AMD: https://learn.microsoft.com/azure/aks/use-amd-gpus
    driver: containerservice.GPUProfileArgsDict = {"driver": "Install" if pool.driver == "managed" else "None"}
    # With NUMA nodes: https://learn.microsoft.com/azure/aks/custom-node-configuration
    aligned: containerservice.KubeletConfigArgsDict = {
        "cpu_manager_policy": "static",
        "topology_manager_policy": pool.spec.numa or "",
    }
    return containerservice.AgentPool(
        name,
        resource_group_name=section.resource_group,
        resource_name_=cluster.name,
        agent_pool_name=pool.name,
        mode="User",
        # Without it, AKS rejects a spot pool, because it assumes a surge:
        # https://github.com/Azure/bicep-types-az/issues/2217
        type="VirtualMachineScaleSets",
        orchestrator_version=section.create.version if section.create else None,
        os_type="Linux",
        # Since 2026 Azure Linux supports A100, H100 and H200, but not all of their VM sizes, nor all of their MIG:
        # https://github.com/Azure/AKS/issues/5512, https://github.com/microsoft/azurelinux/issues/15074
        os_sku="Ubuntu",
        vm_size=pool.machine.type,
        count=None if varies else supply.min_nodes,
        enable_auto_scaling=varies,
        min_count=supply.min_nodes if varies else None,
        max_count=supply.max_nodes if varies else None,
        node_labels={**pool.labels, **({SPOT: "spot"} if spot else {})},
        # As AKS and kubectl write a taint: `key=value:effect`.
        node_taints=[
            f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}" for taint in supply.taints
        ],
        availability_zones=list(pool.spec.zones) or None,
        vnet_subnet_id=cluster.subnet,
        enable_node_public_ip=False,
        os_disk_type="Managed",
        os_disk_size_gb=-(-pool.spec.disk.size // _GIB),
        enable_encryption_at_host=pool.machine.host_encryption,
        scale_set_priority="Spot" if spot else "Regular",
        scale_set_eviction_policy="Delete" if spot else None,
        spot_max_price=-1.0 if spot else None,
        capacity_reservation_group_id=pool.reservation,
        proximity_placement_group_id=placement,
        gpu_profile=driver if pool.gpus else None,
        kubelet_config=aligned if pool.spec.numa else None,
        gpu_instance_profile=MIG[int(mig.partition("g.")[0])] if mig else None,
        security_profile=None if pool.gpus or pool.machine.architecture != "amd64" else boot,
        upgrade_settings=None if spot else upgrade,  # AKS rejects them for spot pools.
        tags={**cluster.tags, **(told if section.autoscaler_tags and varies else {})},
        opts=ResourceOptions(
            parent=cluster.parent,
            protect=cluster.protect,
            # The autoscaler owns the count, and a refresh can read it. For a fixed size the stack sets it.
            ignore_changes=["count"] if varies else [],
            replace_on_changes=list(REPLACED),
            # The name is in use until the old pool is deleted.
            delete_before_replace=True,
        ),
    )


NAME: Final = "gpu-tenancy-memory-lock"
IMAGE: Final = (
    "mcr.microsoft.com/mirror/docker/library/ubuntu:24.04"
    "@sha256:c35e29c9450151419d9448b0fd75374fec4fff364a27f176fb458d472dfc9e54"
)
"""As https://github.com/Azure/azure-container-networking pins it for its own image (read on 2026-11-22)."""
_SCRIPT: Final = "\n" + Path(__file__).with_name("memory_lock.sh").read_text(encoding="utf-8")


class MemoryLock(Component):
    """A DaemonSet that lets containers on the nodes of some pools lock memory without limit, which InfiniBand needs.

    A container inherits containerd's limit, 8 MiB by systemd's default, and AKS has no setting for it. The Pod Security
    Standard of the teams' namespaces rejects the alternative, IPC_LOCK for each pod
    (https://github.com/Azure/aks-rdma-infiniband/blob/main/tests/scenarios/k8s/values.yaml). The limit of a running
    containerd is raised without effect on containers, and again after each restart.

    It also loads `nvidia-peermem`, without which NCCL copies through the host's memory: AKS's managed driver does not
    load it, and it needs the Network Operator's driver first
    (https://azure.github.io/aks-rdma-infiniband/configurations/gpu-drivers, read 2026-11-24). With `driver: operator`
    the GPU Operator has loaded it. The pods are privileged and run in `kube-system`.
    """

    def __init__(self, name: str, pools: Sequence[str], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:AksMemoryLock", name, opts)
        raise_limit: ContainerArgsDict = {
            "name": "raise-limit",
            "image": IMAGE,
            # In the namespaces of the node, which has the tools.
            "command": ["nsenter", "-at", "1", "--", "sh", "-c", _SCRIPT],
            "resources": {"requests": {"cpu": "5m", "memory": "10Mi"}},
            "security_context": {"privileged": True},
        }
        pod: PodSpecArgsDict = {"containers": [raise_limit], "affinity": {"node_affinity": on_pools(pools)}}
        node_daemon_set(f"{name}-daemonset", ("app.kubernetes.io/name", NAME), pod, self.own)
