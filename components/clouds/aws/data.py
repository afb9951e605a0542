"""Data of teams on AWS: IAM roles and buckets, shared file systems and their network."""

from collections.abc import Sequence
from typing import Final

import pulumi
import pulumi_aws as aws

from gpu_tenancy.model.plan.identities import MadeBucket, TeamIdentity
from gpu_tenancy.model.spec.clouds.aws import FILE_SYSTEM, LUSTRE_GROUP

from .identity import Grant, Role, name_of
from .nodes import ClusterContext
from .policies import datasets_policy, deny_without_tls, document, partition, shared_files_policy, trust


class TeamRole(pulumi.ComponentResource):
    """The IAM role of a team's pods, by EKS Pod Identity, with rights on the folders of its datasets alone.

    The CSI driver for S3 mounts a volume with the role of the pod that has it, so each pod reads what its team may, and
    nothing else does: https://github.com/awslabs/mountpoint-s3-csi-driver/blob/main/docs/CONFIGURATION.md.
    A bucket of another account must allow the role in its own policy, which is not changed here.
    """

    def __init__(
        self, name: str, context: ClusterContext, team: TeamIdentity, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:TeamRole", name, {}, opts)
        within = pulumi.ResourceOptions(parent=self)
        policies = {"datasets": datasets_policy(team.datasets, context.section.region)}
        role = Role(f"{name}-identity", team.name, Grant(trust("pods.eks"), inline=policies), context.tags, within)
        for account in team.accounts:
            aws.eks.PodIdentityAssociation(
                f"{name}-{account}",
                cluster_name=context.name,
                namespace=team.team,
                service_account=account,
                role_arn=role.arn,
                tags=context.tags,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[role]),
            )
        self.register_outputs({})


class DatasetBucket(pulumi.ComponentResource):
    """A bucket for datasets: without public access, encrypted, versioned, and only reachable over TLS.

    It stays when the stack is destroyed, because its data does not belong to the stack; in production, Pulumi also
    refuses to delete it.
    """

    def __init__(
        self, name: str, context: ClusterContext, made: MadeBucket, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:DatasetBucket", name, {}, opts)
        kept = pulumi.ResourceOptions(parent=self, retain_on_delete=True, protect=context.protect)
        bucket = aws.s3.Bucket(f"{name}-bucket", bucket=made.bucket.bucket, tags=context.tags, opts=kept)
        aws.s3.BucketPublicAccessBlock(
            f"{name}-private",
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=kept,
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            f"{name}-encryption",
            bucket=bucket.id,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms" if made.key else "AES256",
                        "kms_master_key_id": made.key,
                    },
                    "bucket_key_enabled": bool(made.key),
                }
            ],
            opts=kept,
        )
        aws.s3.BucketVersioning(
            f"{name}-versions", bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=kept
        )
        aws.s3.BucketPolicy(
            f"{name}-policy", bucket=bucket.id, policy=_only_tls(made.bucket.bucket, context.section.region), opts=kept
        )
        self.register_outputs({"bucket": bucket.id})


def _only_tls(bucket: str, region: str) -> str:
    arn = f"arn:{partition(region)}:s3:::{bucket}"
    return document(deny_without_tls("DenyHTTP", Principal="*", Action="s3:*", Resource=[arn, f"{arn}/*"]))


def data_access(
    name: str,
    context: ClusterContext,
    teams: Sequence[TeamIdentity],
    buckets: Sequence[MadeBucket],
    opts: pulumi.ResourceOptions,
) -> None:
    """The roles of all teams, and the buckets that the stack creates."""
    for made in buckets:
        DatasetBucket(f"{name}-bucket-{made.bucket.bucket}", context, made, opts)
    for team in teams:
        TeamRole(f"{name}-team-{team.team}", context, team, opts)


NFS: Final = ((2049, 2049),)
"""TCP ports of EFS: https://docs.aws.amazon.com/efs/latest/ug/network-access.html."""
LUSTRE: Final = ((988, 988), (1018, 1023))
"""TCP ports of Lustre, which servers and clients use in both directions:
https://docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html."""
SHARED_KIND: Final = "efs"
LUSTRE_KIND: Final = "fsx-lustre"
"""Their names in the table of storage."""


class SharedFiles(pulumi.ComponentResource):
    """The EFS file system of a cluster, in which each claim of a team is an access point.

    It is encrypted, reached over TLS and only through access points, and admits NFS from the cluster's nodes alone. It
    stays when the stack is destroyed, because its data does not belong to the stack; in production, Pulumi also refuses
    to delete it.

    Attributes:
        late: its ID, by its placeholder in parameters of StorageClasses.
        targets: its addresses in the cluster's subnets, which pods need while they mount it.
    """

    def __init__(
        self,
        name: str,
        context: ClusterContext,
        network: pulumi.Output[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:SharedFiles", name, {}, opts)
        kept = pulumi.ResourceOptions(parent=self, retain_on_delete=True, protect=context.protect)
        within = pulumi.ResourceOptions(parent=self)
        named = {**context.tags, "Name": f"{context.name}-shared-files"}
        files = aws.efs.FileSystem(f"{name}-files", encrypted=True, throughput_mode="elastic", tags=named, opts=kept)
        file_system = files.arn.apply(name_of)
        policy = shared_files_policy(context.section.region)
        aws.efs.FileSystemPolicy(f"{name}-policy", file_system_id=file_system, policy=policy, opts=kept)
        group = aws.ec2.SecurityGroup(
            f"{name}-group",
            name=f"{context.name}-shared-files",
            description="NFS from nodes of the cluster",
            vpc_id=network,
            tags=context.tags,
            opts=within,
        )
        admitting = group.arn.apply(name_of)
        inbound = aws.vpc.SecurityGroupIngressRule
        _rules(inbound, f"{name}-from-nodes", NFS, (admitting, context.security_group), within)
        self.late = {FILE_SYSTEM: file_system}
        self.targets: Sequence[pulumi.Resource] = [
            aws.efs.MountTarget(
                f"{name}-{zone}",
                file_system_id=file_system,
                subnet_id=context.subnets[zone],
                security_groups=[admitting],
                opts=within,
            )
            for zone in context.section.zonal
        ]
        self.register_outputs({"fileSystem": file_system})


class LustreNetwork(pulumi.ComponentResource):
    """The security group of the file systems that the CSI driver for FSx for Lustre creates, one for each claim.

    It admits Lustre from the cluster's nodes and among its servers, and so does the security group of the nodes. In an
    existing network it stays when the stack is destroyed, as the file systems of deleted claims do, which use it. A
    created network could not be deleted with it:
    https://docs.aws.amazon.com/vpc/latest/userguide/delete-vpc.html.

    Attributes:
        late: its ID, by its placeholder in parameters of StorageClasses.
    """

    def __init__(
        self,
        name: str,
        context: ClusterContext,
        network: pulumi.Output[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:LustreNetwork", name, {}, opts)
        kept = pulumi.ResourceOptions(parent=self, retain_on_delete=not context.section.makes_network)
        # Not kept: EKS could not delete a security group that a rule of another one names.
        within = pulumi.ResourceOptions(parent=self)
        group = aws.ec2.SecurityGroup(
            f"{name}-group",
            name_prefix=f"{context.name}-lustre-",
            description="Lustre between file systems and nodes of the cluster",
            vpc_id=network,
            tags=context.tags,
            opts=kept,
        )
        nodes, servers = context.security_group, group.arn.apply(name_of)
        inbound, outbound = aws.vpc.SecurityGroupIngressRule, aws.vpc.SecurityGroupEgressRule
        _rules(inbound, f"{name}-from-servers", LUSTRE, (servers, servers), kept)
        _rules(inbound, f"{name}-from-nodes", LUSTRE, (servers, nodes), within)
        _rules(inbound, f"{name}-to-nodes", LUSTRE, (nodes, servers), within)
        _rules(outbound, f"{name}-out-to-servers", LUSTRE, (servers, servers), kept)
        _rules(outbound, f"{name}-out-to-nodes", LUSTRE, (servers, nodes), within)
        self.late = {LUSTRE_GROUP: servers}
        self.register_outputs({"group": servers})


def _rules(
    direction: type[aws.vpc.SecurityGroupIngressRule | aws.vpc.SecurityGroupEgressRule],
    name: str,
    ports: Sequence[tuple[int, int]],
    between: tuple[pulumi.Input[str], pulumi.Input[str]],
    opts: pulumi.ResourceOptions,
) -> None:
    """Rules of a security group that admit TCP from another one, or to it; the other is the second of `between`."""
    group, peer = between
    for first, last in ports:
        direction(
            f"{name}-{first}",
            security_group_id=group,
            referenced_security_group_id=peer,
            ip_protocol="tcp",
            from_port=first,
            to_port=last,
            opts=opts,
        )
