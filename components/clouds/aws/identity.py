"""IAM roles, their associations with service accounts, access to EKS clusters, and data of teams."""

# https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws.eks.outputs import ClusterCertificateAuthority, ClusterIdentity

from gpu_tenancy.model.kubeconfig import Server, eks_helper, of_helper
from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.identities import MadeBucket, TeamIdentity
from gpu_tenancy.model.plan.people import group_of
from gpu_tenancy.model.plan.secrets import READER
from gpu_tenancy.model.spec.clouds.aws import FILE_SYSTEM, LUSTRE_GROUP, AwsCluster
from gpu_tenancy.model.spec.people import Person

from ...objects import Component, Options
from .nodes import ClusterContext
from .policies import account_trust, datasets_policy, secrets_policy, trust, written_policy


@dataclass(frozen=True, slots=True)
class Grant:
    """The policies of a role."""

    trust: pulumi.Input[str]  # known late if it names an issuer that the cloud decides
    managed: Sequence[str] = ()  # ARNs
    # Documents by name, of at most 10,240 characters:
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
    inline: Mapping[str, str] = field(default_factory=dict[str, str])


def name_of(arn: str) -> str:
    """The name or ID at the end of an ARN, without its path; a preview without the cloud has IDs, but no ARNs."""
    return arn.rpartition("/")[2]


class Role(Component):
    """An IAM role with its policies; resources that depend on it are created after all policies.

    Role names are unique in an account: two clusters of one account must have different names, in all regions.
    """

    def __init__(self, name: str, role_name: str, grant: Grant, tags: Mapping[str, str], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:Role", name, opts)
        role = aws.iam.Role(f"{name}-role", name=role_name, assume_role_policy=grant.trust, tags=tags, opts=self.own)
        for arn in grant.managed:
            aws.iam.RolePolicyAttachment(f"{name}-{name_of(arn)}", role=role.name, policy_arn=arn, opts=self.own)
        for policy, text in grant.inline.items():
            aws.iam.RolePolicy(f"{name}-{policy}", name=policy, role=role.name, policy=text, opts=self.own)
        self.arn = role.arn


class PodRole(Component):
    """A role for the pods of one service account, by EKS Pod Identity. It requires the add-on with the agent."""

    # https://docs.aws.amazon.com/eks/latest/userguide/pod-identities.html

    def __init__(
        self, name: str, context: ClusterContext, account: str, inline: Mapping[str, str], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:PodRole", name, opts)
        grant = Grant(trust("pods.eks"), inline=inline)
        role = Role(f"{name}-identity", f"{context.name}-{account}", grant, context.tags, self.own)
        aws.eks.PodIdentityAssociation(
            f"{name}-association",
            cluster_name=context.name,
            namespace="kube-system",
            service_account=account,
            role_arn=role.arn,
            tags=context.tags,
            opts=self.own,
        )


def certificate(authority: ClusterCertificateAuthority) -> str:
    """The CA certificate of the API server, in base64."""
    return authority.data or ""


def kubeconfig(parts: Sequence[str]) -> str:
    """A kubeconfig without credentials (the AWS CLI creates tokens) from URL, CA certificate, name and region."""
    endpoint, authority, name, region = parts
    return json.dumps(of_helper(Server(name, endpoint, authority), eks_helper(name, region)))


def access_entry(  # noqa: PLR0913, PLR0917 - what an entry has
    name: str,
    plan: ClusterPlan,
    cluster: str,
    arn: pulumi.Input[str],
    opts: ResourceOptions,
    people: Sequence[Person] | None = None,
) -> aws.eks.AccessEntry:
    """The entry of an IAM role or user, with the groups of its people in the plan, unless `people` are given."""
    # EKS accepts one entry for each, so administrators who are people have both rights. RoleBindings name the groups.
    of_arn = [person for person in plan.people if person.name == arn] if people is None else people
    return aws.eks.AccessEntry(
        name,
        cluster_name=cluster,
        principal_arn=arn,
        type="STANDARD",
        kubernetes_groups=[group_of(person) for person in of_arn] or None,
        tags=dict(plan.tags),
        opts=opts,
    )


def people_entries(name: str, plan: ClusterPlan, section: AwsCluster, opts: ResourceOptions) -> None:
    """The entries of people except administrators, which have one already; Kubernetes RBAC decides their rights."""
    admins = section.create.admins if section.create else []
    for who in plan.people:
        if who.name not in admins:
            access_entry(f"{name}-{who.name.partition('::')[2]}", plan, section.name, who.name, opts)


def ci_entries(name: str, plan: ClusterPlan, section: AwsCluster, opts: ResourceOptions) -> None:
    """The IAM roles that CI jobs assume with their own tokens, and the entries of these roles."""
    # The CI system's OIDC provider is not created here, because an account has one for all stacks.
    for account in plan.service_accounts:
        own = f"{name}-{account.team}.{account.name}"
        provider, issuer = section.identity_provider or "", section.issuer or ""
        trusted = written_policy(
            "web-identity-trust", section.region, provider=provider, issuer=issuer, subject=account.subject or ""
        )
        grant = Grant(trusted, inline={"cluster": written_policy("ci", section.region, cluster=section.name)})
        role = Role(f"{own}-role", section.identity_name(account.team, account.name), grant, plan.tags, opts)
        access_entry(f"{own}-entry", plan, section.name, role.arn, opts, [account.identity] if account.identity else [])


class SecretReaders(Component):
    """The roles of all teams that read secrets of AWS Secrets Manager; `arns` has them by their names in the plan.

    The secrets are not created here. A role may not decrypt with a KMS key other than AWS's own: the key's owner must
    allow it. An existing cluster must have the IAM OIDC provider of its tokens, which is created here for a created
    cluster.
    """

    def __init__(
        self, name: str, plan: ClusterPlan, section: AwsCluster, cluster: aws.eks.Cluster, opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:SecretReaders", name, opts)
        issuer = cluster.identities.apply(issuer_of)
        invoke = pulumi.InvokeOutputOptions(parent=self)
        provider: pulumi.Output[str] = (
            aws.iam.OpenIdConnectProvider(
                f"{name}-issuer", url=issuer, client_id_lists=["sts.amazonaws.com"], tags=plan.tags, opts=self.own
            ).arn
            if section.create
            else aws.iam.get_open_id_connect_provider_output(url=issuer, opts=invoke).arn
        )
        self.arns: dict[str, pulumi.Output[str]] = {}
        for reader in plan.readers:
            trusted = pulumi.Output.all(provider, issuer, reader.team).apply(
                lambda parts: account_trust(parts[0], parts[1], parts[2], READER)
            )
            grant = Grant(trusted, inline={"secrets": secrets_policy(reader.secrets, section.region)})
            role = Role(f"{name}-{reader.team}", section.reader_name(reader.team), grant, plan.tags, self.own)
            self.arns |= dict.fromkeys(reader.annotations.values(), role.arn)


def issuer_of(identities: Sequence[ClusterIdentity]) -> str:
    """The URL of the issuer of a cluster's tokens."""
    return next((one.issuer or "" for identity in identities for one in identity.oidcs or []), "")


NFS: Final = ((2049, 2049),)  # TCP ports of EFS: https://docs.aws.amazon.com/efs/latest/ug/network-access.html.
LUSTRE: Final = ((988, 988), (1018, 1023))
"""TCP ports of Lustre, which servers and clients use in both directions:
https://docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html."""
SHARED_KIND: Final = "efs"
LUSTRE_KIND: Final = "fsx-lustre"  # Lustre's name in the table of storage


class TeamRole(Component):
    """The IAM role of a team's pods, by EKS Pod Identity, with rights on the folders of its datasets alone.

    The CSI driver for S3 mounts a volume with the role of the pod, so each pod reads only its team's data:
    https://github.com/awslabs/mountpoint-s3-csi-driver/blob/main/docs/CONFIGURATION.md. A bucket of another account
    must allow the role in its own policy, which is not changed here.
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


class DatasetBucket(Component):
    """A bucket for datasets: without public access, encrypted, versioned, and only reachable over TLS. It is kept."""

    def __init__(self, name: str, context: ClusterContext, made: MadeBucket, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:DatasetBucket", name, opts)
        kept = self.kept(protect=context.protect)
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


def data_access(name: str, context: ClusterContext, plan: ClusterPlan, opts: ResourceOptions) -> None:
    """The roles of all teams, and the buckets that the stack creates."""
    for made in plan.buckets:
        DatasetBucket(f"{name}-bucket-{made.bucket.bucket}", context, made, opts)
    for team in plan.identities:
        TeamRole(f"{name}-team-{team.team}", context, team, opts)


class SharedFiles(Component):
    """The EFS file system of a cluster, in which each claim of a team is an access point. It is kept.

    It is encrypted, reached over TLS and only through access points, and admits NFS from the cluster's nodes alone.
    `late` is its ID, by its placeholder in parameters of StorageClasses; `targets` are its addresses in the cluster's
    subnets, which pods need while they mount it.
    """

    def __init__(self, name: str, context: ClusterContext, network: pulumi.Output[str], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:SharedFiles", name, opts)
        kept = self.kept(protect=context.protect)
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


class LustreNetwork(Component):
    """The security group of the file systems that the CSI driver for FSx for Lustre creates, one for each claim.

    It admits Lustre from the cluster's nodes and among its servers, as does the nodes' security group. In an existing
    network it stays when the stack is destroyed, as do file systems of deleted claims; a created network could not be
    deleted with it: https://docs.aws.amazon.com/vpc/latest/userguide/delete-vpc.html. `late` has its ID by its
    placeholder in parameters of StorageClasses.
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
