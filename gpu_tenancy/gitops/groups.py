"""Groups for Flux, which waits only between Kustomizations; group names are stable when a stack grows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.gitops.pieces import Piece

TENANCY: Final = "tenancy"
"""The group of objects that need releases and jobs, and on which no release or job depends."""

WORK: Final = "work"

_UNSAFE: Final = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Group:
    """Objects and releases that are applied together.

    Attributes:
        after: names of the groups that must be healthy before, without indirect dependencies.
    """

    name: str
    members: tuple[Piece, ...]
    after: tuple[str, ...]


def groups(pieces: Sequence[Piece]) -> tuple[Group, ...]:
    """A group for each release and each awaited job with its own dependencies, and two groups for the rest.

    Groups have no numbers, because a new operator would then move objects to another group, and Flux would prune them
    in the old group before it creates them in the new one.
    """
    names = _names(pieces)
    by_name: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_name.setdefault(names[piece.urn], []).append(piece)
    needs = {
        name: frozenset(names[urn] for piece in members for urn in piece.before) - {name}
        for name, members in by_name.items()
    }
    reach = _reach(needs)
    return tuple(
        Group(name, tuple(members), tuple(sorted(_direct(needs[name], reach)))) for name, members in by_name.items()
    )


def _names(pieces: Sequence[Piece]) -> dict[str, str]:
    """The group name of each piece, by URN."""
    dependencies = _reach({piece.urn: piece.before for piece in pieces})
    awaited = [piece for piece in pieces if piece.awaited and not piece.work]
    names: dict[str, str] = {}
    for piece in pieces:
        if piece.work:
            names[piece.urn] = WORK
            continue
        first = next((item for item in awaited if item is piece or piece.urn in dependencies[item.urn]), None)
        name = _UNSAFE.sub("-", first.urn.rpartition("::")[2].lower()).strip("-") if first else TENANCY
        names[piece.urn] = name
    return names


def _reach(needs: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """The transitive dependencies of each, without itself."""
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
    """The direct dependencies: those that are not dependencies of another one."""
    indirect = {far for near in needs for far in reach[near]}
    return frozenset(needs) - indirect
