"""Facts about nodes on EKS, and how a pool of the plan becomes a node group: no resources, no Outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.model.plan.fleet import NodePool, Surge, SystemNodes
from gpu_tenancy.model.plan.supply import POOL_LABEL, NodeTaint
from gpu_tenancy.model.quantity import format_bytes
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.pools import CapacityBlock, Disk, Reserved

SYSTEM: Final = "gpu-tenancy-system"
"""Name of the node group for the cluster's own pods."""
ACCELERATOR_LABEL: Final = "k8s.amazonaws.com/accelerator"
"""Node label by which Cluster Autoscaler waits for a node's GPUs to be advertised, in place of adding another node:
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/aws/README.md."""
EFA: Final = "vpc.amazonaws.com/efa"
"""Extended resource of an EFA device: https://docs.aws.amazon.com/eks/latest/userguide/device-management-efa.html."""

_GIB: Final = 2**30
_HINT: Final = "k8s.io/cluster-autoscaler/node-template"
_NO_EFA_ON_FIRST_CARD: Final = frozenset({"p6-b300.48xlarge", "p6e-gb200.36xlarge"})
"""https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html; remembered, not read."""
_BOTTLEROCKET_OS: Final = 4 * _GIB
"""Bottlerocket's first disk is its own; images and containers are on the second:
https://github.com/aws/karpenter-provider-aws/blob/main/pkg/providers/amifamily/bottlerocket.go."""

Effect = Literal["NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE"]
_EFFECTS: Final[Mapping[str, Effect]] = {
    "NoSchedule": "NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
}


@dataclass(frozen=True, slots=True)
class Image:
    """An EKS image.

    Attributes:
        ami_type: as a node group names it: https://docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html.
        family: as Karpenter names it; of a GPU machine it takes the NVIDIA variant by itself.
        data: device of the disk that holds images and containers.
        own: device of a disk of the system's own, where it has one.
    """

    ami_type: str
    family: str
    data: str = "/dev/xvda"
    own: str | None = None


IMAGES: Final[Mapping[tuple[str | None, str], Image]] = {
    (None, "amd64"): Image("AL2023_x86_64_STANDARD", "al2023"),
    (None, "arm64"): Image("AL2023_ARM_64_STANDARD", "al2023"),
    ("image", "amd64"): Image("AL2023_x86_64_NVIDIA", "al2023"),
    ("image", "arm64"): Image("AL2023_ARM_64_NVIDIA", "al2023"),
    ("bottlerocket", "amd64"): Image("BOTTLEROCKET_x86_64_NVIDIA", "bottlerocket", "/dev/xvdb", "/dev/xvda"),
    ("bottlerocket", "arm64"): Image("BOTTLEROCKET_ARM_64_NVIDIA", "bottlerocket", "/dev/xvdb", "/dev/xvda"),
}
"""By driver mode and CPU architecture. Another vendor's GPUs, which have no driver mode, get the standard image: EKS
has none with AMD's driver, so that vendor's own operator brings it."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A node's disk, in GiB."""

    device: str
    gib: int
    key: str | None


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of a node.

    Attributes:
        card: index of the network card.
        device: index of the device on the card.
        kind: `interface` has addresses; `efa-only` has none, and speaks between GPUs alone.
    """

    card: int
    device: int
    kind: Literal["interface", "efa-only"]


@dataclass(frozen=True, slots=True)
class Group:
    """One managed node group.

    Attributes:
        capacity: EKS' own word.
        reservation: id of a capacity reservation; a capacity block is one too.
        subnets: ids, those of its zones.
        least: nodes that are always there.
        most: at least 1, as EKS wants.
        hints: tags by which an autoscaler knows a node of the group while there is none.
    """

    name: str
    machine: str
    image: Image
    capacity: Literal["ON_DEMAND", "SPOT", "CAPACITY_BLOCK"]
    reservation: str | None
    subnets: tuple[str, ...]
    least: int
    most: int
    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, Effect], ...]
    volumes: tuple[Volume, ...]
    interfaces: tuple[Interface, ...]
    compact: bool
    surge: Surge
    hints: Mapping[str, str]


def image(pool: NodePool) -> Image:
    """The image of a pool's nodes."""
    return IMAGES[pool.driver, pool.machine.architecture]


def subnets(cluster: AwsCluster, zones: tuple[str, ...]) -> tuple[str, ...]:
    """Subnets of some zones, or of all."""
    return tuple(cluster.subnets[zone] for zone in zones or cluster.subnets)


def reservation(pool: NodePool) -> str | None:
    """Id of the reservation whose machines a pool takes."""
    return pool.capacity.reservation if isinstance(pool.capacity, Reserved | CapacityBlock) else None


def volumes(disk: Disk, of: Image) -> tuple[Volume, ...]:
    """A node's disks; a part of a GiB is rounded up."""
    data = Volume(of.data, -(-disk.size // _GIB), disk.key)
    return (Volume(of.own, _BOTTLEROCKET_OS // _GIB, disk.key), data) if of.own else (data,)


def interfaces(machine: str, efa: int) -> tuple[Interface, ...]:
    """A node's network interfaces: one with addresses, and one EFA of each card that has it, without any.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    first = 1 if machine in _NO_EFA_ON_FIRST_CARD else 0
    cards = range(first, first + efa)
    return (
        Interface(0, 0, "interface"),
        *(Interface(card, 0 if card else 1, "efa-only") for card in cards),
    )


def efa_plugin(pools: Sequence[NodePool]) -> Mapping[str, object] | None:
    """Values of the EFA device plugin's chart: it runs on the machines of pools with EFA, whatever their taints.

    https://github.com/aws/eks-charts/tree/master/stable/aws-efa-k8s-device-plugin
    """
    wired = [pool for pool in pools if pool.fabric]
    taints = dict.fromkeys((taint.key, taint.effect) for pool in wired for taint in pool.supply.taints)
    return (
        {
            "supportedInstanceLabels": {
                "keys": ["node.kubernetes.io/instance-type"],
                "values": sorted({pool.machine.type for pool in wired}),
            },
            "tolerations": [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints],
        }
        if wired
        else None
    )


def pool_group(cluster: AwsCluster, pool: NodePool) -> Group:
    """The node group of a pool."""
    efa = pool.fabric.interfaces if pool.fabric else 0
    nvidia = pool.driver is not None and pool.machine.gpu is not None
    labels = {**pool.labels, **({ACCELERATOR_LABEL: str(pool.machine.gpu)} if nvidia else {})}
    resources = {
        **({pool.supply.resource: str(pool.supply.gpus_per_node)} if pool.supply.resource else {}),
        **({EFA: str(efa)} if efa else {}),
        "ephemeral-storage": format_bytes(pool.disk.size),
    }
    kinds: Mapping[str, Literal["SPOT", "CAPACITY_BLOCK"]] = {"spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}
    return Group(
        name=pool.name,
        machine=pool.machine.type,
        image=image(pool),
        capacity=kinds.get(pool.capacity.kind, "ON_DEMAND"),
        reservation=reservation(pool),
        subnets=subnets(cluster, pool.zones),
        least=pool.supply.least,
        most=max(1, pool.supply.most),
        labels=labels,
        taints=tuple((taint.key, taint.value, _EFFECTS[taint.effect]) for taint in pool.supply.taints),
        volumes=volumes(pool.disk, image(pool)),
        interfaces=interfaces(pool.machine.type, efa),
        compact=pool.compact,
        surge=pool.surge,
        hints=_hints(labels, pool.supply.taints, resources) if cluster.grows else {},
    )


def system_group(cluster: AwsCluster, nodes: SystemNodes) -> Group:
    """The node group of a created cluster's own pods.

    No taint keeps other pods off: the tenancy's operators have nowhere else to run where every pool may be empty, and
    their charts do not tolerate `CriticalAddonsOnly`.
    """
    of = IMAGES[None, nodes.machine.architecture]
    return Group(
        name=SYSTEM,
        machine=nodes.machine.type,
        image=of,
        capacity="ON_DEMAND",
        reservation=None,
        subnets=subnets(cluster, ()),
        least=nodes.least,
        most=max(1, nodes.most),
        labels={POOL_LABEL: SYSTEM},
        taints=(),
        volumes=volumes(Disk(), of),
        interfaces=interfaces(nodes.machine.type, 0),
        compact=False,
        surge=Surge(added=1, unavailable=0),
        hints={},
    )


def _hints(labels: Mapping[str, str], taints: tuple[NodeTaint, ...], resources: Mapping[str, str]) -> dict[str, str]:
    """What an autoscaler cannot read off the machine type, as tags of the group.

    https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/aws/README.md#auto-discovery-setup
    """
    return {
        **{f"{_HINT}/label/{key}": value for key, value in labels.items()},
        **{f"{_HINT}/taint/{taint.key}": f"{taint.value}:{taint.effect}" for taint in taints},
        **{f"{_HINT}/resources/{resource}": amount for resource, amount in resources.items()},
    }
