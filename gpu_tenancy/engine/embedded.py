"""A stack on the embedded platform: its context, and its classes of storage by the names of a created cluster."""

from collections.abc import Mapping
from typing import Any, Final

from gpu_tenancy.model.plan.storage import SnapshotPlan, class_name, service_of, snapshots
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.data import Storage

CONTEXT: Final = "gpu-tenancy-embedded"
"""Name of the cluster and the context in every kubeconfig of the platform."""

_OF_CREATED = ("class", "keep", "snapshots")
"""Keys of storage that name or need a class that is made here."""


def with_named_classes(teams: Mapping[str, Any], stack: Stack) -> dict[str, Any]:
    """The section `teams`, whose storage names classes in place of having them made.

    The embedded platform is an existing cluster, for which none are made. Its volumes are created for their claims, so
    the classes need not exist. Storage that has the cloud's default class has that of the platform.
    """
    return {name: {**team, **_named(team, stack, name)} for name, team in teams.items()}


def _named(written: Mapping[str, Any], stack: Stack, team: str) -> dict[str, Any]:
    """The sections of a team with storage, if it has any."""
    spec = stack.teams[team]
    taken = {planned.claim: planned for planned in snapshots(stack.cluster, team, spec)}
    changed: dict[str, Any] = {}
    if spec.storage:
        changed["storage"] = {
            name: _stored(written["storage"][name], stack, storage, taken.get(name))
            for name, storage in spec.storage.items()
        }
    if spec.notebooks:
        home = _stored(written["notebooks"]["home"], stack, spec.notebooks.home, None)
        changed["notebooks"] = {**written["notebooks"], "home": home}
    return changed


def _stored(
    written: Mapping[str, Any], stack: Stack, storage: Storage, taken: SnapshotPlan | None
) -> Mapping[str, Any]:
    if not _is_made(stack, storage):
        return written
    kept = {key: value for key, value in written.items() if key not in _OF_CREATED}
    if taken:
        kept["snapshots"] = {"schedule": taken.schedule, "keep": taken.keep, "class": taken.snapshot_class}
    return {**kept, "storageClass": class_name(service_of(stack.cluster, storage)[0], storage)}


def _is_made(stack: Stack, storage: Storage) -> bool:
    """Whether a class is made for storage that could not be had without it."""
    needed = storage.kind or storage.mode == "shared" or not storage.keep or storage.snapshots
    return service_of(stack.cluster, storage)[1] is not None and bool(needed)
