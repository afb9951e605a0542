"""A cluster that somebody else made, nodes included, reached through a kubeconfig."""

from collections.abc import Sequence
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from gpu_tenancy.model.plan.fleet import Fleet
from gpu_tenancy.model.spec.clouds.existing import ExistingCluster as Section


class ExistingCluster:
    """A cluster that exists with its nodes. Nothing of it is managed here, so it is no component.

    The kubeconfig's path goes into the provider, not its content, so that no credential enters the state. Left out,
    it is the ambient one, as for kubectl.
    """

    def __init__(self, name: str, cluster: Section, opts: pulumi.ResourceOptions | None = None) -> None:
        path = str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None
        self.kubernetes = kubernetes.Provider(
            name,
            kubeconfig=path,
            context=cluster.context,
            # An edited kubeconfig is still the same cluster: without a fixed name every resource would be replaced.
            cluster_identifier=name,
            enable_config_map_mutable=True,  # else a changed dashboard would be gone for a moment
            opts=opts,
        )
        self.nodes: Sequence[pulumi.Resource] = ()


def open_cluster(name: str, fleet: Fleet, opts: pulumi.ResourceOptions | None = None) -> ExistingCluster:
    """The cluster that a stack's kubeconfig leads to."""
    if not isinstance(fleet.cluster, Section):
        msg = f"{fleet.cluster.cloud} is another cloud"
        raise TypeError(msg)
    return ExistingCluster(name, fleet.cluster, opts)
