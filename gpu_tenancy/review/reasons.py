"""What a change gives people and teams and takes from them, and what moves, as reasons of a verdict."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.model.catalogue.roles import READ as MAY_READ
from gpu_tenancy.model.catalogue.roles import abilities
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.model.outlook.data import READ, WRITE, DataAccess
from gpu_tenancy.model.plan.secrets import UNDECLARED, SecretRow

_Abilities: TypeAlias = Mapping[tuple[str, str], tuple[str, ...]]
"""What people may do, by team (empty for the cluster) and person; the strongest first."""
_Datasets: TypeAlias = Mapping[tuple[str, str], DataAccess]
"""Datasets by team and place: the same folder under another name is the same right."""
LISTED: Final = 3
"""People, teams and resources that a reason names before it counts the others."""


def access_gained(before: StackOutlook, now: StackOutlook) -> tuple[str, ...]:
    """What people may do that they may not at the base: `2 groups gain exec in ml-research (group:a, group:b)`."""
    return tuple(_of_people(_abilities(before), _abilities(now), "gain"))


def access_lost(before: StackOutlook, now: StackOutlook) -> tuple[str, ...]:
    """What people may no longer do: `1 user loses all access in ml-research (user:rosa)`."""
    return tuple(_of_people(_abilities(now), _abilities(before), "lose"))


def _abilities(outlook: StackOutlook) -> _Abilities:
    """All teams' members; who is in several entries is listed with the rights of all of them."""
    held: dict[tuple[str, str], tuple[str, ...]] = {}
    for membership in outlook.people:
        for person in membership.people:
            key = membership.team, person
            held[key] = tuple(dict.fromkeys((*held.get(key, ()), *abilities(membership.role))))
    return held


def _of_people(less: _Abilities, more: _Abilities, verb: str) -> Iterator[str]:
    """One reason for all people and teams with the same difference."""
    by_person: dict[tuple[str, str], list[str]] = {}
    for (team, person), rights in more.items():
        different = [right for right in rights if right not in less.get((team, person), ())]
        if different:
            by_person.setdefault((person, _rights(different, verb)), []).append(team)
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (person, rights), teams in by_person.items():
        merged.setdefault((rights, tuple(teams)), []).append(person)
    for (rights, teams), people in merged.items():
        verbs = f"{verb}s" if len(people) == 1 else verb
        where = "the cluster" if teams == ("",) else first_names([team or "the cluster" for team in teams], LISTED)
        who = plural(len(people), *_kind_of_people(people))
        yield f"{who} {verbs} {rights} in {where} ({first_names(people, LISTED)})"


def _rights(rights: Sequence[str], verb: str) -> str:
    """Whoever gains more than reading can read too; whoever can no longer read can do nothing."""
    if MAY_READ in rights and verb == "lose":
        return "all access"
    *first, last = [right for right in rights if right != MAY_READ] or [MAY_READ]
    return f"{', '.join(first)} and {last}" if first else last


def _kind_of_people(people: Sequence[str]) -> tuple[str, str]:
    """What people are, if all are the same, for one and for several."""
    kinds = {person.partition(":")[0] for person in people}
    nouns = {
        "group": "group",
        "user": "user",
        "serviceaccount": "service account",
        "arn": "IAM principal",
    }
    noun = nouns.get(kinds.pop(), "") if len(kinds) == 1 else ""
    return (noun, f"{noun}s") if noun else ("person", "people")


def data_gained(before: StackOutlook, now: StackOutlook) -> tuple[str, ...]:
    """Rights on datasets that teams do not have at the base: `Team a gains read of corpus (s3://ml-corpus/v3)`."""
    return tuple(_of_teams(_datasets(before), _datasets(now), "gains"))


def data_lost(before: StackOutlook, now: StackOutlook) -> tuple[str, ...]:
    """Rights on datasets that teams no longer have."""
    return tuple(_of_teams(_datasets(now), _datasets(before), "loses"))


def _datasets(outlook: StackOutlook) -> _Datasets:
    held: dict[tuple[str, str], DataAccess] = {}
    for access in outlook.data:
        key = access.team, access.place
        if access.kind == "dataset" and (key not in held or access.right == WRITE):
            held[key] = access
    return held


def _of_teams(less: _Datasets, more: _Datasets, verb: str) -> Iterator[str]:
    teams: dict[tuple[str, str, str], list[str]] = {}
    for key, access in more.items():
        other = less.get(key)
        if other is None:
            teams.setdefault((access.right, access.name, access.place), []).append(access.team)
        elif access.right == WRITE and other.right == READ:
            teams.setdefault(("write", access.name, access.place), []).append(access.team)
    for (right, name, place), names in teams.items():
        who, does = ("Team", verb) if len(names) == 1 else ("Teams", verb.removesuffix("s"))
        yield f"{who} {first_names(names, LISTED)} {does} {right} of {name} ({place})"


def data_moved(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    """Datasets whose claims are replaced because they are elsewhere, who mounts them, and in which order it goes.

    The source of a PersistentVolume cannot change, and a claim is deleted only when no pod mounts it:
    https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection.
    """
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
        teams = first_names([new.team for _, new in pairs], LISTED)
        users = [f"{one.team}/{workload}" for one, _ in pairs for workload in one.mounted_by]
        first = f"first end the pods of {first_names(users, LISTED)}" if users else "first end pods that mount them"
        if was.cached != access.cached:
            change = f"Dataset {name} {'gets a cache' if access.cached else 'loses its cache'}"
            yield f"{change}: {first}, then the claims of {teams} are replaced"
            continue
        yield (
            f"{target}: {first}, then the claims of {teams} are replaced;"
            " or add the new place as another dataset, and remove this one later"
        )


def data_removed(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    """Datasets that no team has any more, storage that its team has no more, and what happens to their data.

    The storage of a removed team is deleted with its namespace, which is another reason.
    """
    left = {_data_key(access) for access in now.data}
    gone = {_data_key(access): access for access in before.data if _data_key(access) not in left}
    teams = {team.name for team in now.teams}
    for (kind, _, name), access in sorted(gone.items()):
        if kind == "dataset":
            yield f"Dataset {name} is removed; its data stays in {access.place}"
        elif access.team in teams:
            yield f"Storage {name} of {access.team} is removed; its volume stays unless its class deletes it"


def _data_key(access: DataAccess) -> tuple[str, str, str]:
    """Teams share a dataset, and have each their own storage."""
    return access.kind, access.team if access.kind == "storage" else "", access.name


def secret_reasons(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    """What a team can read in the cloud that it cannot at the base, and which Secrets get another source.

    `ml-research gains a secret of the cloud: wandb (aws://eu-central-1/ml/wandb)`.
    """
    old = {(row.team, row.name): row for row in before.secrets}
    read = {(row.team, row.source) for row in before.secrets if row.right}
    for row in now.secrets:
        was = old.get((row.team, row.name))
        if row.right and (row.team, row.source) not in read:
            yield f"{row.team} gains a secret of the cloud: {row.name} ({row.source})"
        if was and was.source != row.source and UNDECLARED not in {was.source, row.source}:
            yield f"Secret {row.name} of {row.team} changes from {was.source} to {row.source}{_affected(row)}"


def _affected(row: SecretRow) -> str:
    """Who uses it, and whether a change reaches them."""
    if not row.users:
        return ", and nobody uses it"
    return f", for {plural(len(row.users), 'user', 'users')} ({first_names(list(row.users), LISTED)}): {row.reach}"
