"""IAM policy documents as JSON.

All names are known in advance, except the issuer of a cluster's tokens, so only the trust in it is an Output. Account
ids are `*` in ARNs, because IAM evaluates them in the role's own account.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from gpu_tenancy.model.plan.identities import DataGrant
from gpu_tenancy.model.plan.secrets import Store
from gpu_tenancy.model.spec.clouds.aws import LUSTRE_TAG, OBJECT_ACTIONS, AwsCluster

AUDIENCE: Final = "sts.amazonaws.com"
"""Audience of the tokens with which CI jobs assume roles."""
Statement: TypeAlias = Mapping[str, object]

_PARTITIONS: Final = (("cn-", "aws-cn", "amazonaws.com.cn"), ("us-gov-", "aws-us-gov", "amazonaws.com"))
"""https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html"""


def partition(region: str) -> str:
    """The AWS partition of a region, as in ARNs: `aws`, `aws-cn`, `aws-us-gov`."""
    return next((name for prefix, name, _ in _PARTITIONS if region.startswith(prefix)), "aws")


def _domain(region: str) -> str:
    """The domain of AWS's services in a region."""
    return next((domain for prefix, _, domain in _PARTITIONS if region.startswith(prefix)), "amazonaws.com")


def managed_policy(region: str, name: str) -> str:
    """ARN of an AWS managed policy, from its name, with the path that policies for service roles have.

    https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html
    """
    return f"arn:{partition(region)}:iam::aws:policy/{name}"


def access_policy(region: str, name: str) -> str:
    """ARN of an EKS access policy: https://docs.aws.amazon.com/eks/latest/userguide/access-policies.html."""
    return f"arn:{partition(region)}:eks::aws:cluster-access-policy/{name}"


def allow(**parts: object) -> Statement:
    """A statement that allows its `Action` on its `Resource`, or to its `Principal`, under its `Condition`."""
    return {"Effect": "Allow", **parts}


def deny_without_tls(sid: str, **parts: object) -> Statement:
    """A statement that denies its `Action` on its `Resource` to its `Principal`, unless the connection has TLS."""
    return {"Sid": sid, "Effect": "Deny", **parts, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}


def document(*statements: Statement) -> str:
    """A policy document with these statements."""
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def trust(service: str) -> str:
    """The trust policy for an AWS service: `eks`, or `pods.eks` for EKS Pod Identity, which tags its sessions.

    https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html
    """
    actions = ["sts:AssumeRole", "sts:TagSession"] if service == "pods.eks" else ["sts:AssumeRole"]
    return document(allow(Principal={"Service": f"{service}.amazonaws.com"}, Action=actions))


def ci_trust(section: AwsCluster, subject: str) -> str:
    """The trust policy of a service account: one subject of the CI system's tokens, for STS.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
    """
    return _web_identity_trust(section.identity_provider, section.issuer, subject)


def _web_identity_trust(provider: str | None, issuer: str | None, subject: str) -> str:
    """The trust policy for one subject of an issuer's tokens; the issuer is without `https://`."""
    claims = {f"{issuer}:aud": AUDIENCE, f"{issuer}:sub": subject}
    return document(
        allow(
            Principal={"Federated": provider},
            Action=["sts:AssumeRoleWithWebIdentity"],
            Condition={"StringEquals": claims},
        )
    )


def ci_policy(section: AwsCluster) -> str:
    """The policy of a service account: read the address and the CA of the cluster. RBAC gives its other rights."""
    arn = f"arn:{partition(section.region)}:eks:{section.region}:*:cluster/{section.name}"
    return document(allow(Action=["eks:DescribeCluster"], Resource=arn))


def account_trust(provider: str, issuer: str, namespace: str, account: str) -> str:
    """The trust policy for one ServiceAccount of a cluster, for STS."""
    subject = f"system:serviceaccount:{namespace}:{account}"
    return _web_identity_trust(provider, issuer.removeprefix("https://"), subject)


def secrets_policy(secrets: Sequence[tuple[Store, Sequence[str]]], region: str) -> str:
    """The policy of a team's reader: read the named secrets, and no others.

    Secrets Manager adds six characters to the names of ARNs:
    https://docs.aws.amazon.com/secretsmanager/latest/userguide/auth-and-access_examples.html
    """
    names = [
        f"arn:{partition(region)}:secretsmanager:{store.place}:*:secret:{name}-??????"
        for store, named in secrets
        for name in named
    ]
    actions = ["secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue"]
    return document(allow(Action=actions, Resource=names))


def node_trust(region: str) -> str:
    """The trust policy of node roles, for EC2; its service name differs in China."""
    service = f"ec2.{_domain(region)}"
    return document(allow(Principal={"Service": service}, Action=["sts:AssumeRole"]))


def autoscaler_policy(cluster: str, region: str) -> str:
    """The policy of Cluster Autoscaler: read account data, and scale only the groups with this cluster's tag.

    EKS sets the tag on the Auto Scaling groups of its node groups:
    https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/aws/README.md#iam-policy
    """
    return document(
        allow(
            Action=[
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeLaunchConfigurations",
                "autoscaling:DescribeScalingActivities",
                "autoscaling:DescribeTags",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:GetInstanceTypesFromInstanceRequirements",
            ],
            Resource="*",
        ),
        allow(
            Action=["eks:DescribeNodegroup"],
            Resource=f"arn:{partition(region)}:eks:{region}:*:nodegroup/{cluster}/*",
        ),
        allow(
            Action=["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            Resource="*",
            Condition={"StringEquals": {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{cluster}": "owned"}},
        ),
    )


def datasets_policy(grants: Sequence[DataGrant], region: str) -> str:
    """The policy of a team: read the folders of its datasets, and write to those that it may change.

    Listing is bound to the folder too, so names of other objects stay unknown. The key of a bucket is usable only
    through S3 of the region.
    https://github.com/awslabs/mountpoint-s3/blob/main/doc/CONFIGURATION.md#iam-permissions
    """
    arn = f"arn:{partition(region)}:s3:::"
    statements: list[Statement] = []
    for grant in grants:
        bucket, prefix = grant.folder.bucket, grant.folder.prefix
        only = {"Condition": {"StringLike": {"s3:prefix": [f"{prefix}/*"]}}} if prefix else {}
        listing = allow(Action=["s3:ListBucket"], Resource=f"{arn}{bucket}", **only)
        objects = f"{arn}{bucket}/{prefix}/*" if prefix else f"{arn}{bucket}/*"
        actions = list(OBJECT_ACTIONS[grant.writes])
        statements += [listing, allow(Action=actions, Resource=objects)]
    return document(*statements, *_keys(grants, region))


def _keys(grants: Sequence[DataGrant], region: str) -> Sequence[Statement]:
    """Rights on the KMS keys of buckets: https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html."""
    keys = sorted({grant.key for grant in grants if grant.key})
    written = {grant.key for grant in grants if grant.writes}
    return [
        allow(
            Action=["kms:Decrypt", *(["kms:GenerateDataKey"] if key in written else [])],
            Resource=key,
            Condition={"StringEquals": {"kms:ViaService": f"s3.{region}.{_domain(region)}"}},
        )
        for key in keys
    ]


def shared_files_policy(region: str) -> str:
    """The policy of the EFS file system of a cluster: clients mount and write access points over TLS, nothing else.

    So a client that reaches the file system cannot mount its root, which has the claims of all teams. Clients are
    anonymous, because the CSI driver mounts without IAM; the security group admits nodes alone.
    https://docs.aws.amazon.com/efs/latest/ug/iam-access-control-nfs-efs.html
    """
    points = f"arn:{partition(region)}:elasticfilesystem:{region}:*:access-point/*"
    return document(
        {
            "Sid": "AccessPoints",
            "Effect": "Allow",
            "Principal": {"AWS": "*"},
            "Action": ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            "Resource": "*",
            "Condition": {
                "Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"},
                "StringLike": {"elasticfilesystem:AccessPointArn": points},
            },
        },
        deny_without_tls("DenyWithoutTLS", Principal={"AWS": "*"}, Action="*", Resource="*"),
    )


def lustre_policy(cluster: str) -> str:
    """The policy of the CSI driver for FSx for Lustre: it changes and deletes only file systems with the cluster's tag.

    https://github.com/kubernetes-sigs/aws-fsx-csi-driver/blob/master/docs/install.md#set-up-driver-permissions,
    https://docs.aws.amazon.com/fsx/latest/LustreGuide/using-tags-fsx.html
    """
    changing = {"StringEquals": {f"aws:ResourceTag/{LUSTRE_TAG}": cluster}}
    creating = {"StringEquals": {f"aws:RequestTag/{LUSTRE_TAG}": cluster}}
    linking = {"StringEquals": {"iam:AWSServiceName": "fsx.amazonaws.com"}}
    return document(
        allow(Resource="*", Action=["fsx:DescribeFileSystems"]),
        allow(Resource="*", Action=["fsx:CreateFileSystem", "fsx:TagResource"], Condition=creating),
        allow(Resource="*", Action=["fsx:DeleteFileSystem", "fsx:UpdateFileSystem"], Condition=changing),
        allow(Resource="*", Action=["iam:CreateServiceLinkedRole"], Condition=linking),
    )


def queue_policy(queue: str) -> str:
    """The policy of Karpenter's queue: EventBridge can send messages, and requests without TLS are denied."""
    return document(
        allow(
            Principal={"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
            Action="sqs:SendMessage",
            Resource=queue,
        ),
        deny_without_tls("DenyHTTP", Principal="*", Action="sqs:*", Resource=queue),
    )
