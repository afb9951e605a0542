"""An existing cluster with its nodes, accessed through a kubeconfig."""

from collections.abc import Sequence
from pathlib import Path

import pulumi

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.existing import ExistingCluster as Section

from .api import Api


class ExistingCluster:
    """An existing cluster with its nodes. It is not a component, because none of it is managed here.

    The provider gets the path of the kubeconfig, not its content, so that the state contains no credentials. Without a
    path, the same defaults as for kubectl apply.
    """

    def __init__(self, name: str, cluster: Section, opts: pulumi.ResourceOptions | None = None) -> None:
        path = str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None
        self.api = Api(name, name, path, cluster.context, opts)
        self.kubernetes = self.api.provider()
        self.nodes: Sequence[pulumi.Resource] = ()


def open_cluster(name: str, plan: ClusterPlan, opts: pulumi.ResourceOptions | None = None) -> ExistingCluster:
    """The cluster of a stack's kubeconfig."""
    if not isinstance(plan.section, Section):
        msg = f"{plan.section.cloud} is another cloud"
        raise TypeError(msg)
    return ExistingCluster(name, plan.section, opts)
