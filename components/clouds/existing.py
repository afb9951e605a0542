"""An existing cluster with its nodes, accessed through a kubeconfig."""

from collections.abc import Sequence
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.existing import ExistingCluster as Section


class ExistingCluster:
    """An existing cluster with its nodes. It is not a component, because none of it is managed here.

    The provider gets the path of the kubeconfig, not its content, so that the state contains no credentials. Without a
    path, the same defaults as for kubectl apply.
    """

    def __init__(self, name: str, cluster: Section, opts: pulumi.ResourceOptions | None = None) -> None:
        context = _verified(f"{name}-identity", cluster, opts) if cluster.uid else cluster.context
        self.kubernetes = _provider(name, cluster, context, opts)
        self.nodes: Sequence[pulumi.Resource] = ()


def _provider(
    name: str, cluster: Section, context: pulumi.Input[str] | None, opts: pulumi.ResourceOptions | None
) -> kubernetes.Provider:
    return kubernetes.Provider(
        name,
        kubeconfig=str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None,
        context=context,
        # An edited kubeconfig is still the same cluster: without a fixed name every resource would be replaced.
        cluster_identifier=name,
        enable_config_map_mutable=True,  # else a changed dashboard would be gone for a moment
        opts=opts,
    )


def _verified(name: str, cluster: Section, opts: pulumi.ResourceOptions | None) -> pulumi.Output[str]:
    """The context of the stack, once the cluster that it leads to is known to be the stack's.

    The provider of all objects needs it, so none is registered before. Another provider reads the namespace
    `kube-system`, whose UID identifies a cluster.
    """
    parent = opts.parent if opts else None
    reading = pulumi.ResourceOptions(parent=parent, provider=_provider(name, cluster, cluster.context, opts))
    system = kubernetes.core.v1.Namespace.get(name, "kube-system", reading)
    return system.metadata.apply(lambda metadata: _context(cluster, metadata.uid))


def _context(cluster: Section, uid: str | None) -> str:
    """The context of a cluster with the stack's UID; empty for the current one.

    Raises:
        RunError: it is another cluster.
    """
    if uid != cluster.uid:
        place = f"context {cluster.context}" if cluster.context else "the current context of the kubeconfig"
        msg = (
            f"cluster.uid: {cluster.uid} is not the cluster of {place}, whose namespace kube-system has UID {uid};"
            " select the context of the stack's cluster (cluster.context), or correct cluster.uid"
        )
        raise pulumi.RunError(msg)
    return cluster.context or ""


def open_cluster(name: str, plan: ClusterPlan, opts: pulumi.ResourceOptions | None = None) -> ExistingCluster:
    """The cluster of a stack's kubeconfig."""
    if not isinstance(plan.section, Section):
        msg = f"{plan.section.cloud} is another cloud"
        raise TypeError(msg)
    return ExistingCluster(name, plan.section, opts)
