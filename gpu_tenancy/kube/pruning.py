"""Deletes objects that were applied earlier and are no longer in the stack."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gpu_tenancy.kube.emptying import empty
from gpu_tenancy.kube.live import Live
from gpu_tenancy.kube.outcome import Change, Failure
from gpu_tenancy.kube.parallel import in_parallel
from gpu_tenancy.kube.references import is_definition, is_namespace
from gpu_tenancy.kube.survey import ours, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from concurrent.futures import Executor

    from gpu_tenancy.kube.client import Cluster
    from gpu_tenancy.kube.inventory import Entry, Inventory
    from gpu_tenancy.kube.references import Key, Reference

_DELETED_WITHIN: Final = 60
_EMPTY_WITHIN: Final = 180
"""Seconds: a namespace is deleted after its last Pod has ended, which takes up to the Pod's grace period."""


class Pruning:
    """Deletes the objects of an inventory that are no longer in the stack.

    Waves are deleted in reverse order, each after the later wave is deleted. The objects of a namespace that is also
    deleted are left to it, and it takes the turn of the latest of them: a volume must outlive its claim. Entries
    of objects that others deleted or created again are removed.
    """

    def __init__(self, cluster: Cluster, pool: Executor, inventory: Inventory, done: Callable[[Change], None]) -> None:
        """Sets the dependencies; `done` is called for each deleted object."""
        self._cluster, self._pool, self._inventory, self._done = cluster, pool, inventory, done

    def run(self, wanted: Collection[Key]) -> list[Failure]:
        """Deletes all objects except the wanted ones, waits, and returns a failure for each that still exists."""
        stale = [served for entry in self._inventory.others(wanted) if (served := self._served(entry))]
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

    def _served(self, entry: Entry) -> Entry | None:
        """The entry in a served API version; None if the kind, and with it the object, no longer exists."""
        reference = self._cluster.served(entry.reference)
        if reference:
            return replace(entry, reference=reference)
        self._inventory.remove(entry.reference.key)
        return None

    def _remove_in_order(self, entries: Sequence[Entry]) -> list[Failure]:
        namespaces = {entry.reference.name for entry in entries if is_namespace(entry.reference)}
        inside = [entry for entry in entries if entry.reference.namespace in namespaces]
        # The deletion of a namespace deletes its objects, so it takes the turn of the latest of them.
        latest: dict[str, int] = {}
        for entry in inside:
            name = entry.reference.namespace
            latest[name] = max(entry.wave, latest.get(name, 0))
        separate = [
            replace(entry, wave=max(entry.wave, latest.get(entry.reference.name, 0)))
            if is_namespace(entry.reference)
            else entry
            for entry in entries
            if entry.reference.namespace not in namespaces
        ]
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
        self._done(Change.of("pruned", reference))
