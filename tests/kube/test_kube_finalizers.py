"""Pruning of what only a controller can let go."""

from pathlib import Path

import pytest
from cluster_builders import an_object

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.pruning import check_prunable
from gpu_tenancy.kube.references import Reference


def test_a_queue_with_kueues_finalizer_is_named_before_waiting(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    flavor = an_object("kueue.x-k8s.io/v1beta2", "ResourceFlavor", namespace, spec={})
    inventory, reference = tmp_path / "inventory.json", Reference.of(flavor)
    apply(cluster, [[flavor]], inventory)
    check_prunable(cluster, inventory, [], [], "local")  # nobody holds it
    cluster.patch(reference, {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}})
    try:
        with pytest.raises(ConsoleError, match=f"only Kueue clears.*: {reference}; run `tenancy up local` with contr"):
            check_prunable(cluster, inventory, [], [], "local")
        check_prunable(cluster, inventory, [], ["kueue"], "local")
        check_prunable(cluster, inventory, [reference.key], [], "local")
    finally:
        cluster.patch(reference, {"metadata": {"finalizers": None}})
    assert [change.action for change in apply(cluster, [], inventory)] == ["pruned"]
