"""Images of EKS nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.spec.clouds.aws import AmiType, AwsCluster


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
