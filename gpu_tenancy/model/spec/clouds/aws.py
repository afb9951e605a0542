"""EKS: https://docs.aws.amazon.com/eks/latest/userguide/."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, StringConstraints, model_validator

from gpu_tenancy.model.spec.base import refuse
from gpu_tenancy.model.spec.clouds.base import CloudCluster, Creation

RoleArn: TypeAlias = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+$")]
KeyArn: TypeAlias = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+$")]
Subnet: TypeAlias = Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]{8,17}$")]
Zone: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z0-9]+)+[a-z]$")]
Region: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z]+)+-\d$")]

_CONTROL_PLANE_ZONES: Final = 2
"""Minimum number of zones for a control plane: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html."""


class EksCreation(Creation):
    """An EKS cluster to create: private by default, with encrypted secrets and audit logs.

    The identity that deploys it first becomes an administrator too, because the same deployment creates its objects.
    """

    secrets_key: KeyArn | None = None
    """ARN of the KMS key that encrypts secrets; default: a key is created."""
    admins: list[RoleArn] = []
    """IAM roles that administer the cluster through access entries, such as roles of Identity Center groups."""


class AwsCluster(CloudCluster):
    """An EKS cluster in an existing network.

    An existing cluster must support access entries (authentication mode `API` or `API_AND_CONFIG_MAP`), and run the
    add-on `eks-pod-identity-agent` if an autoscaler is installed here.
    """

    cloud: Literal["aws"]
    """`aws`: EKS."""
    region: Region
    """Region such as `eu-central-1`."""
    subnets: Annotated[dict[Zone, Subnet], Field(min_length=1)]
    """Private subnet by zone, for nodes and for the control plane of a cluster that is created here."""
    autoscaler: Literal["cluster-autoscaler", "karpenter", "installed", "none"] = "cluster-autoscaler"
    """Node autoscaler: one that is installed here, an existing one (`installed`), or `none`."""
    node_role: RoleArn | None = None
    """IAM role of the nodes; default: a role with the minimum permissions is created."""
    create: EksCreation | None = None
    """Settings of the cluster to create; default: use the existing cluster with this name."""

    @property
    def grows(self) -> bool:
        """Whether an autoscaler adds nodes."""
        return self.autoscaler != "none"

    @property
    def creation(self) -> EksCreation | None:
        """Settings of the cluster to create."""
        return self.create

    def time_slicing_rule(self) -> tuple[str, str] | None:
        """Karpenter counts whole GPUs, not time slices, so it would add several times the nodes that are needed."""
        if self.autoscaler != "karpenter":
            return None
        return (
            "is not supported by karpenter, which would add too many nodes",
            "set cluster.autoscaler: cluster-autoscaler, or use mig",
        )

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """Nodes need a subnet in their zone."""
        if zone in self.subnets:
            return None
        return "has no subnet under cluster.subnets", f"add a subnet, or use one of: {', '.join(self.subnets)}"

    @model_validator(mode="after")
    def _zones(self) -> Self:
        for zone in self.subnets:
            if zone[:-1] != self.region and not zone.startswith(f"{self.region}-"):
                raise refuse(
                    f"has a subnet in {zone}, which is not a zone of {self.region}", "change region or the zone"
                )
        if self.create and len(self.subnets) < _CONTROL_PLANE_ZONES:
            raise refuse(
                "has subnets in one zone, but an EKS control plane needs two or more",
                "add a subnet of a second zone under cluster.subnets (pools.<name>.zones keeps pools in one zone)",
            )
        return self
