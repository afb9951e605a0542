"""What a change gives people and takes from them, as reasons of a verdict."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.model.catalogue.roles import READ, abilities
from gpu_tenancy.model.outlook import StackOutlook

_Held: TypeAlias = Mapping[tuple[str, str], tuple[str, ...]]
"""What people may do, by team (empty for the cluster) and person; the strongest first."""
_LISTED: Final = 3
"""People and teams that a reason names before it counts the others."""


def access_gained(before: StackOutlook | None, now: StackOutlook) -> tuple[str, ...]:
    """What people may do that they may not at the base: `2 groups gain exec in ml-research (group:a, group:b)`."""
    return tuple(_reasons(_held(before), _held(now), "gain")) if before else ()


def access_lost(before: StackOutlook | None, now: StackOutlook) -> tuple[str, ...]:
    """What people may no longer do: `1 user loses all access in ml-research (user:rosa)`."""
    return tuple(_reasons(_held(now), _held(before), "lose")) if before else ()


def _held(outlook: StackOutlook) -> _Held:
    """All teams' members; who is in several entries is listed with the rights of all of them."""
    held: dict[tuple[str, str], tuple[str, ...]] = {}
    for membership in outlook.people:
        for person in membership.people:
            key = membership.team, person
            held[key] = tuple(dict.fromkeys((*held.get(key, ()), *abilities(membership.role))))
    return held


def _reasons(less: _Held, more: _Held, verb: str) -> Iterator[str]:
    """One reason for all people and teams with the same difference."""
    by_person: dict[tuple[str, str], list[str]] = {}
    for (team, person), rights in more.items():
        different = [right for right in rights if right not in less.get((team, person), ())]
        if different:
            by_person.setdefault((person, _named(different, verb)), []).append(team)
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (person, rights), teams in by_person.items():
        merged.setdefault((rights, tuple(teams)), []).append(person)
    for (rights, teams), people in merged.items():
        verbs = f"{verb}s" if len(people) == 1 else verb
        where = "the cluster" if teams == ("",) else first_names([team or "the cluster" for team in teams], _LISTED)
        yield f"{plural(len(people), *_noun(people))} {verbs} {rights} in {where} ({first_names(people, _LISTED)})"


def _named(rights: Sequence[str], verb: str) -> str:
    """Whoever gains more than reading can read too; whoever can no longer read can do nothing."""
    if READ in rights and verb == "lose":
        return "all access"
    *first, last = [right for right in rights if right != READ] or [READ]
    return f"{', '.join(first)} and {last}" if first else last


def _noun(people: Sequence[str]) -> tuple[str, str]:
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
