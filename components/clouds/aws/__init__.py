"""EKS: the cluster, its node groups or Karpenter, and who may do what in AWS."""

import pulumi

from gpu_tenancy.model.plan.fleet import Fleet
from gpu_tenancy.model.spec.clouds.aws import AwsCluster

from .cluster import EksCluster, open_eks


def open_cluster(name: str, fleet: Fleet, opts: pulumi.ResourceOptions | None = None) -> EksCluster:
    """The EKS cluster of a stack, made or found, with its nodes."""
    if not isinstance(fleet.cluster, AwsCluster):
        msg = f"{fleet.cluster.cloud} is another cloud"
        raise TypeError(msg)
    return open_eks(name, fleet, fleet.cluster, opts)
