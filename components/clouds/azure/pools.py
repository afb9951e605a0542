"""A node pool of AKS, as it follows from a planned one."""

from dataclasses import dataclass
from typing import Final

import pulumi
from pulumi_azure_native.containerservice import (
    AgentPool,
    AgentPoolSecurityProfileArgsDict,
    AgentPoolUpgradeSettingsArgsDict,
    GPUProfileArgsDict,
)

from gpu_tenancy.model.plan.fleet import NodePool
from gpu_tenancy.model.plan.supply import NodeTaint
from gpu_tenancy.model.spec.clouds.azure import AzureCluster
from gpu_tenancy.model.spec.pools import Reserved

SPOT: Final = "kubernetes.azure.com/scalesetpriority"
"""Label that AKS puts on spot nodes, beside the taint of the same name. Its prefix is AKS's own, but on a spot pool AKS
takes this one, and a pool that leaves it out differs from what AKS then says of it:
https://learn.microsoft.com/azure/aks/spot-node-pool."""
DRAIN_MINUTES: Final = 60
"""Minutes that an upgrade waits for a node's pods, instead of AKS's 30: a training job writes its last checkpoint."""
MIG: Final = {1: "MIG1g", 2: "MIG2g", 3: "MIG3g", 4: "MIG4g", 7: "MIG7g"}
"""AKS's profiles by compute slices of a partition. They are NVIDIA's 19, 14, 9, 5 and 0:
https://github.com/Azure/AgentBaker/blob/master/parts/linux/cloud-init/artifacts/mig-partition.sh."""
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class Site:
    """Where pools are made.

    Attributes:
        cluster: its name, as the cluster itself gives it, so that a pool never outlives its cluster.
        tags: on the nodes' machines.
        parent: of the pools.
        protect: whether Pulumi refuses to delete them.
    """

    section: AzureCluster
    cluster: pulumi.Output[str]
    tags: dict[str, str]
    parent: pulumi.Resource
    protect: bool


def agent_pool(name: str, pool: NodePool, site: Site, placement: pulumi.Output[str] | None) -> AgentPool:
    """A node pool.

    A pool whose `nodes` may vary is the cluster autoscaler's, which AKS runs. How many nodes it has is then never said:
    each update of the pool would set it back to that (https://github.com/Azure/AKS/issues/1627). One of a fixed size
    has no autoscaler, and is what partitions want: AKS's autoscaler sees whole GPUs of NVIDIA's alone
    (https://github.com/Azure/AKS/issues/5161).

    Hosts encrypt disks and caches, for which the subscription must have registered the feature EncryptionAtHost of
    Microsoft.Compute.

    Args:
        name: of the resource.
        pool: as planned.
        site: where it is made.
        placement: id of its proximity placement group, for a compact pool.
    """
    section, supply, spot = site.section, pool.supply, pool.capacity.kind == "spot"
    varies = supply.least < supply.most
    return AgentPool(
        name,
        resource_group_name=section.resource_group,
        resource_name_=site.cluster,
        agent_pool_name=pool.name,
        mode="User",
        # Left out, AKS takes a spot pool for one that surges, and refuses it:
        # https://github.com/Azure/bicep-types-az/issues/2217
        type="VirtualMachineScaleSets",
        orchestrator_version=section.create.version if section.create else None,
        os_type="Linux",
        os_sku="Ubuntu",  # Azure Linux takes no A100 and H100: https://learn.microsoft.com/azure/aks/use-nvidia-gpu
        vm_size=pool.machine.type,
        count=None if varies else supply.least,
        enable_auto_scaling=varies,
        min_count=supply.least if varies else None,
        max_count=supply.most if varies else None,
        node_labels={**pool.labels, **({SPOT: "spot"} if spot else {})},
        node_taints=[taint_text(taint) for taint in supply.taints],
        availability_zones=list(pool.zones) or None,
        vnet_subnet_id=section.subnet,
        enable_node_public_ip=False,
        os_disk_type="Managed",
        os_disk_size_gb=-(-pool.disk.size // _GIB),
        enable_encryption_at_host=True,
        scale_set_priority="Spot" if spot else "Regular",
        scale_set_eviction_policy="Delete" if spot else None,
        spot_max_price=-1.0 if spot else None,
        capacity_reservation_group_id=reservation(pool),
        proximity_placement_group_id=placement,
        gpu_profile=_driver(pool),
        gpu_instance_profile=partitions(pool),
        security_profile=_boot(pool),
        upgrade_settings=None if spot else _upgrade(pool),
        tags=site.tags,
        opts=pulumi.ResourceOptions(
            parent=site.parent,
            protect=site.protect,
            # What a refresh may have found; a pool of a fixed size is as large as the stack says.
            ignore_changes=["count"] if varies else [],
            # Its name is not free before the old one has gone.
            delete_before_replace=True,
        ),
    )


def reservation(pool: NodePool) -> str | None:
    """Id of the capacity reservation group of a pool; None without one."""
    return pool.capacity.reservation if isinstance(pool.capacity, Reserved) else None


def taint_text(taint: NodeTaint) -> str:
    """A taint as AKS takes it, which is as kubectl does."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def partitions(pool: NodePool) -> str | None:
    """AKS's name for how a pool's GPUs are cut; None where AKS does not cut them.

    AKS has one profile for each number of compute slices, the one with the most partitions: of an A100 of 80 GB,
    `1g.10gb` but not `1g.20gb` (`leastMemory` in `model/catalogue/clouds.yaml`). A pool's profile can never be changed:
    https://learn.microsoft.com/azure/aks/gpu-multi-instance.
    """
    profile = pool.partitioning.mig_profile
    return MIG[int(profile.partition("g.")[0])] if profile else None


def _driver(pool: NodePool) -> GPUProfileArgsDict | None:
    """Whether AKS installs the driver: never AMD's (https://learn.microsoft.com/azure/aks/use-amd-gpus)."""
    if not pool.gpus:
        return None
    return {"driver": "Install" if pool.driver == "managed" else "None"}


def _boot(pool: NodePool) -> AgentPoolSecurityProfileArgsDict | None:
    """Signed and measured boot, where it can be had: https://learn.microsoft.com/azure/aks/use-trusted-launch.

    Not with GPUs: Secure Boot refuses NVIDIA's driver as AKS and the GPU Operator install it, and A100s of the ND
    family have no Trusted Launch at all. Not on Arm either.
    """
    if pool.gpus or pool.machine.architecture != "amd64":
        return None
    return {"enable_secure_boot": True, "enable_vtpm": True}


def _upgrade(pool: NodePool) -> AgentPoolUpgradeSettingsArgsDict:
    """How an upgrade goes through a pool; a spot pool takes no such words.

    https://learn.microsoft.com/azure/aks/upgrade-aks-node-pools-rolling
    """
    return {
        "max_surge": str(pool.surge.added),
        "max_unavailable": str(pool.surge.unavailable),
        "drain_timeout_in_minutes": DRAIN_MINUTES,
    }
