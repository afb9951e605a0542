"""Deletes the objects that delay the deletion of a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_tenancy.kube.references import Reference

if TYPE_CHECKING:
    from gpu_tenancy.kube.client import Cluster

_DELAYING: Final = (("v1", "Pod"), ("v1", "PersistentVolumeClaim"))
"""In this order, because a claim is kept while a Pod uses it."""


def empty(cluster: Cluster, namespace: str) -> None:
    """Deletes the Pods of a namespace without a grace period, then its claims.

    The namespace must be terminating, so that no new ones are created. The namespace controller does the same, but
    checks again only after half of a Pod's grace period, or after 8 s for a finalizer:
    https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controller/namespace/deletion/namespaced_resources_deleter.go

    Args:
        cluster: must have simulated nodes, whose Pods have no processes that need the grace period.
        namespace: its name.
    """
    for kind in _DELAYING:
        for item in cluster.list(*kind, namespace=namespace, metadata_only=True):
            cluster.delete(Reference.of(item), grace=0, wait=0)
