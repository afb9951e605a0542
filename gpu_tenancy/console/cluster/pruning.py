"""Removing what was applied once and is no longer wanted."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gpu_tenancy.console.cluster.emptying import empty
from gpu_tenancy.console.cluster.live import Live
from gpu_tenancy.console.cluster.outcome import Change, Failure
from gpu_tenancy.console.cluster.parallel import each
from gpu_tenancy.console.cluster.references import is_definition, is_namespace
from gpu_tenancy.console.cluster.survey import ours, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from concurrent.futures import Executor

    from gpu_tenancy.console.cluster.client import Cluster
    from gpu_tenancy.console.cluster.inventory import Entry, Inventory
    from gpu_tenancy.console.cluster.references import Key, Reference

_GONE_WITHIN: Final = 60
_EMPTY_WITHIN: Final = 180
"""Seconds: a namespace goes when its last Pod has ended, and a Pod may take its time for that."""


class Pruning:
    """Removes what an inventory has and nobody wants any more.

    Waves go in reverse, each when the one after it is gone. What lives in a namespace that goes too is left to it,
    and it goes when the last of that would: a volume must outlive the claim that holds it. What somebody else
    deleted, or made anew under the same name, is forgotten.
    """

    def __init__(self, cluster: Cluster, pool: Executor, inventory: Inventory, done: Callable[[Change], None]) -> None:
        """Takes what it works with; `done` hears of each object that is gone."""
        self._cluster, self._pool, self._inventory, self._done = cluster, pool, inventory, done

    def run(self, wanted: Collection[Key]) -> list[Failure]:
        """Deletes everything but what is wanted, waits until it is gone, and returns what is still there."""
        leaving = [found for one in self._inventory.others(wanted) if (found := self._served(one))]
        found = survey(self._cluster, self._pool, (one.reference for one in leaving))
        failures = [one for one in found.values() if isinstance(one, Failure)]
        if failures:
            return failures
        there: list[Entry] = []
        for one in leaving:
            live = found[one.reference]
            if isinstance(live, Live) and ours(one, live):
                there.append(replace(one, uid=live.uid))
            else:
                self._inventory.remove(one.reference.key)
        return self._remove_in_order(there)

    def _served(self, entry: Entry) -> Entry | None:
        """The entry in a version that there still is; where the kind itself is gone, so is the object."""
        reference = self._cluster.served(entry.reference)
        if reference:
            return replace(entry, reference=reference)
        self._inventory.remove(entry.reference.key)
        return None

    def _remove_in_order(self, there: Sequence[Entry]) -> list[Failure]:
        going = {one.reference.name for one in there if is_namespace(one.reference)}
        inside = [one for one in there if one.reference.namespace in going]
        # A namespace takes all that is in it along, so it goes when the last of that would.
        latest = {name: max(one.wave for one in inside if one.reference.namespace == name) for name in _homes(inside)}
        alone = [
            replace(one, wave=max(one.wave, latest.get(one.reference.name, 0))) if is_namespace(one.reference) else one
            for one in there
            if one.reference.namespace not in going
        ]
        for _, wave in groupby(sorted(alone, key=lambda one: -one.wave), key=lambda one: one.wave):
            failures = self._remove(tuple(wave), inside=inside)
            if failures:
                return failures
        return []

    def _remove(self, entries: Sequence[Entry], *, inside: Sequence[Entry]) -> list[Failure]:
        def delete(entry: Entry) -> None:
            self._cluster.delete(entry.reference, uid=entry.uid, wait=0)
            if is_namespace(entry.reference):
                empty(self._cluster, entry.reference.name)

        def await_end(entry: Entry) -> None:
            within = _EMPTY_WITHIN if is_namespace(entry.reference) else _GONE_WITHIN
            self._cluster.wait_gone(entry.reference, entry.uid, timeout=within)

        # All are told to go before any is waited for: a namespace takes five seconds however little it has.
        going = {one.reference: one for one in entries}
        failures: list[Failure] = []
        for reference, outcome in each(self._pool, delete, going.copy()):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                del going[reference]
        for reference, outcome in each(self._pool, await_end, going):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                continue
            homed = [one.reference for one in inside if one.reference.namespace == reference.name]
            for one in homed if is_namespace(reference) else ():
                self._gone(one)
            self._gone(reference)
        self._inventory.save()
        return failures

    def _gone(self, reference: Reference) -> None:
        self._inventory.remove(reference.key)
        if is_definition(reference):
            self._cluster.forget_kinds()
        self._done(Change.of("pruned", reference))


def _homes(inside: Sequence[Entry]) -> set[str]:
    return {one.reference.namespace for one in inside}
