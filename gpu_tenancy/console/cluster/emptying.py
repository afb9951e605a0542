"""What holds up a namespace that is being deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_tenancy.console.cluster.references import Reference

if TYPE_CHECKING:
    from gpu_tenancy.console.cluster.client import Cluster

_HOLDING: Final = (("v1", "Pod"), ("v1", "PersistentVolumeClaim"))
"""In this order: a claim stays as long as a Pod uses it."""


def empty(cluster: Cluster, namespace: str) -> None:
    """Deletes the Pods of a namespace at once, then its claims.

    The namespace must be terminating, so that nobody makes new ones. Its controller does the same, but looks again
    only after half of the time that a Pod is given to end, or 8 s for a finalizer:
    https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controller/namespace/deletion/namespaced_resources_deleter.go

    Args:
        cluster: one whose nodes are simulated, so that no process needs the time.
        namespace: its name.
    """
    for kind in _HOLDING:
        for found in cluster.list(*kind, namespace=namespace, metadata_only=True):
            cluster.delete(Reference.of(found), grace=0, wait=0)
