"""IAM policy documents as JSON: from `policies.yaml`, and documents that depend on more than names."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final, TypeAlias, cast

from gpu_tenancy.model.plan.identities import DataGrant
from gpu_tenancy.model.plan.secrets import Store
from gpu_tenancy.model.spec.clouds.aws import KEY_ACTIONS, OBJECT_ACTIONS
from gpu_tenancy.model.yaml import read_table

Statement: TypeAlias = Mapping[str, object]

_PARTITIONS: Final = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
"""By the start of a region's name: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html."""


def partition(region: str) -> str:
    """The AWS partition of a region in ARNs: `aws`, `aws-cn`, `aws-us-gov`."""
    return next((name for prefix, name in _PARTITIONS.items() if region.startswith(prefix)), "aws")


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def managed_policy(region: str, name: str) -> str:
    """ARN of an AWS managed policy, from its name, with the path that policies for service roles have."""
    # https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html
    return f"arn:{partition(region)}:iam::aws:policy/{name}"


def access_policy(region: str, name: str) -> str:
    """ARN of an EKS access policy: https://docs.aws.amazon.com/eks/latest/userguide/access-policies.html."""
    return f"arn:{partition(region)}:eks::aws:cluster-access-policy/{name}"


def allow(**parts: object) -> Statement:
    """A statement that allows its `Action` on its `Resource`, or to its `Principal`, under its `Condition`."""
    return {"Effect": "Allow", **parts}


def document(*statements: Statement) -> str:
    """A policy document with these statements."""
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


_WRITTEN: Final[Mapping[str, list[Statement]]] = read_table(Path(__file__).with_suffix(".yaml"))


def written_policy(name: str, region: str, **values: str) -> str:
    """A policy document of `policies.yaml`, with the values of a cluster."""
    marks = {"partition": partition(region), "domain": _domain(region), "region": region, **values}

    def filled(part: object) -> object:
        if isinstance(part, str):
            return Template(part).substitute(marks)
        if isinstance(part, list):
            return [filled(item) for item in cast("list[object]", part)]
        return {filled(key): filled(value) for key, value in cast("Statement", part).items()}

    return document(*cast("list[Statement]", filled(_WRITTEN[name])))


def trust(service: str, region: str = "") -> str:
    """The trust policy of roles for EC2, EKS, or pods by EKS Pod Identity: `ec2`, `eks`, `pods.eks`."""
    return written_policy(f"{service}-trust", region)


def account_trust(provider: str, issuer: str, namespace: str, account: str) -> str:
    """The trust policy for one ServiceAccount of a cluster, for STS."""
    subject = f"system:serviceaccount:{namespace}:{account}"
    issuer = issuer.removeprefix("https://")
    return written_policy("web-identity-trust", "", provider=provider, issuer=issuer, subject=subject)


def secrets_policy(secrets: Sequence[tuple[Store, Sequence[str]]], region: str) -> str:
    """The policy of a team's reader: read the named secrets, and no others."""
    # ARNs have six more characters after a name:
    # https://docs.aws.amazon.com/secretsmanager/latest/userguide/auth-and-access_examples.html
    names = [
        f"arn:{partition(region)}:secretsmanager:{store.place}:*:secret:{name}-??????"
        for store, named in secrets
        for name in named
    ]
    return document(allow(Action=["secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue"], Resource=names))


def karpenter_policies(cluster: str, region: str, node_role: str, *, spot: bool) -> dict[str, str]:
    """The policies of Karpenter's controller by name; `node_role` is the ARN of its nodes' role, or a pattern."""
    return {
        "instances": written_policy("karpenter-instances", region, cluster=cluster),
        "profiles": written_policy("karpenter-profiles", region, cluster=cluster, node_role=node_role),
        "discovery": written_policy("karpenter-discovery", region, cluster=cluster),
        **({"spot": written_policy("karpenter-spot", region)} if spot else {}),
    }


def datasets_policy(grants: Sequence[DataGrant], region: str) -> str:
    """A team's policy: read the folders of its datasets, list only them, and write to datasets that it may change."""
    # A bucket's key is usable only through S3 of the region.
    # https://github.com/awslabs/mountpoint-s3/blob/main/doc/CONFIGURATION.md#iam-permissions
    arn = f"arn:{partition(region)}:s3:::"
    statements: list[Statement] = []
    for grant in grants:
        bucket, prefix = grant.folder.bucket, grant.folder.prefix
        only = {"Condition": {"StringLike": {"s3:prefix": [f"{prefix}/*"]}}} if prefix else {}
        listing = allow(Action=["s3:ListBucket"], Resource=f"{arn}{bucket}", **only)
        objects = f"{arn}{bucket}/{prefix}/*" if prefix else f"{arn}{bucket}/*"
        statements += [listing, allow(Action=list(OBJECT_ACTIONS[grant.writes]), Resource=objects)]
    return document(*statements, *_keys(grants, region))


def _keys(grants: Sequence[DataGrant], region: str) -> Sequence[Statement]:
    """Rights on the KMS keys of buckets: https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html."""
    keys = sorted({grant.key for grant in grants if grant.key})
    written = {grant.key for grant in grants if grant.writes}
    return [
        allow(
            Action=list(KEY_ACTIONS[key in written]),
            Resource=key,
            Condition={"StringEquals": {"kms:ViaService": f"s3.{region}.{_domain(region)}"}},
        )
        for key in keys
    ]
