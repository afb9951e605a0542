"""EKS: the cluster, its node groups or Karpenter, and their IAM roles."""

import pulumi

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.aws import AwsCluster

from .cluster import EksCluster, open_eks


def open_cluster(name: str, plan: ClusterPlan, opts: pulumi.ResourceOptions | None = None) -> EksCluster:
    """The EKS cluster of a stack, created or existing, with its nodes."""
    if not isinstance(plan.section, AwsCluster):
        msg = f"{plan.section.cloud} is another cloud"
        raise TypeError(msg)
    return open_eks(name, plan, plan.section, opts)
