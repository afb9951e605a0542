"""Fields that somebody changed by hand: which they are, and which of them an apply takes back."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from gpu_tenancy.base.json import Json, map_at
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.live import Live

CONFLICT: Final = 409

_BY_HAND: Final = re.compile(
    r'conflict with "(kubectl[^"]*|gpu-tenancy|k9s|[Ll]ens|node-fetch|headlamp|curl|Mozilla)"'
    r"(?! with subresource)"
)
"""Managers that people use. Fields of controllers, and of the `scale` subresource, are not taken back."""
_BY_KUEUE: Final = re.compile(r'conflict with "kueue"')


def by_hand(error: ApiError) -> bool:
    """Whether an apply conflicts only with what people changed by hand, so that it can be forced."""
    return _conflicts_only(error, _BY_HAND)


def by_kueue(error: ApiError) -> bool:
    """Whether an apply conflicts only with what Kueue wrote into a job when it started it.

    Kueue writes labels and node selectors into the pod templates. In a list without keys, such as `workerGroupSpecs` of
    a RayJob, it becomes the manager of the whole list.
    """
    return _conflicts_only(error, _BY_KUEUE)


def _conflicts_only(error: ApiError, managers: re.Pattern[str]) -> bool:
    conflicts = [cause.message for cause in error.causes if cause.reason == "FieldManagerConflict"]
    return error.status == CONFLICT and bool(conflicts) and all(managers.match(message) for message in conflicts)


def regained(before: Live, after: Live) -> tuple[str, ...]:
    """The fields that are ours after an apply and were not before it, such as `spec.replicas`, sorted.

    Somebody else's change of a field removes it from our entry in `managedFields`, and an apply adds it again. A
    controller can also take a field with the value that it has, as Kueue does; then the spec stays the same.
    """
    if not before.applied:
        return ()
    found = {*_paths(_fields(after))} - {*_paths(_fields(before))}
    same_spec = after.generation == before.generation > 0
    return tuple(sorted(path for path in found if not (same_spec and path.startswith("spec."))))


def _fields(live: Live) -> Mapping[str, Json]:
    return map_at(live.applied or {}, "fieldsV1")


def _paths(fields: Mapping[str, Json], parent: str = "") -> Iterator[str]:
    """The paths of all leaves in https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers."""
    for key, inner in fields.items():
        kind, _, name = key.partition(":")
        if kind == ".":
            continue
        path = f"{parent}.{name}".lstrip(".") if kind == "f" else f"{parent}[{_item(name)}]"
        if isinstance(inner, dict) and any(one != "." for one in inner):
            yield from _paths(inner, path)
        else:
            yield path


def _item(name: str) -> str:
    """An item of a list: by its keys `name=server`, or by its value."""
    item = cast("Json", json.loads(name))
    return ", ".join(f"{key}={value}" for key, value in item.items()) if isinstance(item, dict) else str(item)
