"""Access entries of EKS, and IAM roles of service accounts.

https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html
"""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.people import group_of
from gpu_tenancy.model.plan.service_accounts import ServiceAccountPlan
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.people import Person

from .identity import Grant, Role
from .policies import ci_policy, ci_trust


def access_entry(
    name: str, plan: ClusterPlan, section: AwsCluster, arn: str, opts: pulumi.ResourceOptions
) -> aws.eks.AccessEntry:
    """The entry of an IAM role or user: EKS accepts one for each, so administrators who are people have both rights."""
    return _entry(name, plan, (arn, [who for who in plan.people if who.name == arn]), section, opts)


def _entry(
    name: str,
    plan: ClusterPlan,
    principal: tuple[pulumi.Input[str], Sequence[Person]],
    section: AwsCluster,
    opts: pulumi.ResourceOptions,
) -> aws.eks.AccessEntry:
    """The entry of an ARN, with the groups of whom it is.

    A group has no rights by itself: the RoleBindings of the stack name it.
    """
    arn, people = principal
    return aws.eks.AccessEntry(
        name,
        cluster_name=section.name,
        principal_arn=arn,
        type="STANDARD",
        kubernetes_groups=[group_of(who) for who in people] or None,
        tags=dict(plan.tags),
        opts=opts,
    )


def people_entries(
    name: str, plan: ClusterPlan, section: AwsCluster, opts: pulumi.ResourceOptions
) -> Sequence[aws.eks.AccessEntry]:
    """The entries of people who are not administrators in the cluster's section; those have one already.

    Without policies of EKS: what people may do is decided by Kubernetes RBAC.
    """
    admins = section.create.admins if section.create else []
    return [
        access_entry(f"{name}-{who.name.partition('::')[2]}", plan, section, who.name, opts)
        for who in plan.people
        if who.name not in admins
    ]


def ci_entries(
    name: str, plan: ClusterPlan, section: AwsCluster, opts: pulumi.ResourceOptions
) -> Sequence[aws.eks.AccessEntry]:
    """The IAM roles that CI jobs assume with their own tokens, and the entries of these roles.

    The account's OIDC provider of the CI system is not created here, because an account has one for all stacks.
    """
    return [
        _ci_entry(f"{name}-{account.team}.{account.name}", plan, section, account, opts)
        for account in plan.service_accounts
    ]


def _ci_entry(
    name: str, plan: ClusterPlan, section: AwsCluster, account: ServiceAccountPlan, opts: pulumi.ResourceOptions
) -> aws.eks.AccessEntry:
    grant = Grant(ci_trust(section, account.subject or ""), inline={"cluster": ci_policy(section)})
    role = Role(f"{name}-role", section.identity_name(account.team, account.name), grant, plan.tags, opts)
    people = [account.identity] if account.identity else []
    return _entry(f"{name}-entry", plan, (role.arn, people), section, opts)
