"""What a change gives teams of data and takes from them, and what moves, as reasons of a verdict."""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from gpu_tenancy.base.texts import first_names
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.model.outlook.data import READ, WRITE, DataAccess

_Held: TypeAlias = Mapping[tuple[str, str], DataAccess]
"""Datasets by team and place: the same folder under another name is the same right."""
_LISTED: Final = 3
"""Teams and workloads that a reason names before it counts the others."""


def data_gained(before: StackOutlook | None, now: StackOutlook) -> tuple[str, ...]:
    """Rights on datasets that teams do not have at the base: `Team a gains read of corpus (s3://ml-corpus/v3)`."""
    return tuple(_changed(_held(before), _held(now), "gains")) if before else ()


def data_lost(before: StackOutlook | None, now: StackOutlook) -> tuple[str, ...]:
    """Rights on datasets that teams no longer have."""
    return tuple(_changed(_held(now), _held(before), "loses")) if before else ()


def data_moved(before: StackOutlook | None, now: StackOutlook) -> tuple[str, ...]:
    """Datasets whose claims are replaced because they are elsewhere, who mounts them, and in which order it goes.

    The source of a PersistentVolume cannot change, and a claim is deleted only when no pod mounts it:
    https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection.
    """
    return tuple(_moved(before, now)) if before else ()


def data_removed(before: StackOutlook | None, now: StackOutlook) -> tuple[str, ...]:
    """Datasets and storage that no team has any more, and what happens to their data."""
    return tuple(_removed(before, now)) if before else ()


def _held(outlook: StackOutlook) -> _Held:
    held: dict[tuple[str, str], DataAccess] = {}
    for access in outlook.data:
        key = access.team, access.place
        if access.kind == "dataset" and (key not in held or access.right == WRITE):
            held[key] = access
    return held


def _changed(less: _Held, more: _Held, verb: str) -> Iterator[str]:
    teams: dict[tuple[str, str, str], list[str]] = {}
    for key, access in more.items():
        other = less.get(key)
        if other is None:
            teams.setdefault((access.right, access.name, access.place), []).append(access.team)
        elif access.right == WRITE and other.right == READ:
            teams.setdefault(("write", access.name, access.place), []).append(access.team)
    for (right, name, place), names in teams.items():
        who, does = ("Team", verb) if len(names) == 1 else ("Teams", verb.removesuffix("s"))
        yield f"{who} {first_names(names, _LISTED)} {does} {right} of {name} ({place})"


def _moved(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    old = {(access.team, access.name): access for access in before.data if access.kind == "dataset"}
    moved: dict[str, list[tuple[DataAccess, DataAccess]]] = {}
    for access in now.data:
        was = old.get((access.team, access.name))
        if access.kind == "dataset" and was and (was.place, was.cached) != (access.place, access.cached):
            moved.setdefault(access.name, []).append((was, access))
    for name, pairs in moved.items():
        was, access = pairs[0]
        target = f"Dataset {name} moves from {was.place} to {access.place}"
        if was.cached and access.cached:
            fix = "add the new place as another dataset, and remove this one"
            yield f"{target}, but Fluid does not move a cache: {fix}"
            continue
        teams = first_names([new.team for _, new in pairs], _LISTED)
        users = [f"{one.team}/{workload}" for one, _ in pairs for workload in one.mounted_by]
        first = f"first end the pods of {first_names(users, _LISTED)}" if users else "first end pods that mount them"
        if was.cached != access.cached:
            change = f"Dataset {name} {'gets a cache' if access.cached else 'loses its cache'}"
            yield f"{change}: {first}, then the claims of {teams} are replaced"
            continue
        yield (
            f"{target}: {first}, then the claims of {teams} are replaced;"
            " or add the new place as another dataset, and remove this one later"
        )


def _removed(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    left = {(access.kind, access.name) for access in now.data}
    gone = {(access.kind, access.name): access for access in before.data if (access.kind, access.name) not in left}
    for (kind, name), access in sorted(gone.items()):
        if kind == "dataset":
            yield f"Dataset {name} is removed; its data stays in {access.place}"
        else:
            yield f"Storage {name} of {access.team} is removed; its volume stays unless its class deletes it"
