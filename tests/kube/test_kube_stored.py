"""Objects that are stored in an old version of their kind, on a real API server."""

from collections.abc import Iterator
from typing import Final

import pytest

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.stored import DEFINITION, StoredKind, migrate, stored_kinds
from gpu_tenancy.kube.waiting import is_true

GROUP: Final = "stored.example.com"
NAME: Final = f"things.{GROUP}"


def definition(**versions: bool) -> Manifest:
    """A kind with versions, of which one is that of storage."""
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
    cluster.apply(definition(v1=True, v2=False))
    cluster.wait_for(lambda: is_true(cluster.get(*DEFINITION, NAME) or {}, "Established"), what="the kind")
    thing: Manifest = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Thing",
        "metadata": {"name": "a", "namespace": namespace},
    }
    cluster.wait_for(lambda: cluster.create(thing), what="the object")
    cluster.apply(definition(v1=False, v2=True))
    cluster.wait_for(lambda: kind(cluster).old, what="the old version in the status")
    yield Reference(f"{GROUP}/v2", "Thing", "a", namespace)
    cluster.delete(Reference(*DEFINITION, NAME))


def kind(cluster: Cluster) -> StoredKind:
    (found,) = stored_kinds(cluster, [GROUP])
    return found


def test_objects_are_written_once_and_the_old_version_can_be_removed(cluster: Cluster, old: Reference) -> None:
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
