"""EKS: https://docs.aws.amazon.com/eks/latest/userguide/."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field, StringConstraints

from gpu_tenancy.base.texts import plural
from gpu_tenancy.model.spec.clouds.base import CloudCluster, Creation, Maintenance, late_reader, late_storage
from gpu_tenancy.model.spec.people import Person

RoleArn: TypeAlias = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+$")]
ProviderArn: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:oidc-provider/[a-z0-9.-]+(/[\w./-]+)?$")
]
KeyArn: TypeAlias = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+$")]
OBJECT_ACTIONS: Final = {
    False: ("s3:GetObject",),
    True: ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject"),
}
"""Actions on objects of S3, by whether they write:
https://github.com/awslabs/mountpoint-s3/blob/main/doc/CONFIGURATION.md#iam-permissions."""
KEY_ACTIONS: Final = {False: ("kms:Decrypt",), True: ("kms:Decrypt", "kms:GenerateDataKey")}
"""Actions on the KMS key of a bucket, by whether objects are written."""
FILE_SYSTEM: Final = late_storage("file-system")
"""The EFS file system of a cluster."""
LUSTRE_GROUP: Final = late_storage("lustre-group")
"""The security group of its FSx for Lustre file systems."""
LUSTRE_SUBNET: Final = late_storage("lustre-subnet")
"""Their subnet, in a network that is created with the cluster."""
LUSTRE_TAG: Final = "gpu-tenancy-cluster"
"""Tag of these file systems, with the name of the cluster."""
Subnet: TypeAlias = Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]{8,17}$")]
Zone: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z0-9]+)+[a-z]$")]
Region: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z]+)+-\d$")]

AddonName: TypeAlias = Literal[
    "aws-ebs-csi-driver", "aws-efs-csi-driver", "aws-fsx-csi-driver", "aws-mountpoint-s3-csi-driver", "coredns",
    "eks-node-monitoring-agent", "eks-pod-identity-agent", "kube-proxy", "metrics-server", "snapshot-controller",
    "vpc-cni",
]  # fmt: skip
"""Add-ons of a created cluster."""
AddonVersion: TypeAlias = Annotated[str, StringConstraints(pattern=r"^v\d+\.\d+\.\d+-eksbuild\.\d+$")]
AmiType: TypeAlias = Literal[
    "AL2023_x86_64_STANDARD", "AL2023_ARM_64_STANDARD", "AL2023_x86_64_NVIDIA", "AL2023_ARM_64_NVIDIA",
    "BOTTLEROCKET_x86_64_NVIDIA", "BOTTLEROCKET_ARM_64_NVIDIA",
]  # fmt: skip
"""Images of nodes: https://docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html."""
AmiRelease: TypeAlias = Annotated[str, StringConstraints(pattern=r"^1\.\d{2}\.\d+-\d{8}$|^1\.\d+\.\d+-[0-9a-f]{8}$")]
"""Release of an image, as EKS writes it: `1.35.2-20261109` of AL2023, `1.55.0-1a2b3c4d` of Bottlerocket."""

_SNAPSHOT: Final = re.compile(r"snap-[0-9a-f]{8,17}")
_CONTROL_PLANE_ZONES: Final = 2
"""Minimum number of zones for a control plane: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html."""


class EksCreation(Creation):
    """An EKS cluster to create: private by default, with encrypted secrets and audit logs."""

    # https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html; each zone gets an eighth.
    _PREFIXES: ClassVar[tuple[int, int]] = (16, 20)

    zones: Annotated[list[Zone], Field(max_length=8)] = []
    """Zones of the network that is created: a private subnet in each, with egress through a NAT gateway. Required
    without `subnets`."""

    secrets_key: KeyArn | None = None
    """ARN of the KMS key that encrypts secrets; default: a key is created. EKS never changes the key of a
    cluster."""
    admins: list[RoleArn] = []
    """IAM roles that administer the cluster through access entries; at least the role that deploys the stack, because
    EKS gives it no rights in the cluster."""
    support: Literal["standard", "extended"] = "standard"
    """What EKS does when standard support of `version` ends: upgrade the cluster (`standard`; then set `version` to the
    new one, because EKS rejects the older one), or keep the version at a higher price (`extended`)."""
    subnets: dict[Zone, Subnet] = {}
    """Subnet by Availability Zone for the control plane, in two zones or more, which cannot be changed later; default:
    the cluster's subnets in Availability Zones."""
    addons: dict[AddonName, AddonVersion] = {}
    """Versions of add-ons, such as `{vpc-cni: v1.21.1-eksbuild.1}`; default: EKS's default for `version`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        if not self.admins:
            fix = "set admins to the IAM roles of its administrators, including the role that deploys the stack"
            yield "has no admins, so nobody can create objects in the cluster", fix
        for arn in self.admins:
            if self.admins.count(arn) > 1:
                yield f"lists {arn} under admins more than once", "remove the repetition"


class AwsCluster(CloudCluster):
    """An EKS cluster, in an existing network or in one that is created with it.

    An existing cluster must support access entries (authentication mode `API` or `API_AND_CONFIG_MAP`), and run the
    add-on `eks-pod-identity-agent` if an autoscaler is installed here.
    """

    _LONGEST_IDENTITY: ClassVar[int] = 64

    cloud: Literal["aws"]
    """`aws`: EKS."""
    region: Region
    """Region such as `eu-central-1`."""
    subnets: dict[Zone, Subnet] = {}
    """Private subnet by zone, for nodes, and in Availability Zones also for the control plane of a created cluster;
    default: they are created in `create.zones`. A subnet in a Local Zone, such as `us-east-1-dfw-2a`, gets only nodes
    of pools with this zone."""
    autoscaler: Literal["cluster-autoscaler", "karpenter", "installed", "none"] = "cluster-autoscaler"
    """Node autoscaler: one that is installed here, an existing one (`installed`), or `none`."""
    node_role: RoleArn | None = None
    """IAM role of the nodes; default: a role with the minimum permissions is created."""
    identity_provider: ProviderArn | None = None
    """ARN of the IAM OIDC provider of the CI system, with whose tokens service accounts with `subject` log in, such as
    `arn:aws:iam::111122223333:oidc-provider/token.actions.githubusercontent.com`."""
    images: dict[AmiType, AmiRelease] = {}
    """Release of the node image, by AMI type: `{AL2023_x86_64_NVIDIA: 1.35.2-20261109}`. Default: a node group keeps
    the latest release of the time when its version was set; Karpenter's new nodes get the latest."""
    drift: Maintenance | None = None
    """When Karpenter replaces nodes that run pods and differ from the pool, such as by an older image, one at a time,
    with 24 hours for jobs to end. Default: never, only empty nodes, and nodes without GPUs after 30 days."""
    local_disks: bool = True
    """Whether images, containers and ephemeral storage are on the local NVMe disks of machines that have them (RAID 0),
    not on the boot disk."""
    disk_throughput: Annotated[int, Field(ge=125, le=2000)] | None = None
    """Throughput of the boot disks of GPU nodes in MiB/s; default: the catalogue's, or gp3's included 125 where local
    disks are used."""
    session_manager: bool = False
    """Whether the created node roles allow shells through AWS Systems Manager."""
    create: EksCreation | None = None
    """Settings of the cluster to create; default: use the existing cluster with this name."""

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones of the cluster's subnets."""
        return tuple(self.subnets or (self.create.zones if self.create else ()))

    @property
    def makes_network(self) -> bool:
        """Whether it names no subnets."""
        return not self.subnets

    @property
    def ways_out(self) -> dict[str, int]:
        """A regional NAT gateway, which costs for each zone with nodes."""
        return {"aws-nat-gateway": len(self.zones)} if self.create and self.makes_network else {}

    @property
    def grows(self) -> bool:
        """Whether an autoscaler adds nodes."""
        return self.autoscaler != "none"

    @property
    def zonal(self) -> tuple[str, ...]:
        """Zones of the cluster's subnets that are Availability Zones; all zones if there are none.

        Control plane, system nodes and file systems are not in Local Zones, nor pools that do not name one:
        https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html.
        """
        return tuple(zone for zone in self.zones if self.is_zonal(zone)) or self.zones

    def is_zonal(self, zone: str) -> bool:
        """Whether a zone is an Availability Zone, such as `us-east-1a`, and not a Local Zone."""
        return zone[:-1] == self.region

    @property
    def issuer(self) -> str | None:
        """Issuer of the tokens of service accounts: the name of the OIDC provider."""
        return self.identity_provider.partition("/")[2] if self.identity_provider else None

    def reader_annotations(self, team: str) -> dict[str, str]:
        """The IAM role that the ServiceAccount assumes, whose ARN has the number of the account.

        https://docs.aws.amazon.com/eks/latest/userguide/associate-service-account-role.html
        """
        return {"eks.amazonaws.com/role-arn": late_reader(team)}

    @property
    def storage_parameters(self) -> Mapping[str, str]:
        """The file system of EFS and the security group of Lustre, created with the cluster, and the first subnet.

        A Lustre file system is in one subnet; pods in other zones reach it too.
        """
        return {
            "fileSystem": FILE_SYSTEM,
            "lustreGroup": LUSTRE_GROUP,
            "lustreTag": f"{LUSTRE_TAG}={self.name}",
            "subnet": next((self.subnets[zone] for zone in self.zonal if zone in self.subnets), LUSTRE_SUBNET),
        }

    def pull_rights(self, registries: Sequence[str]) -> Iterator[str]:
        """Nodes read ECR by the policy of their role, which includes pull-through caches."""
        policy = "AmazonEC2ContainerRegistryPullOnly"
        given = f"attach {policy} to {self.node_role}" if self.node_role else "made here"
        yield f"Nodes read ECR of their account, also pull-through caches: {given}"
        yield "Repositories of another account must allow the role of the nodes in their policies"

    def account_identity(self, team: str, name: str) -> Person | None:
        """The IAM role of a service account, in the account of the OIDC provider."""
        if self.identity_provider is None:
            return None
        account = self.identity_provider.partition(":oidc-provider/")[0]
        return Person("role", f"{account}:role/{self.identity_name(team, name)}")

    def queued_rule(self) -> tuple[str, str] | None:
        """Karpenter knows no ProvisioningRequests: https://github.com/kubernetes-sigs/karpenter/issues/742."""
        if self.autoscaler in {"cluster-autoscaler", "installed"}:
            return None
        what = "Karpenter ignores" if self.autoscaler == "karpenter" else "no autoscaler handles"
        fix = "set cluster.autoscaler: cluster-autoscaler, or another kind of capacity"
        return f"is not available: {what} requests of Kueue for nodes", fix

    def time_slicing_rule(self) -> tuple[str, str] | None:
        """Karpenter counts whole GPUs, not time slices, so it would add several times the nodes that are needed."""
        if self.autoscaler != "karpenter":
            return None
        fix = "set cluster.autoscaler: cluster-autoscaler, or use mig"
        return "is not supported by karpenter, which would add too many nodes", fix

    def reservation_rule(self, reservation: str) -> tuple[str, str] | None:
        """Karpenter selects reservations by ID: https://karpenter.sh/docs/concepts/nodeclasses/."""
        if self.autoscaler != "karpenter" or not reservation.startswith("arn:"):
            return None
        fix = "set the ID of one reservation, or cluster.autoscaler: cluster-autoscaler"
        return "is a resource group, which Karpenter does not support", fix

    def image_disk_rule(self, image_disk: str, driver: str | None, *, local_disks: bool) -> tuple[str, str] | None:
        """Only Bottlerocket has images on a disk of their own, which can be of a snapshot.

        https://github.com/aws-samples/bottlerocket-images-cache
        """
        if not _SNAPSHOT.fullmatch(image_disk):
            return "is not an EBS snapshot", "set its ID, such as snap-0123456789abcdef0"
        if driver != "bottlerocket":
            return "needs nodes with images on a disk of their own", "set driver: bottlerocket, or remove it"
        if local_disks:
            return "is not used where images are on local disks", "set cluster.localDisks: false, or remove it"
        return None

    def node_zones(self, zones: Sequence[str]) -> tuple[str, ...]:
        """The pool's zones, else the Availability Zones of the cluster's subnets."""
        return tuple(zones or self.zonal)

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """Nodes need a subnet in their zone."""
        if zone in self.zones:
            return None
        place = "cluster.subnets" if self.subnets else "cluster.create.zones"
        return f"has no subnet under {place}", f"add it there, or use one of: {', '.join(self.zones)}"

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        if self.drift and self.autoscaler != "karpenter":
            yield "sets drift, which only Karpenter has", "remove drift, or set autoscaler: karpenter"
        if self.session_manager and self.node_role and self.create is None:
            fix = "remove sessionManager, and attach AmazonSSMManagedInstanceCore to that role"
            yield "sets sessionManager, but nodeRole is not created here", fix
        if self.subnets and self.create and self.create.zones:
            yield "sets subnets and also create.zones", "remove create.zones, or subnets to have them created"
        if not self.zones:
            created = ", or create.zones to have a network created" if self.create else ""
            yield "has no subnets", f"set subnets to a private subnet by zone{created}"
        for zone in self.zones:
            if self.zones.count(zone) > 1:
                yield f"lists {zone} under create.zones more than once", "remove the repetition"
            if not self.is_zonal(zone) and not zone.startswith(f"{self.region}-"):
                yield f"has a subnet in {zone}, which is not a zone of {self.region}", "change region or the zone"
        if self.create:
            yield from self._control_plane_conflicts(self.create)

    def _control_plane_conflicts(self, creation: EksCreation) -> Iterator[tuple[str, str]]:
        if creation.subnets and self.makes_network:
            yield "sets create.subnets, but no subnets", "set subnets in the same network, or remove them"
        for zone in creation.subnets:
            if not self.is_zonal(zone):
                rule = f"create.subnets: {zone} is not an Availability Zone of {self.region}"
                yield rule, f"set a zone such as {self.region}a"
        zonal = sum(map(self.is_zonal, creation.subnets or self.zones))
        if zonal < _CONTROL_PLANE_ZONES:
            place = "cluster.subnets" if self.subnets else "cluster.create.zones"
            rule = f"has subnets in {plural(zonal, 'Availability Zone')}, but an EKS control plane needs two or more"
            yield rule, f"add a subnet of a second zone under {place} (pools.<name>.zones keeps pools in one zone)"
