from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_builders import Manifest, a_bare_account, a_config_map, a_definition, a_namespace, an_object

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.apply import ApplyError, Change, apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.pruning import check_prunable
from gpu_tenancy.kube.references import Reference


@pytest.fixture
def home(cluster: Cluster, namespace: str) -> Iterator[Manifest]:
    """A namespace that is declared, not given."""
    manifest = a_namespace(f"{namespace}-home")
    yield manifest
    cluster.delete(Reference.of(manifest), wait=0)


def test_pruning_is_in_reverse_order(cluster: Cluster, namespace: str, inventory: Path) -> None:
    waves = [[a_config_map(name, namespace)] for name in ("first", "second", "third")]
    apply(cluster, waves, inventory)
    changes = apply(cluster, waves[:1], inventory)
    assert [(one.name, one.action) for one in changes] == [
        ("first", "unchanged"),
        ("third", "pruned"),
        ("second", "pruned"),
    ]
    assert not cluster.exists("v1", "ConfigMap", "second", namespace)


def test_a_namespace_is_pruned_last(cluster: Cluster, namespace: str, inventory: Path, home: Manifest) -> None:
    name = Reference.of(home).name
    # Of the namespace's own name, as a team's ClusterQueue is.
    outside = an_object("scheduling.k8s.io/v1", "PriorityClass", name, value=1)
    waves = [[home], [a_config_map("inside", name), outside], [a_config_map("beside", namespace)]]
    apply(cluster, waves, inventory)
    changes = apply(cluster, [], inventory)
    assert changes == (
        Change("pruned", "", "ConfigMap", namespace, "beside"),
        Change("pruned", "scheduling.k8s.io", "PriorityClass", "", name),
        Change("pruned", "", "ConfigMap", name, "inside"),
        Change("pruned", "", "Namespace", "", name),
    )
    assert not cluster.exists(*Reference.of(home))
    assert apply(cluster, [], inventory) == ()


def test_a_definition_is_pruned_after_its_objects(cluster: Cluster, namespace: str, inventory: Path) -> None:
    group = f"{namespace}.example.com"
    widget = an_object(f"{group}/v1", "Widget", "one", namespace, spec={"size": 1})
    waves = [[a_definition(group)], [widget]]
    apply(cluster, waves, inventory)
    assert [one.kind for one in apply(cluster, [], inventory)] == ["Widget", "CustomResourceDefinition"]
    assert [one.action for one in apply(cluster, waves, inventory)] == ["created", "created"]
    cluster.delete(Reference.of(waves[0][0]))
    assert [one.kind for one in apply(cluster, [], inventory)] == []


def test_objects_deleted_by_others_are_removed_from_the_inventory(
    cluster: Cluster, namespace: str, inventory: Path
) -> None:
    settings = a_config_map("settings", namespace)
    apply(cluster, [[settings]], inventory)
    cluster.delete(Reference.of(settings))
    assert apply(cluster, [], inventory) == ()


def test_replaced_objects_of_others_are_not_pruned(cluster: Cluster, namespace: str, inventory: Path) -> None:
    account = a_bare_account("runner", namespace)
    apply(cluster, [[account]], inventory)
    cluster.delete(Reference.of(account))
    cluster.create(account)
    assert apply(cluster, [], inventory) == ()
    assert cluster.exists(*Reference.of(account))


def test_no_object_is_pruned_after_an_error(cluster: Cluster, namespace: str, inventory: Path) -> None:
    apply(cluster, [[a_config_map("settings", namespace)]], inventory)
    with pytest.raises(ApplyError):
        apply(cluster, [[an_object("nobody.example.com/v1", "Widget", "one", namespace)]], inventory)
    assert cluster.exists("v1", "ConfigMap", "settings", namespace)
    assert [one.action for one in apply(cluster, [], inventory)] == ["pruned"]


def test_a_failed_deletion_is_reported_and_retried(
    cluster: Cluster, namespace: str, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_tenancy.kube.pruning._DELETED_WITHIN", 0.2)
    settings = a_config_map("settings", namespace)
    waves = [[a_config_map("first", namespace)], [settings]]
    apply(cluster, waves, inventory)
    cluster.patch(Reference.of(settings), {"metadata": {"finalizers": ["tests.example.com/held"]}})
    with pytest.raises(ApplyError, match=r"ConfigMap .*/settings: .*finalizer tests\.example\.com/held"):
        apply(cluster, [], inventory)
    assert cluster.exists("v1", "ConfigMap", "first", namespace)
    cluster.patch(Reference.of(settings), {"metadata": {"finalizers": None}})
    assert [one.name for one in apply(cluster, [], inventory)] == ["first"]


def test_a_queue_with_kueues_finalizer_is_named_before_waiting(
    cluster: Cluster, namespace: str, inventory: Path
) -> None:
    flavor = an_object("kueue.x-k8s.io/v1beta2", "ResourceFlavor", namespace, spec={})
    reference = Reference.of(flavor)
    apply(cluster, [[flavor]], inventory)
    check_prunable(cluster, inventory, [], [], "local")  # nobody holds it
    cluster.patch(reference, {"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}})
    try:
        with pytest.raises(
            ConsoleError, match=f"only Kueue clears.*: {reference}; run `tenancy local up local` with contr"
        ):
            check_prunable(cluster, inventory, [], [], "local")
        check_prunable(cluster, inventory, [], ["kueue"], "local")
        check_prunable(cluster, inventory, [reference.key], [], "local")
    finally:
        cluster.patch(reference, {"metadata": {"finalizers": None}})
    assert [change.action for change in apply(cluster, [], inventory)] == ["pruned"]
