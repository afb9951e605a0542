"""Deletes applied objects that are no longer in the stack."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, list_at, maps_at, text_at
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import NOT_FOUND, ApiError, UnreachableError
from gpu_tenancy.kube.inventory import Entry, Inventory, ours
from gpu_tenancy.kube.live import Change, Failure, Live, in_parallel, survey
from gpu_tenancy.kube.references import Key, Reference, is_definition, is_namespace
from gpu_tenancy.kube.request import CONNECTIONS

_DELETED_WITHIN: Final = 60
# Seconds; a namespace is deleted after its last Pod has ended, which takes up to the Pod's grace period.
_EMPTY_WITHIN: Final = 180


class Pruning:
    """Deletes the objects of an inventory that are no longer in the stack.

    Waves are deleted in reverse order, each after the later wave is deleted. A deleted namespace deletes its objects,
    at the turn of the latest of them, since a volume must outlive its claim. Entries of objects that others deleted or
    created again are removed.
    """

    def __init__(self, cluster: Cluster, pool: Executor, inventory: Inventory, done: Callable[[Change], None]) -> None:
        """Sets the dependencies; `done` is called for each deleted object."""
        self._cluster, self._pool, self._inventory, self._done = cluster, pool, inventory, done

    def run(self, wanted: Collection[Key]) -> list[Failure]:
        """Deletes all objects except the wanted ones, waits, and returns a failure for each that still exists."""
        stale: list[Entry] = []
        for entry in self._inventory.others(wanted):
            if reference := self._cluster.served(entry.reference):
                stale.append(replace(entry, reference=reference))
            else:  # The kind, and with it the object, no longer exists.
                self._inventory.remove(entry.reference.key)
        existing = survey(self._cluster, self._pool, (entry.reference for entry in stale))
        failures = [live for live in existing.values() if isinstance(live, Failure)]
        if failures:
            return failures
        owned: list[Entry] = []
        for entry in stale:
            live = existing[entry.reference]
            if isinstance(live, Live) and ours(entry, live):
                owned.append(replace(entry, uid=live.uid))
            else:
                self._inventory.remove(entry.reference.key)
        return self._remove_in_order(owned)

    def _remove_in_order(self, entries: Sequence[Entry]) -> list[Failure]:
        namespaces = {entry.reference.name for entry in entries if is_namespace(entry.reference)}
        inside = [entry for entry in entries if entry.reference.namespace in namespaces]
        # The deletion of a namespace deletes its objects, so it takes the turn of the latest of them.
        latest: dict[str, int] = {}
        for entry in inside:
            name = entry.reference.namespace
            latest[name] = max(entry.wave, latest.get(name, 0))
        separate: list[Entry] = []
        for entry in entries:
            if entry.reference.namespace not in namespaces:
                turn = latest.get(entry.reference.name, 0) if is_namespace(entry.reference) else 0
                separate.append(replace(entry, wave=max(entry.wave, turn)))
        for _, wave in groupby(sorted(separate, key=lambda entry: -entry.wave), key=lambda entry: entry.wave):
            failures = self._remove(tuple(wave), inside=inside)
            if failures:
                return failures
        return []

    def _remove(self, entries: Sequence[Entry], *, inside: Sequence[Entry]) -> list[Failure]:
        def delete(entry: Entry) -> None:
            self._cluster.delete(entry.reference, uid=entry.uid, wait=0)
            if is_namespace(entry.reference):
                empty(self._cluster, entry.reference.name)

        def await_deletion(entry: Entry) -> None:
            within = _EMPTY_WITHIN if is_namespace(entry.reference) else _DELETED_WITHIN
            self._cluster.wait_gone(entry.reference, entry.uid, timeout=within)

        # All deletions start before the first wait: a namespace takes five seconds even if it is empty.
        deleting = {entry.reference: entry for entry in entries}
        failures: list[Failure] = []
        for reference, outcome in in_parallel(self._pool, delete, deleting.copy()):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                del deleting[reference]
        for reference, outcome in in_parallel(self._pool, await_deletion, deleting):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                continue
            members = [entry.reference for entry in inside if entry.reference.namespace == reference.name]
            for member in members if is_namespace(reference) else ():
                self._deleted(member)
            self._deleted(reference)
        self._inventory.save()
        return failures

    def _deleted(self, reference: Reference) -> None:
        self._inventory.remove(reference.key)
        if is_definition(reference):
            self._cluster.forget_kinds()
        self._done(Change("pruned", reference))


_DELAYING: Final = (("v1", "Pod"), ("v1", "PersistentVolumeClaim"))  # a claim is kept while a Pod uses it


def empty(cluster: Cluster, namespace: str) -> None:
    """Deletes the Pods of a terminating namespace on simulated nodes without a grace period, then its claims.

    Simulated Pods have no processes that need the grace period. The namespace controller does the same, but checks
    again only after half of a Pod's grace period, or after 8 s for a finalizer:
    https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controller/namespace/deletion/namespaced_resources_deleter.go
    """
    for kind in _DELAYING:
        for item in cluster.list(*kind, namespace=namespace, metadata_only=True):
            cluster.delete(Reference.of(item), grace=0, wait=0)


_KUEUE: Final = "kueue.x-k8s.io"


def check_prunable(
    cluster: Cluster, inventory: Path, wanted: Collection[Key], running: Collection[str], name: str
) -> None:
    """Raises ConsoleError if a deletion would wait for Kueue to clear a finalizer while Kueue does not run."""
    if "kueue" in running:
        return
    held: list[str] = []
    for entry in Inventory.load(inventory).others(wanted):
        if entry.reference.group == _KUEUE and (reference := cluster.served(entry.reference)):
            finalizers = list_at(cluster.get(*reference, metadata_only=True) or {}, "metadata", "finalizers")
            if any(finalizer.startswith(_KUEUE) for finalizer in finalizers):
                held.append(str(reference))
    if held:
        raise ConsoleError(
            "objects are no longer in the stack, but have finalizers that only Kueue clears, which does not run: "
            + first_names(held, 5),
            f"run `tenancy local up {name}` with controllers, which starts Kueue, or `tenancy local down` first",
        )


DEFINITION: Final = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@dataclass(frozen=True, slots=True)
class StoredKind:
    """The versions of one custom kind, with the name of its definition, such as `workloads.kueue.x-k8s.io`.

    After an upgrade, old objects stay as they were written and are converted when read. The API server rejects a
    definition without a version that `status.storedVersions` lists.
    https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#upgrade-existing-objects-to-a-new-stored-version
    """

    name: str
    group: str
    kind: str
    served: tuple[str, ...]
    storage: str  # version of new objects
    stored: tuple[str, ...]  # versions of existing objects
    converts: bool  # a webhook can convert between versions

    @property
    def old(self) -> tuple[str, ...]:
        """Stored versions except the one of new objects."""
        return tuple(version for version in self.stored if version != self.storage)


def stored_kinds(cluster: Cluster, groups: Collection[str] = ()) -> tuple[StoredKind, ...]:
    """The custom kinds of API groups, or of all groups."""
    return tuple(_of(one) for one in cluster.list(*DEFINITION) if not groups or text_at(one, "spec", "group") in groups)


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
    """Rewrites every object of a kind in the current version, then the status; returns the number of objects."""

    def write(reference: Reference) -> None:
        # Empty patch: the API server stores an object only if its stored form differs, as in another version.
        try:
            cluster.patch(reference, {})
        except ApiError as error:
            if error.status != NOT_FOUND:  # deleted meanwhile
                raise

    version = f"{kind.group}/{kind.storage}"
    references = [Reference.of(one) for one in cluster.list(version, kind.kind, metadata_only=True)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(write, references))
    status: Manifest = {"status": {"storedVersions": [kind.storage]}}
    try:
        cluster.patch(Reference(*DEFINITION, kind.name), status, subresource="status")
    except UnreachableError:
        # A busy API server can take more than a minute for a large definition, and stores it all the same.
        what = f"status.storedVersions of {kind.name}"
        cluster.wait_for(lambda: not _of(cluster.get(*DEFINITION, kind.name) or {}).old, what=what)
    return len(references)
