"""Creates, updates or replaces one object, and reverts manual changes."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from gpu_tenancy.base.json import Json, map_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError, UnknownKindError
from gpu_tenancy.kube.inventory import Entry
from gpu_tenancy.kube.live import Action, Live, digest
from gpu_tenancy.kube.references import Reference, is_definition, is_namespace
from gpu_tenancy.kube.request import HOLDING

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


@dataclass(frozen=True, slots=True)
class Wanted:
    """One object to apply."""

    manifest: Mapping[str, Json]
    live: Live | None  # the existing object, if any
    entry: Entry | None
    adopted: bool = False  # it has another owner

    @property
    def reference(self) -> Reference:
        """Reference of the manifest."""
        return Reference.of(self.manifest)


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
        settled = time.monotonic() + _SCHEMA_DELAY
        self._settled.update(dict.fromkeys(groups, settled))

    def apply(self, wanted: Wanted) -> Applied:
        """Creates, changes or replaces an object, or leaves it unchanged, and returns its new live state.

        Reverts fields that people changed, but not fields of controllers and autoscalers.

        Raises:
            ApiError: the API server rejects the object.
            WaitTimeoutError: an object is not deleted in time before its replacement.
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
            if same and (by_kueue(error) or _conflicts_only(error, _BY_HOLD)):
                return Applied("unchanged", live)
            if wanted.adopted or not self._may_replace(wanted, error):
                raise
            # The garbage collector discovers custom kinds late, and until then blocks a foreground deletion.
            foreground = "." not in wanted.reference.group
            self._cluster.delete(wanted.reference, uid=live.uid, foreground=foreground)
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
        if (wanted.entry is not None and by_kueue(error)) or immutable(error):
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


CONFLICT: Final = 409

# Managers that people use. Fields of controllers and of the `scale` subresource are not reverted.
_BY_HAND: Final = re.compile(
    r'conflict with "(kubectl[^"]*|gpu-tenancy|k9s|[Ll]ens|node-fetch|headlamp|curl|Mozilla)"'
    r"(?! with subresource)"
)
_BY_HOLD: Final = re.compile(f'conflict with "{HOLDING}"')
_BY_KUEUE: Final = re.compile(r'conflict with "kueue"')


def by_kueue(error: ApiError) -> bool:
    """Whether an apply conflicts only with fields that Kueue wrote when it started a job.

    Kueue writes labels and node selectors into pod templates. Kueue then manages the whole of a list without keys, such
    as `workerGroupSpecs` of a RayJob.
    """
    return _conflicts_only(error, _BY_KUEUE)


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
