"""An existing cluster with its nodes, accessed through a kubeconfig."""

from collections.abc import Sequence
from pathlib import Path

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.core.v1 import Namespace

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.cluster import ExistingCluster as Section

from ..objects import Options
from . import Api, section_of


class ExistingCluster:
    """An existing cluster with its nodes. It is not a component, because none of it is managed here.

    The provider gets the kubeconfig's path (default: as for kubectl), so that the state contains no credentials.
    """

    def __init__(self, name: str, plan: ClusterPlan, opts: Options = None) -> None:
        cluster = section_of(plan, Section)
        path = str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None
        context = _verified(f"{name}-identity", cluster, path, opts) if cluster.uid else cluster.context
        self.api = Api(name, name, path, context, opts)
        self.kubernetes = self.api.provider()
        self.system: Sequence[pulumi.Resource] = ()


def _verified(name: str, cluster: Section, path: str | None, opts: Options) -> pulumi.Output[str]:
    """The stack's context, known once its cluster is verified by the UID of `kube-system`."""
    # The provider of all objects needs it, so none is registered before.
    provider = Api(name, name, path, cluster.context, opts).provider()
    reading = ResourceOptions(parent=opts.parent if opts else None, provider=provider)
    system = Namespace.get(name, "kube-system", reading)
    return system.metadata.apply(lambda metadata: _context(cluster, metadata.uid))


def _context(cluster: Section, uid: str | None) -> str:
    """The context of a cluster with the stack's UID; empty for the current one."""
    if uid != cluster.uid:
        place = f"context {cluster.context}" if cluster.context else "the current context of the kubeconfig"
        raise pulumi.RunError(
            f"cluster.uid: {cluster.uid} is not the cluster of {place}, whose namespace kube-system has UID {uid};"
            " select the context of the stack's cluster (cluster.context), or correct cluster.uid"
        )
    return cluster.context or ""


open_cluster = ExistingCluster
