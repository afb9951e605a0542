"""An upgrade: today's objects of a stack, applied where an earlier version of this program applied its own.

`recorded/objects-2b267d2.json.xz` has the waves of `preview(stack, onto=…)` at that commit, before the guards of today:
it is the latest state whose objects differ from today's by more than a version.
"""

import json
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.engine.objects import waves
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.apply import apply, await_kinds
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.pruning import DEFINITION, StoredKind, migrate, stored_kinds
from gpu_tenancy.kube.references import Reference

RECORDED: Final = Path(__file__).parent / "recorded" / "objects-2b267d2.json.xz"
# `local` takes as long again; `make faults` has it.
STACKS: Final = ("example-tree", "local") if os.environ.get("GPU_TENANCY_FAULTS") else ("example-tree",)
# A team that the stack no longer has after the upgrade.
REMOVED: Final = {"example-tree": "interns", "local": "ml-experiments"}


@pytest.fixture
def inventory(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A file of applied objects, which are deleted at the end."""
    yield tmp_path / "inventory.json"
    apply(cluster, [], tmp_path / "inventory.json")


def recorded(stack: str) -> list[list[Manifest]]:
    return json.loads(lzma.decompress(RECORDED.read_bytes()))[stack]


def without(namespace: str, given: list[list[Manifest]]) -> list[list[Manifest]]:
    """The waves without a namespace and its objects."""
    return [[one for one in wave if namespace not in Reference.of(one)] for wave in given]


@pytest.mark.parametrize("stack", STACKS)
def test_todays_objects_replace_those_of_an_earlier_version(cluster: Cluster, inventory: Path, stack: str) -> None:
    before, gone = recorded(stack), REMOVED[stack]
    rendered = [[dict(item.manifest) for item in wave] for wave in waves(preview(stack).objects)]
    after = without(gone, rendered)
    assert {one.action for one in apply(cluster, before, inventory)} == {"created"}
    uids = {reference: uid(cluster, reference) for reference in references(before)}

    changes = apply(cluster, after, inventory)
    by_action = {
        action: {one.reference.name for one in changes if one.action == action} for action in ("created", "replaced")
    }
    assert {"gpu-tenancy-kueue-metadata", "gpu-tenancy-release"} <= by_action["created"]
    # Jobs that now have `podFailurePolicy`, and one with another runtime: neither can change in an existing job.
    assert by_action["replaced"] == ({"evaluate", "nightly", "finetune"} if stack == "local" else set())

    wanted = references(after)
    pruned = {reference for reference in uids if reference not in wanted}
    assert any(reference.kind == "Namespace" and reference.name == gone for reference in pruned)
    assert [reference for reference in pruned if uid(cluster, reference)] == []
    kept = {reference for reference in wanted & uids.keys() if reference.name not in by_action["replaced"]}
    assert kept
    assert [reference for reference in kept if uid(cluster, reference) != uids[reference]] == []
    assert {one.action for one in apply(cluster, after, inventory)} == {"unchanged"}


def references(given: list[list[Manifest]]) -> set[Reference]:
    return {Reference.of(manifest) for wave in given for manifest in wave}


def uid(cluster: Cluster, reference: Reference) -> str:
    return text_at(cluster.get(*reference, metadata_only=True) or {}, "metadata", "uid")


GROUP: Final = "stored.example.com"
NAME: Final = f"things.{GROUP}"


def definition(**versions: bool) -> Manifest:
    """A kind with versions, one of which is the storage version."""
    schema: Json = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    listed: Json = [
        {"name": name, "served": True, "storage": storage, "schema": schema} for name, storage in versions.items()
    ]
    names: Json = {"kind": "Thing", "plural": "things", "singular": "thing"}
    spec: Json = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": listed}
    return {"apiVersion": DEFINITION[0], "kind": DEFINITION[1], "metadata": {"name": NAME}, "spec": spec}


@pytest.fixture
def old(cluster: Cluster, namespace: str) -> Iterator[Reference]:
    """An object that was stored as v1, of a kind that stores v2 now."""
    first = definition(v1=True, v2=False)
    cluster.apply(first)
    assert await_kinds(cluster, [first]) == []
    thing: Manifest = {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": namespace}}
    cluster.wait_for(lambda: cluster.create(thing), what="the object")
    cluster.apply(definition(v1=False, v2=True))
    cluster.wait_for(lambda: kind(cluster).old, what="the old version in the status")
    yield Reference(f"{GROUP}/v2", "Thing", "a", namespace)
    cluster.delete(Reference(*DEFINITION, NAME))


def kind(cluster: Cluster) -> StoredKind:
    (found,) = stored_kinds(cluster, [GROUP])
    return found


def test_rewrites_stored_objects_once(cluster: Cluster, old: Reference) -> None:
    def version() -> str:
        return text_at(cluster.get(*old) or {}, "metadata", "resourceVersion")

    before, found = version(), kind(cluster)
    assert (found.storage, found.old, found.converts) == ("v2", ("v1",), False)
    with pytest.raises(ApiError, match=r"status\.storedVersions"):
        cluster.apply(definition(v2=True), dry_run=True)
    assert migrate(cluster, found) == 1
    written = version()
    assert written != before
    assert kind(cluster).old == ()
    assert migrate(cluster, kind(cluster)) == 1
    assert version() == written, "an object in the current version is not written"
    cluster.apply(definition(v2=True))
    assert kind(cluster).served == ("v2",)
