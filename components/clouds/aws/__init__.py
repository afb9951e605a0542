"""EKS: the cluster, its node groups or Karpenter, and their IAM roles."""

import pulumi
import pulumi_aws as aws

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.aws import AwsCluster

from .cluster import EksCluster


def open_cluster(name: str, plan: ClusterPlan, opts: pulumi.ResourceOptions | None = None) -> EksCluster:
    """The EKS cluster of a stack, created or existing, with its nodes.

    Its provider is of the stack's region, with the credentials of the environment.
    """
    if not isinstance(plan.section, AwsCluster):
        msg = f"{plan.section.cloud} is another cloud"
        raise TypeError(msg)
    provider = aws.Provider(f"{name}-aws", region=plan.section.region, opts=opts)
    own = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(providers=[provider]))
    return EksCluster(name, plan, plan.section, own)
