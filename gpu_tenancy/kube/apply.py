"""Applies the objects of a stack by server-side apply, and prunes removed objects.

For the embedded platform only, where volumes have no data and objects no other owner: objects with changed immutable
fields are replaced. Clusters with real workloads use `pulumi up`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gpu_tenancy.base.json import Json, maps_at, text_at
from gpu_tenancy.kube.applier import Applier, Wanted
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import UnknownKindError, WaitTimeoutError
from gpu_tenancy.kube.inventory import Entry, Inventory, ours
from gpu_tenancy.kube.live import Action, ApplyError, Change, Failure, digest, foreign, in_parallel, survey
from gpu_tenancy.kube.pruning import Pruning
from gpu_tenancy.kube.references import Reference, is_definition
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.kube.waiting import holders

__all__ = ["Action", "ApplyError", "Change", "Failure", "apply"]


def apply(
    cluster: Cluster,
    waves: Sequence[Sequence[Mapping[str, Json]]],
    inventory: Path,
    progress: Callable[[Change], None] = lambda _: None,
    *,
    adopt: Collection[str] = (),
) -> tuple[Change, ...]:
    """Applies the manifests, prunes objects of earlier applies, and returns the change of each object.

    Skips objects with unchanged manifest and live state, replaces objects with changed immutable fields, and reverts
    manual changes. Rejects an existing object with another owner unless `adopt` has its name, as in `cluster.adopt` of
    a stack: then its fields are forced, but it is never replaced. A wave depends only on earlier waves. `inventory`,
    created if missing, lists the applied objects of one cluster and stack; only one run may use it at a time.

    Returns:
        Applied objects in the order of the waves, then pruned objects in the order of their deletion.

    Raises:
        ApplyError: objects of a wave failed; the rest of the wave is applied, later waves are not, nothing is pruned.
        ConsoleError: the inventory is damaged, or the API server is not reachable. The next run continues.
    """
    references = [Reference.of(manifest) for wave in waves for manifest in wave]
    counts = Counter(reference.key for reference in references)
    if duplicates := {reference.key: reference for reference in references if counts[reference.key] > 1}:
        why = "declared more than once; remove the duplicates"
        raise ApplyError([Failure(reference, why) for reference in duplicates.values()], ())
    applied = Inventory.load(inventory)
    pool = ThreadPoolExecutor(CONNECTIONS)
    run = _Run(cluster, pool, applied, Applier(cluster), progress, adopt)
    try:
        for number, wave in enumerate(waves):
            run.apply(number, wave)
        run.prune(references)
    finally:
        pool.shutdown(cancel_futures=True)
        applied.save()
    return tuple(run.changes)


@dataclass(frozen=True, slots=True)
class _Run:
    cluster: Cluster
    pool: Executor
    inventory: Inventory
    applier: Applier
    progress: Callable[[Change], None]
    adopt: Collection[str]
    changes: list[Change] = field(default_factory=list[Change])

    def apply(self, number: int, wave: Sequence[Mapping[str, Json]]) -> None:
        # Objects are saved before they are applied, so that a killed run leaves no unknown object.
        wanted, failures = self._prepare(wave)
        for reference, item in wanted.items():
            known = item.entry if item.live else None
            self.inventory.put(replace(known, reference=reference, wave=number) if known else Entry(reference, number))
        self.inventory.save()
        done: dict[Reference, Change] = {}
        for reference, outcome in in_parallel(self.pool, self.applier.apply, wanted):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                continue
            live, content = outcome.live, digest(wanted[reference].manifest)
            self.inventory.put(Entry(reference, number, live.uid, content, live.mark))
            done[reference] = Change(outcome.action, reference, outcome.corrected)
            self.progress(done[reference])
        self.inventory.save()
        self.changes.extend(done[name] for name in wanted if name in done)
        definitions = {name: wanted[name].manifest for name in done if is_definition(name)}
        if new := [one for name, one in definitions.items() if done[name].action != "unchanged"]:
            self.cluster.forget_kinds()
            self.applier.redefined({text_at(definition, "spec", "group") for definition in new})
        failures += await_kinds(self.cluster, definitions.values())
        if failures:
            order = {Reference.of(manifest): place for place, manifest in enumerate(wave)}
            raise ApplyError(sorted(failures, key=lambda failure: order[failure.reference]), self.changes)

    def prune(self, wanted: Sequence[Reference]) -> None:
        def done(change: Change) -> None:
            self.changes.append(change)
            self.progress(change)

        pruning = Pruning(self.cluster, self.pool, self.inventory, done)
        failures = pruning.run({reference.key for reference in wanted})
        if failures:
            raise ApplyError(failures, self.changes)

    def _prepare(self, wave: Sequence[Mapping[str, Json]]) -> tuple[dict[Reference, Wanted], list[Failure]]:
        """Reads the live objects of a wave, and rejects objects with another owner."""
        existing = survey(self.cluster, self.pool, [Reference.of(manifest) for manifest in wave])
        wanted: dict[Reference, Wanted] = {}
        failures: list[Failure] = []
        for manifest in wave:
            reference = Reference.of(manifest)
            live, entry = existing[reference], self.inventory.get(reference.key)
            if isinstance(live, Failure):
                failures.append(live)
            elif live and not ours(entry, live):
                if reference.adoptable in self.adopt:
                    wanted[reference] = Wanted(manifest, live, None, adopted=True)
                else:
                    failures.append(Failure(reference, foreign(reference, live)))
            else:
                wanted[reference] = Wanted(manifest, live, entry)
        return wanted, failures


# Seconds; the API server of a busy machine took more than 60 for 67 definitions.
_SERVED_WITHIN: Final = 180


def await_kinds(cluster: Cluster, definitions: Iterable[Mapping[str, Json]]) -> list[Failure]:
    """Waits until the kinds of the definitions are served; returns a failure for each kind that is not."""
    waiting = list(definitions)

    def is_served(definition: Mapping[str, Json]) -> bool:
        group, kind = text_at(definition, "spec", "group"), text_at(definition, "spec", "names", "kind")
        try:
            for version in maps_at(definition, "spec", "versions"):
                if version.get("served"):
                    cluster.resource(f"{group}/{text_at(version, 'name')}", kind)
        except UnknownKindError:
            return False
        return True

    def all_served() -> bool:
        waiting[:] = [definition for definition in waiting if not is_served(definition)]
        return not waiting

    try:
        cluster.wait_for(all_served, timeout=_SERVED_WITHIN, poll=0.1)
    except WaitTimeoutError:
        names = [Reference.of(definition) for definition in waiting]
        return [Failure(name, f"kind is not served; {holders(cluster.get(*name))}") for name in names]
    return []
