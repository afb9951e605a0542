"""Pieces grouped for Flux, which waits between groups alone, by names that do not move when a stack grows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.console.gitops.pieces import Piece

TENANCY: Final = "tenancy"
"""Everything that needs releases and jobs, and on which none of them waits."""

WORK: Final = "work"

_UNSAFE: Final = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Group:
    """Pieces that are applied together.

    Attributes:
        after: names of the groups that must be healthy before, none of which follows from another.
    """

    name: str
    members: tuple[Piece, ...]
    after: tuple[str, ...]


def groups(found: Sequence[Piece]) -> tuple[Group, ...]:
    """Each release and each job that is awaited is a group, with what it is the first to need; the rest is two more.

    A group has no number: if it had, an operator more would move objects from one to the next, and Flux would prune
    them in the one before it makes them in the other.

    Args:
        found: a stack's pieces, in the order of their waves.
    """
    names = _names(found)
    by_name: dict[str, list[Piece]] = {}
    for one in found:
        by_name.setdefault(names[one.urn], []).append(one)
    needs = {
        name: frozenset(names[urn] for one in members for urn in one.before) - {name}
        for name, members in by_name.items()
    }
    reach = _reach(needs)
    return tuple(
        Group(name, tuple(members), tuple(sorted(_direct(needs[name], reach)))) for name, members in by_name.items()
    )


def _names(found: Sequence[Piece]) -> dict[str, str]:
    above = _reach({one.urn: one.before for one in found})
    awaited = [one for one in found if one.awaited and not one.work]
    names: dict[str, str] = {}
    for one in found:
        if one.work:
            names[one.urn] = WORK
            continue
        first = next((each for each in awaited if each is one or one.urn in above[each.urn]), None)
        own = _UNSAFE.sub("-", first.urn.rpartition("::")[2].lower()).strip("-") if first else TENANCY
        names[one.urn] = own
    return names


def _reach(needs: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """All that each needs, by way of others too; none needs itself."""
    met: dict[str, frozenset[str]] = {}
    for start in needs:
        seen: set[str] = set()
        left = [start]
        while left:
            for need in needs[left.pop()]:
                if need in met:
                    seen |= met[need] | {need}
                elif need not in seen:
                    seen.add(need)
                    left.append(need)
        met[start] = frozenset(seen)
    return met


def _direct(needs: Iterable[str], reach: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Needs without those that another of them brings along."""
    brought = {far for near in needs for far in reach[near]}
    return frozenset(needs) - brought
