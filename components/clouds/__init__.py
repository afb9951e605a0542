"""Clusters and node pools: one interface, and the one place that chooses whose.

Each cloud is a module of this package under the word that a stack writes for it under `cluster.cloud`. It is imported
only when it is used, since a cloud's SDK takes a second to import and is installed as an extra.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

import pulumi
import pulumi_kubernetes as kubernetes

from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.plan.fleet import Fleet


class Cluster(Protocol):
    """What a stack's tenancy needs to know of its cluster, whichever cloud made it.

    Attributes:
        kubernetes: provider of the cluster's Kubernetes API; no credential is in it.
        nodes: what must be there before anything runs, and goes after it: the node pools and what scales them.
    """

    kubernetes: kubernetes.Provider
    nodes: Sequence[pulumi.Resource]


class _OpenCluster(Protocol):
    def __call__(self, name: str, fleet: Fleet, opts: pulumi.ResourceOptions | None = None) -> Cluster: ...


class _Module(Protocol):
    open_cluster: _OpenCluster


def open_cluster(name: str, fleet: Fleet, opts: pulumi.ResourceOptions | None = None) -> Cluster:
    """The cluster of a fleet with its node pools, made or found.

    Raises:
        pulumi.RunError: the cloud's package is not installed.
    """
    cloud = fleet.cluster.cloud
    package = clouds()[cloud].package or ""
    try:
        module = cast("_Module", import_module(f"{__name__}.{cloud}"))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.replace("_", "-") != package:
            raise
        message = (
            f"cluster.cloud: {cloud} needs the package {package}, which is not installed;"
            f" install gpu-tenancy[{cloud}], or run `uv sync --extra {cloud}`"
        )
        raise pulumi.RunError(message) from error
    return module.open_cluster(name, fleet, opts)
