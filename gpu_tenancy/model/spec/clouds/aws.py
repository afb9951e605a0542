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
"""Zones that EKS demands of a control plane: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html."""


class EksCreation(Creation):
    """An EKS cluster to be made: private unless it says otherwise, secrets encrypted, audit logs on.

    Whoever deploys it first administers it too, since the same deployment fills it.
    """

    secrets_key: KeyArn | None = None
    """ARN of the KMS key that encrypts secrets; left out, one is made."""
    admins: list[RoleArn] = []
    """IAM roles, such as those of Identity Center groups, that administer the cluster, by access entries."""


class AwsCluster(CloudCluster):
    """An EKS cluster. Its network is given, not made.

    A cluster that exists must know access entries (authentication mode `API` or `API_AND_CONFIG_MAP`), and run the
    add-on `eks-pod-identity-agent` where an autoscaler is installed here.
    """

    cloud: Literal["aws"]
    """`aws`: EKS."""
    region: Region
    """Region such as `eu-central-1`."""
    subnets: Annotated[dict[Zone, Subnet], Field(min_length=1)]
    """Private subnet of each zone, for nodes and, where the cluster is made here, for its control plane."""
    autoscaler: Literal["cluster-autoscaler", "karpenter", "installed", "none"] = "cluster-autoscaler"
    """What adds nodes: an autoscaler that is installed here, one that is there already (`installed`), or none."""
    node_role: RoleArn | None = None
    """IAM role of the pools' nodes; left out, one is made with what a node needs and no more."""
    create: EksCreation | None = None
    """What the cluster is like that is made here; left out, it exists under its name."""

    @property
    def grows(self) -> bool:
        """Whether anything moves the desired size."""
        return self.autoscaler != "none"

    @property
    def creation(self) -> EksCreation | None:
        """What the cluster is like that is made here."""
        return self.create

    def time_slicing_rule(self) -> tuple[str, str] | None:
        """Karpenter counts a machine's GPUs, never turns, so it would bring several times the nodes that are needed."""
        if self.autoscaler != "karpenter":
            return None
        return (
            "is not known to karpenter, which would bring too many nodes",
            "use cluster-autoscaler, or mig",
        )

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """A zone without a subnet has no place for a node."""
        if zone in self.subnets:
            return None
        return "is no zone of cluster.subnets", f"give it a subnet there, or choose of {', '.join(self.subnets)}"

    @model_validator(mode="after")
    def _zones(self) -> Self:
        for zone in self.subnets:
            if zone[:-1] != self.region and not zone.startswith(f"{self.region}-"):
                raise refuse(f"has a subnet in {zone}, which is no zone of {self.region}", "correct one of the two")
        if self.create and len(self.subnets) < _CONTROL_PLANE_ZONES:
            raise refuse(
                "has subnets in one zone, and EKS makes a control plane in two or more",
                "add a subnet of a second zone under cluster.subnets; pools stay in theirs by pools.<name>.zones",
            )
        return self
