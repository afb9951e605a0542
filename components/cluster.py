"""The cluster that a stack deploys to."""

from pathlib import Path

import pulumi
from pulumi_kubernetes import Provider

from model.spec.cluster import Cluster


def cluster_provider(name: str, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> Provider:
    """The Kubernetes provider for a cluster that exists.

    The kubeconfig's path goes in, not its content, so that no credential enters the state. Left out, it is the
    ambient one, as for kubectl.
    """
    path = str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None
    return Provider(
        name,
        kubeconfig=path,
        context=cluster.context,
        # An edited kubeconfig is still the same cluster: without a fixed name every resource would be replaced.
        cluster_identifier=name,
        opts=opts,
    )
