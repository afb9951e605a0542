"""EKS nodes, their images and disks, and functions from a planned pool to a node group."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pulumi

from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.model.catalogue import Machine, Network, cloud_tables
from gpu_tenancy.model.plan.cluster import NodePool, Surge, SystemNodes
from gpu_tenancy.model.plan.fabric import HUGEPAGES
from gpu_tenancy.model.plan.pools import NVIDIA, POOL_LABEL, PoolSupply, uses_local_disks
from gpu_tenancy.model.spec.clouds.aws import AmiType, AwsCluster
from gpu_tenancy.model.spec.pools import Disk, Nodes, Numa, Pool
from gpu_tenancy.model.yaml import read_table


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """The cluster that nodes join."""

    section: AwsCluster
    subnets: Mapping[str, pulumi.Input[str]]  # ids by zone
    # Allows traffic between nodes and control plane, and EFA:
    # https://docs.aws.amazon.com/eks/latest/userguide/sec-group-reqs.html
    security_group: pulumi.Output[str]
    tags: Mapping[str, str]
    protect: bool

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.section.name

    def subnets_in(self, zones: Sequence[str]) -> list[pulumi.Input[str]]:
        """IDs of the subnets in these zones; if there are none, of the subnets in Availability Zones."""
        return [self.subnets[zone] for zone in zones or self.section.zonal]


@dataclass(frozen=True, slots=True)
class Image:
    """An EKS image."""

    ami_type: AmiType  # of node groups: https://docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html
    family: str  # for Karpenter, which selects the NVIDIA variant on GPU machines
    data: str = "/dev/xvda"  # the device of the disk for images and containers
    own: str | None = None  # that of a separate disk for the operating system


IMAGES: Final[Mapping[tuple[str | None, str], Image]] = {
    (None, "amd64"): Image("AL2023_x86_64_STANDARD", "al2023"),
    (None, "arm64"): Image("AL2023_ARM_64_STANDARD", "al2023"),
    ("image", "amd64"): Image("AL2023_x86_64_NVIDIA", "al2023"),
    ("image", "arm64"): Image("AL2023_ARM_64_NVIDIA", "al2023"),
    ("bottlerocket", "amd64"): Image("BOTTLEROCKET_x86_64_NVIDIA", "bottlerocket", "/dev/xvdb", "/dev/xvda"),
    ("bottlerocket", "arm64"): Image("BOTTLEROCKET_ARM_64_NVIDIA", "bottlerocket", "/dev/xvdb", "/dev/xvda"),
}
"""Images by driver mode and CPU architecture. GPUs of other vendors have no driver mode and get the standard image: EKS
has no image with AMD's driver, so AMD's operator installs it."""


def image_alias(cluster: AwsCluster, of: Image) -> str:
    """Karpenter's name of an image with its release: https://karpenter.sh/docs/concepts/nodeclasses/#alias."""
    release = cluster.images.get(of.ami_type)
    if release is None:
        return f"{of.family}@latest"
    version, _, build = release.partition("-")
    return f"{of.family}@v{build if of.family == 'al2023' else version}"


_GIB: Final = 2**30
_BOTTLEROCKET_OS: Final = 4 * _GIB
"""Bottlerocket's first disk is for the operating system; images and containers are on the second:
https://github.com/aws/karpenter-provider-aws/blob/main/pkg/providers/amifamily/bottlerocket.go."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A node's disk in GiB and MiB/s; `key` is a KMS key's ARN (None: the account's), `snapshot` a snapshot's ID."""

    device: str
    gib: int
    key: str | None
    throughput: int
    iops: int
    snapshot: str | None = None


def volumes(
    cluster: AwsCluster, disk: Disk, of: Image, machine: Machine, snapshot: str | None = None
) -> tuple[Volume, ...]:
    """A node's disks; sizes are rounded up to GiB.

    On GPU machines the image disk has the catalogue's throughput, unless images are on local disks.
    """
    included, gpu = _performance(None), _performance(cluster.disk_throughput, gpu=True)
    on_boot_disk = machine.gpus and not uses_local_disks(cluster, machine)
    chosen = gpu if machine.gpus and (on_boot_disk or cluster.disk_throughput) else included
    data = Volume(of.data, -(-disk.size // _GIB), disk.key, *chosen, snapshot)
    return (Volume(of.own, _BOTTLEROCKET_OS // _GIB, disk.key, *included), data) if of.own else (data,)


def _performance(throughput: int | None, *, gpu: bool = False) -> tuple[int, int]:
    table = cloud_tables()["aws"].disk
    if table is None:
        raise ValueError("gpu_tenancy/model/catalogue/machines/aws.yaml has no disk; add it")
    chosen = throughput or (table.gpu_throughput if gpu else table.throughput)
    return chosen, table.iops_for(chosen)


_TEXTS: Final[Mapping[str, Any]] = read_table(Path(__file__).with_suffix(".yaml"))  # of configurations of nodes


def node_configuration(of: Image, *, disks: bool = False, numa: Numa | None = None) -> str | None:
    """The configuration of a node beside EKS's and Karpenter's parts; None if the image's own is enough.

    With `disks`, images, containers and ephemeral storage are on the local disks.
    """
    aligned = _TEXTS["numa"][of.family].format(policy=numa) if numa else ""
    parts = aligned + (_TEXTS["disks"][of.family] if disks else "")
    if not parts:
        return None
    return _TEXTS["mime"].format(spec=parts) if of.family == "al2023" else parts


SYSTEM: Final = "gpu-tenancy-system"  # start of the system node group's name, and value of its label
ACCELERATOR_LABEL: Final = "k8s.amazonaws.com/accelerator"
"""Node label with which Cluster Autoscaler waits until a new node advertises its GPUs, instead of adding another node:
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/aws/README.md."""
EFA: Final = "vpc.amazonaws.com/efa"
"""Extended resource of an EFA device: https://docs.aws.amazon.com/eks/latest/userguide/device-management-efa.html."""

_NODE_TEMPLATE: Final = "k8s.io/cluster-autoscaler/node-template"


@dataclass(frozen=True, slots=True)
class Interface:
    """A node's network interface, by indexes of card and device; `efa-only` is for traffic between GPUs, without IP."""

    card: int
    device: int
    kind: Literal["interface", "efa-only"]


def image(pool: NodePool) -> Image:
    """The image of a pool's nodes."""
    return IMAGES[pool.driver, pool.machine.architecture]


def interfaces(fabric: Network | None) -> tuple[Interface, ...]:
    """A node's network interfaces: one with IP addresses, and an EFA-only one for each network card with EFA."""
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    cards = fabric.fabric_cards if fabric else ()
    return (Interface(0, 0, "interface"), *(Interface(card, 0 if card else 1, "efa-only") for card in cards))


def efa_plugin(pools: Sequence[NodePool]) -> Mapping[str, object] | None:
    """Values of the EFA device plugin's chart, for machines and taints of pools with EFA; None without such pools."""
    # https://github.com/aws/eks-charts/tree/master/stable/aws-efa-k8s-device-plugin
    wired = [pool for pool in pools if pool.fabric]
    if not wired:
        return None
    machines = sorted({pool.machine.type for pool in wired})
    taints = dict.fromkeys((taint.key, taint.effect) for pool in wired for taint in pool.supply.taints)
    return {
        "supportedInstanceLabels": {"keys": ["node.kubernetes.io/instance-type"], "values": machines},
        "tolerations": [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints],
    }


def node_labels(pool: NodePool) -> dict[str, str]:
    """Labels of a pool's nodes; nodes with MIG partitions, which have no nvidia.com/gpu, get no label of whole GPUs."""
    # Cluster Autoscaler would wait for the resource forever and count the nodes as idle
    # (processors/customresources/gpu_processor.go and simulator/utilization/info.go in
    # https://github.com/kubernetes/autoscaler/tree/master/cluster-autoscaler).
    whole = pool.driver and pool.supply.resource == NVIDIA
    return {**pool.labels, **({ACCELERATOR_LABEL: str(pool.machine.gpu)} if whole else {})}


def node_template_tags(cluster: AwsCluster, pool: NodePool) -> dict[str, str]:
    """Tags that describe nodes to Cluster Autoscaler while it has none, beyond their machine type."""
    # https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/aws/README.md#auto-discovery-setup
    efa, supply = pool.fabric.interfaces if pool.fabric else 0, pool.supply
    disk = pool.machine.local_disk if uses_local_disks(cluster, pool.machine) else pool.spec.disk.size
    resources = {
        # Without it, the autoscaler would count on the machine type's whole GPUs beside partitions.
        **({NVIDIA: "0"} if pool.gpus and supply.resource != NVIDIA else {}),
        **({supply.resource: str(supply.gpus_per_node)} if supply.resource else {}),
        **({EFA: str(efa)} if efa else {}),
        **huge_pages(pool),
        "ephemeral-storage": format_bytes(disk),
    }
    return {
        **{f"{_NODE_TEMPLATE}/label/{key}": value for key, value in node_labels(pool).items()},
        **{f"{_NODE_TEMPLATE}/taint/{taint.key}": f"{taint.value}:{taint.effect}" for taint in supply.taints},
        **{f"{_NODE_TEMPLATE}/resources/{resource}": amount for resource, amount in resources.items()},
    }


def huge_pages(pool: NodePool) -> dict[str, str]:
    """Huge pages that pods request with EFA. An autoscaler without a node of the group does not know of them."""
    return {HUGEPAGES: format_bytes(pool.huge_pages)} if pool.huge_pages else {}


def system_pool(nodes: SystemNodes) -> NodePool:
    """The system nodes of a created cluster, as a pool."""
    # It has no taint: the operators that run here do not tolerate `CriticalAddonsOnly`. Another machine gives it
    # another name: Pulumi creates the new group before it deletes the old one, so Kueue and its webhook keep running.
    of = IMAGES[None, nodes.machine.architecture]
    kind = hashlib.sha256(f"{nodes.machine.type} {of.ami_type}".encode()).hexdigest()[:8]
    return NodePool(
        spec=Pool(
            machine=nodes.machine.name, nodes=Nodes(min=nodes.minimum, max=nodes.maximum), disk=Disk(size=nodes.disk)
        ),
        name=f"{SYSTEM}-{kind}",
        machine=nodes.machine,
        supply=PoolSupply(
            name=SYSTEM,
            flavor="",
            node={},
            resource=None,
            product=None,
            labels={},
            taints=(),
            capacity="on-demand",
            provisioning=None,
            min_nodes=nodes.minimum,
            max_nodes=nodes.maximum,
        ),
        labels={POOL_LABEL: SYSTEM},
        surge=Surge(added=1, unavailable=0),
    )
