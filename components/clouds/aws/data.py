"""Data of teams on AWS: IAM roles and buckets, shared file systems and their network."""

from collections.abc import Sequence
from typing import Final

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.identities import MadeBucket, TeamIdentity
from gpu_tenancy.model.spec.clouds.aws import FILE_SYSTEM, LUSTRE_GROUP

from ...objects import Component, Options
from .identity import Grant, Role, name_of
from .nodes import ClusterContext
from .policies import datasets_policy, trust, written_policy

NFS: Final = ((2049, 2049),)
"""TCP ports of EFS: https://docs.aws.amazon.com/efs/latest/ug/network-access.html."""
LUSTRE: Final = ((988, 988), (1018, 1023))
"""TCP ports of Lustre, which servers and clients use in both directions:
https://docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html."""
SHARED_KIND: Final = "efs"
LUSTRE_KIND: Final = "fsx-lustre"
"""Their names in the table of storage."""


class TeamRole(Component):
    """The IAM role of a team's pods, by EKS Pod Identity, with rights on the folders of its datasets alone.

    The CSI driver for S3 mounts a volume with the role of the pod that has it, so each pod reads what its team may, and
    nothing else does: https://github.com/awslabs/mountpoint-s3-csi-driver/blob/main/docs/CONFIGURATION.md.
    A bucket of another account must allow the role in its own policy, which is not changed here.
    """

    def __init__(self, name: str, context: ClusterContext, team: TeamIdentity, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:TeamRole", name, opts)
        policies = {"datasets": datasets_policy(team.datasets, context.section.region)}
        role = Role(f"{name}-identity", team.name, Grant(trust("pods.eks"), inline=policies), context.tags, self.own)
        for account in team.accounts:
            aws.eks.PodIdentityAssociation(
                f"{name}-{account}",
                cluster_name=context.name,
                namespace=team.team,
                service_account=account,
                role_arn=role.arn,
                tags=context.tags,
                opts=self.after(role),
            )
        self.register_outputs({})


class DatasetBucket(Component):
    """A bucket for datasets: without public access, encrypted, versioned, and only reachable over TLS.

    It stays when the stack is destroyed, because its data does not belong to the stack; in production, Pulumi also
    refuses to delete it.
    """

    def __init__(self, name: str, context: ClusterContext, made: MadeBucket, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:DatasetBucket", name, opts)
        kept = ResourceOptions(parent=self, retain_on_delete=True, protect=context.protect)
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
        encryption: aws.s3.BucketServerSideEncryptionConfigurationRuleArgsDict = {
            "apply_server_side_encryption_by_default": {
                "sse_algorithm": "aws:kms" if made.key else "AES256",
                "kms_master_key_id": made.key,
            },
            "bucket_key_enabled": bool(made.key),
        }
        aws.s3.BucketServerSideEncryptionConfiguration(
            f"{name}-encryption", bucket=bucket.id, rules=[encryption], opts=kept
        )
        aws.s3.BucketVersioning(
            f"{name}-versions", bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=kept
        )
        only_tls = written_policy("bucket", context.section.region, bucket=made.bucket.bucket)
        aws.s3.BucketPolicy(f"{name}-policy", bucket=bucket.id, policy=only_tls, opts=kept)
        self.register_outputs({"bucket": bucket.id})


def data_access(name: str, context: ClusterContext, plan: ClusterPlan, opts: ResourceOptions) -> None:
    """The roles of all teams, and the buckets that the stack creates."""
    for made in plan.buckets:
        DatasetBucket(f"{name}-bucket-{made.bucket.bucket}", context, made, opts)
    for team in plan.identities:
        TeamRole(f"{name}-team-{team.team}", context, team, opts)


class SharedFiles(Component):
    """The EFS file system of a cluster, in which each claim of a team is an access point.

    It is encrypted, reached over TLS and only through access points, and admits NFS from the cluster's nodes alone. It
    stays when the stack is destroyed, because its data does not belong to the stack; in production, Pulumi also refuses
    to delete it.

    Attributes:
        late: its ID, by its placeholder in parameters of StorageClasses.
        targets: its addresses in the cluster's subnets, which pods need while they mount it.
    """

    def __init__(self, name: str, context: ClusterContext, network: pulumi.Output[str], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:SharedFiles", name, opts)
        kept = ResourceOptions(parent=self, retain_on_delete=True, protect=context.protect)
        called = f"{context.name}-shared-files"
        named = {**context.tags, "Name": called}
        files = aws.efs.FileSystem(f"{name}-files", encrypted=True, throughput_mode="elastic", tags=named, opts=kept)
        file_system = files.arn.apply(name_of)
        policy = written_policy("shared-files", context.section.region)
        aws.efs.FileSystemPolicy(f"{name}-policy", file_system_id=file_system, policy=policy, opts=kept)
        group = aws.ec2.SecurityGroup(
            f"{name}-group",
            name=called,
            description="NFS from nodes of the cluster",
            vpc_id=network,
            tags=context.tags,
            opts=self.own,
        )
        admitting = group.arn.apply(name_of)
        inbound = aws.vpc.SecurityGroupIngressRule
        _rules(inbound, f"{name}-from-nodes", NFS, (admitting, context.security_group), self.own)
        self.late = {FILE_SYSTEM: file_system}
        self.targets: Sequence[pulumi.Resource] = [
            aws.efs.MountTarget(
                f"{name}-{zone}",
                file_system_id=file_system,
                subnet_id=context.subnets[zone],
                security_groups=[admitting],
                opts=self.own,
            )
            for zone in context.section.zonal
        ]
        self.register_outputs({"fileSystem": file_system})


class LustreNetwork(Component):
    """The security group of the file systems that the CSI driver for FSx for Lustre creates, one for each claim.

    It admits Lustre from the cluster's nodes and among its servers, and so does the security group of the nodes. In an
    existing network it stays when the stack is destroyed, as the file systems of deleted claims do, which use it. A
    created network could not be deleted with it:
    https://docs.aws.amazon.com/vpc/latest/userguide/delete-vpc.html.

    Attributes:
        late: its ID, by its placeholder in parameters of StorageClasses.
    """

    def __init__(self, name: str, context: ClusterContext, network: pulumi.Output[str], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:LustreNetwork", name, opts)
        kept = ResourceOptions(parent=self, retain_on_delete=not context.section.makes_network)
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
        _rules(outbound, f"{name}-out-to-servers", LUSTRE, (servers, servers), kept)
        # Not kept: EKS could not delete a security group that a rule of another one names.
        _rules(inbound, f"{name}-from-nodes", LUSTRE, (servers, nodes), self.own)
        _rules(inbound, f"{name}-to-nodes", LUSTRE, (nodes, servers), self.own)
        _rules(outbound, f"{name}-out-to-nodes", LUSTRE, (servers, nodes), self.own)
        self.late = {LUSTRE_GROUP: servers}
        self.register_outputs({"group": servers})


def _rules(
    direction: type[aws.vpc.SecurityGroupIngressRule | aws.vpc.SecurityGroupEgressRule],
    name: str,
    ports: Sequence[tuple[int, int]],
    between: tuple[pulumi.Input[str], pulumi.Input[str]],
    opts: ResourceOptions,
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
