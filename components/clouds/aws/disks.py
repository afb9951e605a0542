"""Images and disks of EKS nodes."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.catalogue import Machine, cloud_tables
from gpu_tenancy.model.plan.pools import uses_local_disks
from gpu_tenancy.model.spec.clouds.aws import AmiType, AwsCluster
from gpu_tenancy.model.spec.pools import Disk, Numa


@dataclass(frozen=True, slots=True)
class Image:
    """An EKS image.

    Attributes:
        ami_type: a node group's name for it: https://docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html.
        family: Karpenter's name for it; on GPU machines Karpenter selects the NVIDIA variant.
        data: device of the disk for images and containers.
        own: device of a separate disk for the operating system; None without.
    """

    ami_type: AmiType
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
"""Images by driver mode and CPU architecture. GPUs of other vendors have no driver mode and get the standard image: EKS
has no image with AMD's driver, so AMD's operator installs it."""


def image_alias(cluster: AwsCluster, of: Image) -> str:
    """Karpenter's name of an image with its release: https://karpenter.sh/docs/concepts/nodeclasses/#alias."""
    release = cluster.images.get(of.ami_type)
    if release is None:
        return f"{of.family}@latest"
    version, _, build = release.partition("-")
    return f"{of.family}@v{build if of.family == 'al2023' else version}"


_MIME: Final = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
{spec}
--//--
"""
"""A NodeConfig as user data."""
_DISKS: Final[Mapping[str, str]] = {
    "al2023": """\
  instance:
    localStorage:
      strategy: RAID0
""",
    "bottlerocket": """\
[settings.bootstrap-commands.local-disks]
commands = [
  ["apiclient", "ephemeral-storage", "init"],
  ["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"],
]
essential = true
mode = "always"
""",
}
"""What puts images, containers and ephemeral storage on the local NVMe disks, by family of the image.

https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/, https://bottlerocket.dev/en/os/latest/concepts/bootstrap-commands/
"""
_NUMA: Final[Mapping[str, str]] = {
    "al2023": """\
  kubelet:
    config:
      cpuManagerPolicy: static
      topologyManagerPolicy: {policy}
""",
    "bottlerocket": """\
[settings.kubernetes]
cpu-manager-policy = "static"
topology-manager-policy = "{policy}"
""",
}
"""What aligns containers with NUMA nodes, by family of the image.

https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/, https://bottlerocket.dev/en/os/latest/api/settings/kubernetes/
"""
_GIB: Final = 2**30
_BOTTLEROCKET_OS: Final = 4 * _GIB
"""Bottlerocket's first disk is for the operating system; images and containers are on the second:
https://github.com/aws/karpenter-provider-aws/blob/main/pkg/providers/amifamily/bottlerocket.go."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A disk of a node.

    Attributes:
        gib: size in GiB.
        key: ARN of its KMS key; None for the account's.
        throughput: in MiB/s.
        iops: I/O operations per second.
        snapshot: ID of the snapshot that it starts as; None for an empty disk.
    """

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

    On GPU machines the disk with the images has the catalogue's throughput, unless the images are on local disks.
    """
    included, gpu = _performance(None), _performance(cluster.disk_throughput, gpu=True)
    on_boot_disk = machine.gpus and not uses_local_disks(cluster, machine)
    chosen = gpu if machine.gpus and (on_boot_disk or cluster.disk_throughput) else included
    data = Volume(of.data, -(-disk.size // _GIB), disk.key, *chosen, snapshot)
    return (Volume(of.own, _BOTTLEROCKET_OS // _GIB, disk.key, *included), data) if of.own else (data,)


def _performance(throughput: int | None, *, gpu: bool = False) -> tuple[int, int]:
    """Throughput in MiB/s and IOPS of a gp3 volume."""
    table = cloud_tables()["aws"].disk
    if table is None:
        msg = "gpu_tenancy/model/catalogue/machines/aws.yaml has no disk; add it"
        raise ValueError(msg)
    chosen = throughput or (table.gpu_throughput if gpu else table.throughput)
    return chosen, table.iops_for(chosen)


def node_configuration(of: Image, *, disks: bool = False, numa: Numa | None = None) -> str | None:
    """The configuration of a node, to which EKS and Karpenter add their own parts; None if the image's own is enough.

    Args:
        of: image of the node.
        disks: whether images, containers and ephemeral storage are on the local disks.
        numa: policy of the topology manager; None for no alignment with NUMA nodes.
    """
    parts = (_NUMA[of.family].format(policy=numa) if numa else "") + (_DISKS[of.family] if disks else "")
    if not parts:
        return None
    return _MIME.format(spec=parts) if of.family == "al2023" else parts


def user_data(of: Image, *, disks: bool = False, numa: Numa | None = None) -> str | None:
    """The same in Base64, for launch templates."""
    text = node_configuration(of, disks=disks, numa=numa)
    return base64.b64encode(text.encode()).decode() if text else None
