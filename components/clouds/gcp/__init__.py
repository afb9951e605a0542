"""GKE: a Standard cluster, created or existing, and its node pools."""

import pulumi

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

from .cluster import GkeCluster


def open_cluster(name: str, plan: ClusterPlan, opts: pulumi.ResourceOptions | None = None) -> GkeCluster:
    """The GKE cluster of a stack, created or existing, with its node pools."""
    if not isinstance(plan.section, GcpCluster):
        msg = f"{plan.section.cloud} is another cloud"
        raise TypeError(msg)
    return GkeCluster(name, plan, plan.section, opts)
