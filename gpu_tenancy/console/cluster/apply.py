"""Bringing a cluster to what a stack declares, by server-side apply with pruning.

It is made for the local platform, where volumes hold nothing and nobody else is at home: what the API server will
not change is deleted and made anew. A cluster with work on it is for `pulumi up`.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_tenancy.console.cluster.definitions import await_kinds
from gpu_tenancy.console.cluster.inventory import Entry, Inventory
from gpu_tenancy.console.cluster.live import digest
from gpu_tenancy.console.cluster.outcome import Action, ApplyError, Change, Failure
from gpu_tenancy.console.cluster.parallel import each
from gpu_tenancy.console.cluster.placing import Placing, Wanted
from gpu_tenancy.console.cluster.pruning import Pruning
from gpu_tenancy.console.cluster.references import Reference, is_definition
from gpu_tenancy.console.cluster.request import CONNECTIONS
from gpu_tenancy.console.cluster.survey import ours, survey
from gpu_tenancy.console.offline.wire import text_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from gpu_tenancy.console.cluster.client import Cluster
    from gpu_tenancy.console.cluster.live import Live
    from gpu_tenancy.console.offline.wire import Json

__all__ = ["Action", "ApplyError", "Change", "Failure", "apply"]


def apply(
    cluster: Cluster,
    waves: Sequence[Sequence[Mapping[str, Json]]],
    inventory: Path,
    progress: Callable[[Change], None] = lambda _: None,
) -> tuple[Change, ...]:
    """Applies what is wanted, removes what is no longer wanted, and returns what became of each object.

    An object that nobody wrote to since the same manifest was last applied is not sent again. One of which the
    API server will not change a field is replaced. One that is there already and is not ours is refused.

    Args:
        cluster: where to.
        waves: manifests; those of a wave need nothing but what the waves before it have.
        inventory: file with what was applied; made where it is not there. One file for one cluster and stack,
            and one run on it at a time.
        progress: hears of each object as it is done.

    Returns:
        The wanted objects in the order of the waves, then the pruned ones as they went.

    Raises:
        ApplyError: some objects of a wave failed. The rest of the wave is applied, later waves are not, and
            nothing is pruned.
        ConsoleError: the inventory is damaged, or the API server does not answer. What was done is in the
            inventory; the next run goes on from there.
    """
    references = [Reference.of(manifest) for wave in waves for manifest in wave]
    _refuse_twins(references)
    stock = Inventory.load(inventory)
    pool = ThreadPoolExecutor(CONNECTIONS)
    run = _Run(cluster, pool, stock, progress)
    try:
        for number, wave in enumerate(waves):
            run.apply(number, wave)
        run.prune(references)
    finally:
        pool.shutdown(cancel_futures=True)
        stock.save()
    return tuple(run.changes)


def _refuse_twins(references: Sequence[Reference]) -> None:
    counts = Counter(one.key for one in references)
    twins = {one.key: one for one in references if counts[one.key] > 1}
    if twins:
        raise ApplyError([Failure(one, "is declared more than once") for one in twins.values()], ())


class _Run:
    """One apply of a stack: what was done so far, and the next step."""

    def __init__(
        self, cluster: Cluster, pool: Executor, inventory: Inventory, progress: Callable[[Change], None]
    ) -> None:
        self.changes: list[Change] = []
        self._cluster, self._pool, self._inventory, self._progress = cluster, pool, inventory, progress
        self._placing = Placing(cluster)

    def apply(self, number: int, wave: Sequence[Mapping[str, Json]]) -> None:
        """Applies one wave, and waits until the kinds that it defines are served."""
        wanted, failures = self._prepare(wave)
        self._enter(number, wanted)
        done: dict[Reference, Change] = {}
        for reference, outcome in each(self._pool, self._placing.place, wanted):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                continue
            action, live = outcome
            self._keep(number, wanted[reference], live)
            done[reference] = Change.of(action, reference)
            self._progress(done[reference])
        self._inventory.save()
        self.changes += [done[name] for name in wanted if name in done]
        failures += self._define([wanted[name].manifest for name in done if is_definition(name)], done)
        if failures:
            order = {Reference.of(manifest): place for place, manifest in enumerate(wave)}
            raise ApplyError(sorted(failures, key=lambda one: order[one.reference]), self.changes)

    def prune(self, wanted: Sequence[Reference]) -> None:
        """Removes what the inventory has beside the wanted objects."""

        def done(change: Change) -> None:
            self.changes.append(change)
            self._progress(change)

        failures = Pruning(self._cluster, self._pool, self._inventory, done).run({one.key for one in wanted})
        if failures:
            raise ApplyError(failures, self.changes)

    def _prepare(self, wave: Sequence[Mapping[str, Json]]) -> tuple[dict[Reference, Wanted], list[Failure]]:
        """Looks what is there of a wave, and refuses what belongs to others."""
        found = survey(self._cluster, self._pool, [Reference.of(manifest) for manifest in wave])
        wanted: dict[Reference, Wanted] = {}
        failures: list[Failure] = []
        for manifest in wave:
            reference = Reference.of(manifest)
            live, entry = found[reference], self._inventory.get(reference.key)
            if isinstance(live, Failure):
                failures.append(live)
            elif live and not ours(entry, live):
                owners = ", ".join(live.managers) or "somebody who left no name"
                failures.append(Failure(reference, f"exists and belongs to {owners}; rename ours or delete it"))
            else:
                wanted[reference] = Wanted(manifest, live, entry)
        return wanted, failures

    def _enter(self, number: int, wanted: Mapping[Reference, Wanted]) -> None:
        """Writes down what is about to be there, in case this run does not live to see it."""
        for reference, one in wanted.items():
            known = one.entry if one.live else None
            self._inventory.put(replace(known, reference=reference, wave=number) if known else Entry(reference, number))
        self._inventory.save()

    def _keep(self, number: int, wanted: Wanted, live: Live) -> None:
        self._inventory.put(Entry(wanted.reference, number, live.uid, digest(wanted.manifest), live.mark))

    def _define(self, definitions: Sequence[Mapping[str, Json]], done: Mapping[Reference, Change]) -> list[Failure]:
        """Lets the API server take in the definitions of a wave."""
        new = [one for one in definitions if done[Reference.of(one)].action != "unchanged"]
        if new:
            self._cluster.forget_kinds()
            self._placing.redefined({text_at(one, "spec", "group") for one in new})
        return await_kinds(self._cluster, definitions)
