"""GKE: a cluster of the Standard kind, made or found, and its node pools."""

import pulumi

from gpu_tenancy.model.plan.fleet import Fleet
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

from .cluster import GkeCluster


def open_cluster(name: str, fleet: Fleet, opts: pulumi.ResourceOptions | None = None) -> GkeCluster:
    """The GKE cluster of a fleet, with its node pools."""
    if not isinstance(fleet.cluster, GcpCluster):
        msg = f"{fleet.cluster.cloud} is another cloud"
        raise TypeError(msg)
    return GkeCluster(name, fleet, fleet.cluster, opts)
