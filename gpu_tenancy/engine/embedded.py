"""A stack on the embedded platform: its context, and its classes of storage by the names of a created cluster."""

from collections.abc import Mapping
from typing import Any, Final

from gpu_tenancy.model.plan.snapshots import snapshots
from gpu_tenancy.model.plan.storage import claims, service_of
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
    return {
        name: {**team, "storage": _named(team["storage"], stack, name)} if stack.teams[name].storage else team
        for name, team in teams.items()
    }


def _named(written: Mapping[str, Any], stack: Stack, team: str) -> dict[str, Any]:
    spec = stack.teams[team]
    names = {claim.name: claim.storage_class for claim in claims(stack.cluster, team, spec)}
    taken = {planned.claim: planned for planned in snapshots(stack.cluster, team, spec)}
    changed: dict[str, Any] = {}
    for name, storage in spec.storage.items():
        if not _is_made(stack, storage):
            changed[name] = written[name]
            continue
        kept = {key: value for key, value in written[name].items() if key not in _OF_CREATED}
        if planned := taken.get(name):
            kept["snapshots"] = {"schedule": planned.schedule, "keep": planned.keep, "class": planned.snapshot_class}
        changed[name] = {**kept, "storageClass": names[name]}
    return changed


def _is_made(stack: Stack, storage: Storage) -> bool:
    """Whether a class is made for storage that could not be had without it."""
    needed = storage.kind or storage.mode == "shared" or not storage.keep or storage.snapshots
    return service_of(stack.cluster, storage)[1] is not None and bool(needed)
