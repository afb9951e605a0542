"""A real API server accepts all objects of the stacks, with strict field validation and the definitions' own rules."""

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from acceptance_builders import STACKS, Manifest, Server, Waves, declared, flat, in_waves, refusal, sections_of
from removing import remove
from rendered_stacks import stack_of_repository

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.live import Change
from gpu_tenancy.kube.references import Reference

# Stacks to apply. The others have no other kinds and hardly other fields; their objects are sent as a dry run.
APPLIED: Final = ("example-elastic", "example-tree", "local", "prod-azure", "prod-gcp")


@dataclass(frozen=True)
class Applied:
    stack: str
    waves: Waves
    inventory: Path
    changes: tuple[Change, ...]


def keys(changes: tuple[Change, ...], action: str) -> set[str]:
    changed = [one.reference for one in changes if one.action == action]
    return {f"{one.kind} {one.namespace}/{one.name}" for one in changed}


def key(manifest: Manifest) -> str:
    one = Reference.of(manifest)
    return f"{one.kind} {one.namespace}/{one.name}"


def by_key(waves: Waves) -> dict[str, Manifest]:
    return {key(manifest): manifest for manifest in flat(waves)}


def test_an_edit_changes_and_prunes_only_its_objects(cluster: Cluster, tmp_path: Path) -> None:
    # Before the fixture below: the last of its stacks stays until the end of this module.
    inventory = tmp_path / "inventory.json"
    sections = sections_of("local")
    before = in_waves(declared(sections))
    apply(cluster, before, inventory)
    del sections["teams"]["ml-experiments"]
    sections["datasets"]["corpus"]["teams"].remove("ml-experiments")
    sections["teams"]["ml-research"]["objects"]["services"] = 12
    sections["teams"]["ml-serving"]["serving"]["model-server"]["scaleOn"]["cpu"] = 60
    sections["priorities"]["ml-batch"] = 500
    after = in_waves(declared(sections))
    old, new = by_key(before), by_key(after)

    changes = apply(cluster, after, inventory)
    assert keys(changes, "changed") == {
        "ResourceQuota ml-research/budget",
        "HorizontalPodAutoscaler ml-serving/model-server",
        "ValidatingAdmissionPolicy /gpu-tenancy-scheduling",  # it lists the classes, of which one is new
        "MutatingAdmissionPolicy /gpu-tenancy-default-workloads",  # the classes of priority, likewise
        "FlowSchema /gpu-tenancy-teams",  # it lists the namespaces of service accounts
    }
    assert (
        keys(changes, "created")
        == {"PriorityClass /ml-batch", "WorkloadPriorityClass /ml-batch"}
        == new.keys() - old.keys()
    )
    assert (
        keys(changes, "pruned")
        == old.keys() - new.keys()
        >= {"Namespace /ml-experiments", "ClusterQueue /ml-experiments", "PersistentVolume /ml-experiments-corpus"}
    )
    assert keys(changes, "replaced") == set()
    assert [name for name in old.keys() - new.keys() if cluster.exists(*Reference.of(old[name]))] == []

    pruned = apply(cluster, [], inventory)
    assert keys(pruned, "pruned") == set(new)
    assert [name for name, manifest in new.items() if cluster.exists(*Reference.of(manifest))] == []


@pytest.mark.parametrize("stack", [name for name in STACKS if name not in APPLIED])
def test_objects_of_other_stacks_are_accepted(cluster: Cluster, namespace: str, stack: str) -> None:
    assert Server(cluster, namespace).refusals(stack_of_repository(stack).objects) == []


@pytest.fixture(scope="module", params=APPLIED)
def applied(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Applied]:
    stack = str(request.param)
    waves = in_waves(stack_of_repository(stack).objects)
    inventory = tmp_path_factory.mktemp(stack) / "inventory.json"
    yield Applied(stack, waves, inventory, apply(cluster, waves, inventory))
    remove(cluster, flat(waves))


def test_every_object_of_a_stack_is_accepted(applied: Applied) -> None:
    # That each of them is there is asked of the API server two tests further on.
    assert Counter(one.action for one in applied.changes) == {"created": len(flat(applied.waves))}


def test_the_same_stack_again_changes_nothing(cluster: Cluster, applied: Applied) -> None:
    again = apply(cluster, applied.waves, applied.inventory)
    assert Counter(one.action for one in again) == {"unchanged": len(flat(applied.waves))}


def test_applying_an_object_again_changes_nothing(cluster: Cluster, applied: Applied) -> None:
    # The inventory spares what nobody touched; here each object is sent again.
    moved: list[str] = []
    for manifest in flat(applied.waves):
        before = cluster.get(*Reference.of(manifest), metadata_only=True) or {}
        after = cluster.apply(manifest, dry_run=True)
        generation = ("metadata", "generation")
        if before.get("generation") != after.get("generation") or fields_of(before) != fields_of(after):
            moved.append(f"{key(manifest)} {text_at(after, *generation)}")
    assert moved == []


def test_the_api_server_keeps_every_field_of_a_stack(cluster: Cluster, applied: Applied) -> None:
    """What it drops, such as an empty list, each deployment by Pulumi would show as a change and send again.

    But an empty text and empty annotations are the same to Pulumi.
    """
    lost = [
        f"{key(manifest)}: {path}"
        for manifest in flat(applied.waves)
        for path in dropped(manifest, cluster.get(*Reference.of(manifest)))
        if path not in {".spec.storageClassName", ".metadata.annotations"}
    ]
    assert lost == []


def dropped(sent: Json, live: Json, path: str = "") -> Iterator[str]:
    """Paths of fields that an object was sent with and does not have."""
    if isinstance(sent, dict):
        for name, value in sent.items():
            if not isinstance(live, dict) or name not in live:
                yield f"{path}.{name}"
            else:
                yield from dropped(value, live[name], f"{path}.{name}")
    elif isinstance(sent, list) and isinstance(live, list):
        for number, (one, other) in enumerate(zip(sent, live, strict=False)):
            yield from dropped(one, other, f"{path}[{number}]")


def fields_of(live: Any) -> Any:
    """Our fields, by the API server's record."""
    owned = [one for one in live["metadata"].get("managedFields", []) if one["manager"] == "gpu-tenancy"]
    return [(one["operation"], one.get("fieldsV1")) for one in owned]


def test_a_misspelt_field_of_any_object_is_refused(cluster: Cluster, applied: Applied) -> None:
    accepted: list[str] = []
    for manifest in flat(applied.waves):
        place = "spec" if isinstance(manifest.get("spec"), dict) else "metadata"
        broken: Any = deepcopy(manifest)
        broken[place]["naem"] = "x"
        words = refusal(lambda broken=broken: cluster.apply(broken, dry_run=True))
        if f".{place}.naem: field not declared in schema" not in words:
            accepted.append(f"{key(manifest)}: {words}")
    assert accepted == []
