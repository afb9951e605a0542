"""Applies the objects of a stack by server-side apply, and prunes removed objects.

For the embedded platform only, where volumes have no data and objects no other owner: objects with changed immutable
fields are replaced. Clusters with real workloads use `pulumi up`.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple, cast

from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError, UnknownKindError, WaitTimeoutError
from gpu_tenancy.kube.inventory import Entry, Inventory, ours
from gpu_tenancy.kube.live import Action, ApplyError, Change, Failure, Live, digest, foreign, in_parallel, survey
from gpu_tenancy.kube.pruning import Pruning
from gpu_tenancy.kube.references import Reference, is_definition, is_namespace
from gpu_tenancy.kube.request import CONNECTIONS, HOLDING
from gpu_tenancy.kube.waiting import holders

__all__ = ["Action", "ApplyError", "Change", "Failure", "apply"]

_UNPROCESSABLE: Final = 422
# Messages of API servers and of validation rules about a field that cannot change after creation.
_IMMUTABLE: Final = re.compile(
    r"immutable|may not (be )?(change|update)|cannot change|updates to .* are forbidden", re.DOTALL
)
_DENIED: Final = re.compile(r'admission webhook "[^"]+" denied the request: ')
# Problem of each field in the one message of a webhook that rejects several: `ErrorType` in
# https://github.com/kubernetes/apimachinery/blob/v0.36.0/pkg/util/validation/field/errors.go.
_OF_FIELDS: Final = re.compile(
    r": (Invalid value|Required value|Unsupported value|Duplicate value|Forbidden|Not found|Too long|Too many|Too few"
    r"|Internal error)\b"
)

_DELETED_WITHIN: Final = 180  # seconds; a namespace is deleted after its last Pod has ended

_SCHEMA_DELAY: Final = 2.0  # seconds in which an API server must serve the new schema of a changed definition

CONFLICT: Final = 409

# Managers that people use. Fields of controllers and of the `scale` subresource are not reverted.
_BY_HAND: Final = re.compile(
    r'conflict with "(kubectl[^"]*|gpu-tenancy|k9s|[Ll]ens|node-fetch|headlamp|curl|Mozilla)"'
    r"(?! with subresource)"
)
_BY_HOLD: Final = re.compile(f'conflict with "{HOLDING}"')
# Kueue writes labels and node selectors into pod templates of jobs that it starts. Kueue then manages the whole of a
# list without keys, such as `workerGroupSpecs` of a RayJob.
_BY_KUEUE: Final = re.compile(r'conflict with "kueue"')


def apply(
    cluster: Cluster,
    waves: Sequence[Sequence[Mapping[str, Json]]],
    inventory: Path,
    progress: Callable[[Change], None] = lambda _: None,
    *,
    adopt: Collection[str] = (),
) -> tuple[Change, ...]:
    """Applies manifests, then prunes objects of earlier applies; returns the change of each object in this order."""
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
class Wanted:
    """One object to apply."""

    reference: Reference
    manifest: Mapping[str, Json]
    live: Live | None  # the existing object, if any
    entry: Entry | None
    adopted: bool = False  # it has another owner


class Applied(NamedTuple):
    """Result of one apply."""

    action: Action
    live: Live
    corrected: tuple[str, ...] = ()  # fields that others had changed


class Applier:
    """Applies objects by their manifests; safe to share between threads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._settled: dict[str, float] = {}

    def redefined(self, groups: Iterable[str]) -> None:
        """Records that definitions of these API groups were just created or changed."""
        self._settled.update(dict.fromkeys(groups, time.monotonic() + _SCHEMA_DELAY))

    def apply(self, wanted: Wanted) -> Applied:
        """Creates, changes, replaces or keeps an object, and returns its new live state.

        Reverts fields that people changed, but not fields of controllers and autoscalers. Raises ApiError if the object
        is rejected, and WaitTimeoutError if an object is not deleted in time before its replacement.
        """
        live, reference = wanted.live, wanted.reference
        if live and live.deleting:
            self._cluster.wait_gone(reference, live.uid, timeout=_DELETED_WITHIN)
            live = None
        if live is None:
            return Applied("created", self._apply(wanted))
        # Objects of a changed definition are always sent, because the new schema can reject them.
        if wanted.entry and wanted.entry.current(live, wanted.manifest) and reference.group not in self._settled:
            return Applied("unchanged", live)
        return self._change(wanted, live)

    def _change(self, wanted: Wanted, live: Live) -> Applied:
        same = wanted.entry is not None and wanted.entry.digest == digest(wanted.manifest)
        try:
            after = self._apply(wanted)
        except ApiError as error:
            if same and (_conflicts_only(error, _BY_KUEUE) or _conflicts_only(error, _BY_HOLD)):
                return Applied("unchanged", live)
            if wanted.adopted or not self._may_replace(wanted, error):
                raise
            # The garbage collector discovers custom kinds late, and until then blocks a foreground deletion.
            self._cluster.delete(wanted.reference, uid=live.uid, foreground="." not in wanted.reference.group)
            return Applied("replaced", self._apply(wanted))
        if after.uid != live.uid:
            return Applied("created", after)
        corrected = regained(live, after) if same else ()
        only_taken = same and live.applied is not None and not corrected
        return Applied("changed" if after.changed_since(live) and not only_taken else "unchanged", after, corrected)

    def _apply(self, wanted: Wanted) -> Live:
        # Each API server behind one address reads a changed schema by itself, so the request is retried for seconds.
        settled = self._settled.get(wanted.reference.group, 0)
        force = wanted.adopted
        while True:
            try:
                return Live.of(self._cluster.apply(wanted.manifest, force=force, metadata_only=True))
            except ApiError as error:
                if not force and wanted.live and _conflicts_only(error, _BY_HAND):
                    force = True
                    continue
                final = error.status == CONFLICT or isinstance(error, UnknownKindError) or immutable(error)
                if final or time.monotonic() >= settled:
                    raise
                time.sleep(0.1)

    def _may_replace(self, wanted: Wanted, error: ApiError) -> bool:
        # Never a namespace or a definition: their deletion would delete objects of others.
        # Jobs of ours that Kueue started are replaced, as immutable kinds are. An object with other problems is
        # replaced if a dry run with another name accepts it, since the existing object alone can cause them: without
        # `podFailurePolicy`, it has a default `podReplacementPolicy` that a Job with a `podFailurePolicy` may not have.
        if is_namespace(wanted.reference) or is_definition(wanted.reference):
            return False
        if (wanted.entry is not None and _conflicts_only(error, _BY_KUEUE)) or immutable(error):
            return True
        if not any(_immutable_causes(error)):
            return False
        metadata = {**map_at(wanted.manifest, "metadata"), "name": f"new-{digest(wanted.manifest)[:16]}"}
        try:
            self._cluster.create({**wanted.manifest, "metadata": metadata}, dry_run=True)
        except ApiError:
            return False
        return True


def immutable(error: ApiError) -> bool:
    """Whether changed immutable fields are the only problem; otherwise a replacement may be rejected too late."""
    causes = _immutable_causes(error)
    return bool(causes) and all(causes)


def _immutable_causes(error: ApiError) -> list[bool]:
    if error.status == FORBIDDEN and _DENIED.match(error.message):
        problems, unchangeable = len(_OF_FIELDS.findall(error.message)), error.message.count(": field is immutable")
        return [number < unchangeable for number in range(problems)]
    if error.status == _UNPROCESSABLE:
        messages = [cause.message for cause in error.causes] or [error.message]
        return [bool(_IMMUTABLE.search(message)) for message in messages]
    return []


def _conflicts_only(error: ApiError, managers: re.Pattern[str]) -> bool:
    conflicts = [cause.message for cause in error.causes if cause.reason == "FieldManagerConflict"]
    return error.status == CONFLICT and bool(conflicts) and all(managers.match(message) for message in conflicts)


def regained(before: Live, after: Live) -> tuple[str, ...]:
    """Fields that an apply regained from other managers, such as `spec.replicas`, sorted.

    A change by another manager removes a field from our entry in `managedFields`; an apply adds it again. If the spec
    is unchanged, a controller such as Kueue took the field with the same value.
    """
    if not before.applied:
        return ()
    old, new = ({*_paths(map_at(live.applied or {}, "fieldsV1"))} for live in (before, after))
    same_spec = after.generation == before.generation > 0
    return tuple(sorted(path for path in new - old if not (same_spec and path.startswith("spec."))))


def _paths(fields: Mapping[str, Json], parent: str = "") -> Iterator[str]:
    # Leaves of https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers.
    for key, inner in fields.items():
        kind, _, name = key.partition(":")
        if kind == ".":
            continue
        if kind == "f":
            path = f"{parent}.{name}".lstrip(".")
        else:  # an item of a list, by its keys `name=server`, or by its value
            item = cast("Json", json.loads(name))
            keys = ", ".join(f"{key}={value}" for key, value in item.items()) if isinstance(item, dict) else item
            path = f"{parent}[{keys}]"
        if isinstance(inner, dict) and any(one != "." for one in inner):
            yield from _paths(inner, path)
        else:
            yield path


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
                    wanted[reference] = Wanted(reference, manifest, live, None, adopted=True)
                else:
                    failures.append(Failure(reference, foreign(reference, live)))
            else:
                wanted[reference] = Wanted(reference, manifest, live, entry)
        return wanted, failures


_SERVED_WITHIN: Final = 180  # seconds; the API server of a busy machine took more than 60 for 67 definitions


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
