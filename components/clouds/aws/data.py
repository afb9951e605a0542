"""IAM roles of teams, and buckets that a stack creates."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from gpu_tenancy.model.plan.identities import MadeBucket, TeamIdentity

from .context import ClusterContext
from .identity import Grant, Role
from .policies import datasets_policy, deny_without_tls, document, partition, trust


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
