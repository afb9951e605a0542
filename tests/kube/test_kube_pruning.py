"""Pruned objects, the inventory, and objects that a killed run of the Pulumi CLI left."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_builders import Manifest, a_bare_account, a_config_map, a_definition, a_namespace, an_object, created_by

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.deploy.states import exported_keys, keys, leftovers
from gpu_tenancy.kube.apply import ApplyError, Change, apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.inventory import Entry, Inventory
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
    assert [(one.reference.name, one.action) for one in changes] == [
        ("first", "unchanged"),
        ("third", "pruned"),
        ("second", "pruned"),
    ]
    assert not cluster.exists("v1", "ConfigMap", "second", namespace)


def test_a_namespace_is_pruned_last(cluster: Cluster, namespace: str, inventory: Path, home: Manifest) -> None:
    name = Reference.of(home).name
    # Of the namespace's own name, as a team's ClusterQueue is.
    outside = an_object("scheduling.k8s.io/v1", "PriorityClass", name, value=1)
    apply(cluster, [[home], [a_config_map("inside", name), outside], [a_config_map("beside", namespace)]], inventory)
    changes = apply(cluster, [], inventory)
    assert changes == (
        Change("pruned", Reference("v1", "ConfigMap", "beside", namespace)),
        Change("pruned", Reference("scheduling.k8s.io/v1", "PriorityClass", name)),
        Change("pruned", Reference("v1", "ConfigMap", "inside", name)),
        Change("pruned", Reference("v1", "Namespace", name)),
    )
    assert not cluster.exists(*Reference.of(home))
    assert apply(cluster, [], inventory) == ()


def test_a_definition_is_pruned_after_its_objects(cluster: Cluster, namespace: str, inventory: Path) -> None:
    group = f"{namespace}.example.com"
    waves = [[a_definition(group)], [an_object(f"{group}/v1", "Widget", "one", namespace, spec={"size": 1})]]
    apply(cluster, waves, inventory)
    assert [one.reference.kind for one in apply(cluster, [], inventory)] == ["Widget", "CustomResourceDefinition"]
    assert [one.action for one in apply(cluster, waves, inventory)] == ["created", "created"]
    cluster.delete(Reference.of(waves[0][0]))
    assert [one.reference.kind for one in apply(cluster, [], inventory)] == []


def test_forgets_objects_deleted_by_others(cluster: Cluster, namespace: str, inventory: Path) -> None:
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
    apply(cluster, [[a_config_map("first", namespace)], [settings]], inventory)
    cluster.patch(Reference.of(settings), {"metadata": {"finalizers": ["tests.example.com/held"]}})
    with pytest.raises(ApplyError, match=r"ConfigMap .*/settings: .*finalizer tests\.example\.com/held"):
        apply(cluster, [], inventory)
    assert cluster.exists("v1", "ConfigMap", "first", namespace)
    cluster.patch(Reference.of(settings), {"metadata": {"finalizers": None}})
    assert [one.reference.name for one in apply(cluster, [], inventory)] == ["first"]


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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "applied" / "local.json"


def an_entry(name: str, wave: int = 0) -> Entry:
    return Entry(Reference.of(a_config_map(name, "ml")), wave, uid="u", digest="d", mark="m")


def test_a_file_that_is_not_there_is_an_empty_inventory(file: Path) -> None:
    assert len(Inventory.load(file)) == 0
    assert not file.exists()


def test_the_inventory_is_read_back(file: Path) -> None:
    inventory = Inventory(file)
    inventory.put(an_entry("settings", wave=3))
    inventory.save()
    assert Inventory.load(file).get(("", "ConfigMap", "ml", "settings")) == an_entry("settings", wave=3)
    assert [path.name for path in file.parent.iterdir()] == ["local.json"]


def test_the_inventory_is_private(file: Path) -> None:
    inventory = Inventory(file)
    inventory.put(an_entry("settings"))
    inventory.save()
    assert file.stat().st_mode & 0o777 == 0o600


def test_it_is_written_only_where_something_changed(file: Path) -> None:
    inventory = Inventory(file)
    inventory.put(an_entry("settings"))
    inventory.save()
    file.unlink()
    inventory.put(an_entry("settings"))
    inventory.remove(("", "ConfigMap", "ml", "other"))
    inventory.save()
    assert not file.exists()


def test_the_last_applied_stack_is_listed_first(file: Path) -> None:
    inventory = Inventory(file)
    for name, wave in (("first", 0), ("third", 2), ("second", 1), ("kept", 1)):
        inventory.put(an_entry(name, wave))
    others = inventory.others({an_entry("kept").reference.key})
    assert [one.reference.name for one in others] == ["third", "second", "first"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "schema must be 1"),
        ('{"schema": 2, "objects": []}', "schema must be 1"),
        ('{"schema": 1}', "invalid entry: "),
        ('{"schema": 1, "objects": [{"kind": "ConfigMap"}]}', "invalid entry: "),
        ('{"schema": 1, "objects": ["settings"]}', "invalid entry: "),
    ],
)
def test_a_damaged_file_is_refused_with_its_name(file: Path, content: str, reason: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(
        ConsoleError, match=rf"local\.json: the inventory of applied objects cannot be used: .*{reason}"
    ):
        Inventory.load(file)


MARK = "gpu-tenancy/prod"


def marked(manifest: Manifest, mark: str = MARK) -> Manifest:
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict)
    return {**manifest, "metadata": {**metadata, "annotations": {"gpu-tenancy.dev/deployed-by": mark}}}


def resources(*manifests: Manifest) -> list[Manifest]:
    component: Manifest = {"type": "gpu-tenancy:tenancy:Tenancy", "urn": "urn:x"}
    release: Manifest = {"type": "kubernetes:helm.sh/v3:Release", "inputs": {"chart": "kueue"}}
    return [component, release, *({"type": "kubernetes:core/v1:Thing", "inputs": manifest} for manifest in manifests)]


def test_only_objects_with_the_mark_are_leftovers(cluster: Cluster, namespace: str) -> None:
    known, left, new, adopted = (a_config_map(name, namespace, a="1") for name in ("known", "left", "new", "adopted"))
    bare = marked(a_bare_account("bare", namespace))
    created_by(cluster, "pulumi-kubernetes", marked(known))
    created_by(cluster, "pulumi-kubernetes", marked(left))
    created_by(cluster, "kubectl", adopted)
    cluster.create(bare)
    objects = [Reference.of(manifest) for manifest in (known, left, new, adopted, bare)]
    found = leftovers(cluster, objects, keys(resources(known)), [f"ConfigMap/{namespace}/adopted"], MARK)
    assert [*found] == [Reference.of(left), Reference.of(bare)]


def test_refuses_objects_without_mark_or_of_other_stacks(cluster: Cluster, namespace: str) -> None:
    known, theirs, another = (a_config_map(name, namespace, a="1") for name in ("known", "theirs", "another"))
    created_by(cluster, "kubectl", theirs)
    created_by(cluster, "pulumi-kubernetes", marked(another, f"{MARK}-2"))
    objects = [Reference.of(manifest) for manifest in (theirs, another)]
    with pytest.raises(ApplyError) as refused:
        leftovers(cluster, objects, keys(resources(known)), (), MARK)
    assert [str(failure) for failure in refused.value.failures] == [
        f"ConfigMap {namespace}/{name}: already exists, owned by {owner}; rename it in the stack, delete the existing"
        f" object, or add ConfigMap/{namespace}/{name} to cluster.adopt to take it over"
        for name, owner in (("theirs", "kubectl"), ("another", "pulumi-kubernetes"))
    ]


def test_a_stack_that_was_never_deployed_has_an_empty_state() -> None:
    assert exported_keys('{"version": 3, "deployment": {"manifest": {}}}') == frozenset()
    assert exported_keys('{"version": 3}') == frozenset()
    known: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    exported = json.dumps({"deployment": {"resources": resources(known)}})
    assert exported_keys(exported) == {Reference.of(known).key}
