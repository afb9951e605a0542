"""Versions in which objects of custom kinds are stored, and their migration to the version that new objects get.

After an upgrade, old objects stay as they were written, and are converted whenever they are read. A definition keeps
the versions that objects may still have in `status.storedVersions`, and the API server rejects a definition that no
longer has one of them.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#upgrade-existing-objects-to-a-new-stored-version
"""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import NOT_FOUND, ApiError, UnreachableError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS

DEFINITION: Final = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@dataclass(frozen=True, slots=True)
class StoredKind:
    """The versions of one custom kind.

    Attributes:
        name: of its definition, such as `workloads.kueue.x-k8s.io`.
        served: in the order of the definition.
        storage: of objects that are written now.
        stored: that objects can still have, as the definition says.
        converts: whether a webhook converts between versions.
    """

    name: str
    group: str
    kind: str
    served: tuple[str, ...]
    storage: str
    stored: tuple[str, ...]
    converts: bool

    @property
    def old(self) -> tuple[str, ...]:
        """Stored versions other than that of objects that are written now."""
        return tuple(version for version in self.stored if version != self.storage)


def stored_kinds(cluster: Cluster, groups: Collection[str] = ()) -> tuple[StoredKind, ...]:
    """The custom kinds of API groups, or of all groups."""
    definitions = cluster.list(*DEFINITION)
    return tuple(_of(one) for one in definitions if not groups or text_at(one, "spec", "group") in groups)


def _of(definition: Manifest) -> StoredKind:
    versions = maps_at(definition, "spec", "versions")
    stored = at(definition, "status", "storedVersions")
    return StoredKind(
        name=text_at(definition, "metadata", "name"),
        group=text_at(definition, "spec", "group"),
        kind=text_at(definition, "spec", "names", "kind"),
        served=tuple(text_at(version, "name") for version in versions if version.get("served")),
        storage=next((text_at(version, "name") for version in versions if version.get("storage")), ""),
        stored=tuple(str(version) for version in stored) if isinstance(stored, list) else (),
        converts=text_at(definition, "spec", "conversion", "strategy") == "Webhook",
    )


def migrate(cluster: Cluster, kind: StoredKind) -> int:
    """Writes every object of a kind again as it is, so that it is stored in the current version; then the status.

    Objects that are written meanwhile are stored in the current version anyway.

    Returns:
        The number of objects.
    """
    version = f"{kind.group}/{kind.storage}"
    references = [Reference.of(one) for one in cluster.list(version, kind.kind, metadata_only=True)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(partial(_written_again, cluster), references))
    status: Manifest = {"status": {"storedVersions": [kind.storage]}}
    try:
        cluster.patch(Reference(*DEFINITION, kind.name), status, subresource="status")
    except UnreachableError:
        # A busy API server can take more than a minute for a large definition, and stores it all the same.
        cluster.wait_for(lambda: not _live(cluster, kind).old, what=f"status.storedVersions of {kind.name}")
    return len(references)


def _live(cluster: Cluster, kind: StoredKind) -> StoredKind:
    return _of(cluster.get(*DEFINITION, kind.name) or {})


def _written_again(cluster: Cluster, reference: Reference) -> None:
    """An empty patch: the API server stores the object only if its stored form differs, as in another version."""
    try:
        cluster.patch(reference, {})
    except ApiError as error:
        if error.status != NOT_FOUND:  # deleted meanwhile
            raise
