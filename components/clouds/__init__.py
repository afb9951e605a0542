"""Clusters and node pools: one interface for all clouds, and the function that selects the cloud.

Each cloud is a module of this package with the name that `cluster.cloud` has in a stack. It is imported on first use,
because a cloud's SDK takes a second to import and is installed as an extra.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

import pulumi
import pulumi_kubernetes as kubernetes

from gpu_tenancy.base.installing import missing
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.plan.cluster import ClusterPlan

from .api import Api


class Cluster(Protocol):
    """The interface of a cluster, common to all clouds.

    Attributes:
        kubernetes: provider of the API; it contains no credentials.
        system: system nodes of a created cluster and what pods need on nodes; everything that runs in the cluster
            depends on them. Never a pool of the stack: one without capacity would block all teams.
    """

    api: Api
    kubernetes: kubernetes.Provider
    system: Sequence[pulumi.Resource]


class _OpenCluster(Protocol):
    def __call__(self, name: str, plan: ClusterPlan, opts: pulumi.ResourceOptions | None = None) -> Cluster: ...


class _Module(Protocol):
    open_cluster: _OpenCluster


def open_cluster(name: str, plan: ClusterPlan, opts: pulumi.ResourceOptions | None = None) -> Cluster:
    """The cluster of a plan with its node pools, made or found.

    Raises:
        pulumi.RunError: the cloud's package is not installed.
    """
    cloud = plan.section.cloud
    try:
        module = cast("_Module", import_module(f"{__name__}.{cloud}"))
    except ModuleNotFoundError as error:
        problem = missing(error, f"cluster.cloud: {cloud}")
        if problem is None or (error.name or "").replace("_", "-") != clouds()[cloud].package:
            raise
        raise pulumi.RunError(str(problem)) from error
    return module.open_cluster(name, plan, opts)
