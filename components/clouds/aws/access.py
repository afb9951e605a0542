"""Access entries of EKS: https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.people import group_of
from gpu_tenancy.model.spec.clouds.aws import AwsCluster


def access_entry(
    name: str, plan: ClusterPlan, section: AwsCluster, arn: str, opts: pulumi.ResourceOptions
) -> aws.eks.AccessEntry:
    """The entry of an IAM role or user: EKS accepts one for each, so administrators who are people have both rights.

    Its group has no rights by itself: the RoleBindings of the stack name it.
    """
    return aws.eks.AccessEntry(
        name,
        cluster_name=section.name,
        principal_arn=arn,
        type="STANDARD",
        kubernetes_groups=[group_of(who) for who in plan.people if who.name == arn] or None,
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
