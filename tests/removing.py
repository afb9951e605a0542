"""Deletion of a test's objects on a platform."""

from collections.abc import Iterable, Mapping

from gpu_tenancy.base.json import Json
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.pruning import empty
from gpu_tenancy.kube.references import Reference, is_namespace


def remove(cluster: Cluster, manifests: Iterable[Mapping[str, Json]]) -> None:
    """Deletes objects, and waits: a volume of the same name would bind to a claim that is being deleted.

    All deletions start before the first wait: a namespace takes five seconds even if it is empty.
    """
    references = [Reference.of(manifest) for manifest in manifests]
    for one in reversed(references):
        cluster.delete(one, wait=0)
        if is_namespace(one):
            empty(cluster, one.name)
    for one in references:
        if not one.namespace:
            cluster.wait_gone(one, timeout=120)
