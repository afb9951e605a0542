"""Moves guaranteed GPUs from one team to another, as changes of numbers in their stack."""

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import yaml

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import Path, nearest
from gpu_tenancy.base.texts import counted
from gpu_tenancy.model.source import Source, value_at
from gpu_tenancy.model.yaml import compose

_GPU: Final = "nvidia.com/gpu"


class Change(NamedTuple):
    """A number of a stack, before and after."""

    before: int
    after: int


def moved(source: Source, count: int, flavor: str, giver: str, taker: str) -> Mapping[Path, Change]:
    """The changed numbers of a stack if a team gives guaranteed GPUs to another.

    The limit of a team that cannot borrow stays its guarantee; another limit changes only if the guarantee exceeds it.
    Raises ConsoleError if a team or its share does not exist, or the giver has fewer GPUs.
    """
    if giver == taker:
        raise ConsoleError(f"--from {giver} --to {taker}: the same team", "specify two teams")
    changes: dict[Path, Change] = {}
    for team, more in ((giver, -count), (taker, count)):
        place = _share(source, team, flavor)
        share: Any = value_at(source.sections, place)
        before, limit = share.get("guaranteed") or 0, share.get("limit")
        after = before + more
        if after < 0:
            less = f"{before} is less than the {counted(count, _GPU, flavor)} to move"
            fix = f"move at most {before}" if before else "move from a team that has a guarantee"
            raise ConsoleError(f"{'.'.join(map(str, place))}.guaranteed: {less}", fix)
        changes[*place, "guaranteed"] = Change(before, after)
        if limit is not None and (limit == before or limit < after):
            changes[*place, "limit"] = Change(limit, after)
    return changes


def with_changes(source: Source, changes: Mapping[Path, Change]) -> Source:
    """A copy of a stack with other numbers."""
    sections: Any = deepcopy(source.sections)
    for path, change in changes.items():
        *way, last = path
        value_at(sections, tuple(way))[last] = change.after
    return replace(source, sections=sections)


def _share(source: Source, team: str, flavor: str) -> Path:
    """Path of a team's share of a flavor: in `gpus` or in `quota`."""
    teams: Any = source.sections.get("teams") or {}
    if team not in teams:
        raise ConsoleError(f"unknown team '{team}'", nearest(team, teams))
    for section in ("gpus", "quota"):
        if isinstance(value_at(teams, (team, section, flavor)), dict):
            return ("teams", team, section, flavor)
    known: dict[str, Any] = value_at(teams, (team, "gpus")) or {}
    share = f"{flavor}: {{guaranteed: 0, limit: 0}}"
    fix = f"{nearest(flavor, known)}; or add {share}" if known else f"add gpus: {{{share}}}"
    raise ConsoleError(f"teams.{team}.gpus: no {flavor}", fix)


def with_numbers(text: str, changes: Mapping[Path, int], file: str) -> str:
    """A YAML text with other numbers. Raises ConsoleError if a place is missing or shared (anchor, alias, `<<`)."""
    text = text.removeprefix("\ufeff")  # the parsers count it differently
    root = compose(text)
    if root is None:
        raise ConsoleError(f"{file}: is empty", "add the keys")
    shared = Counter(id(node) for node in _nodes(root))
    found: list[tuple[int, int, int]] = []
    for path, number in changes.items():
        node: yaml.Node = root
        for key in path:
            below = next((value for name, value in _pairs(node) if name.value == key), None)
            if below is None or shared[id(below)] > 1:
                why = "is not written there" if below is None else "is shared by an anchor and its aliases"
                raise ConsoleError(f"{file}: {'.'.join(map(str, path))} {why}", f"set it to {number} by hand")
            node = below
        found.append((node.start_mark.index, node.end_mark.index, number))
    for start, end, number in sorted(found, reverse=True):
        text = f"{text[:start]}{number}{text[end:]}"
    return text


def _pairs(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value) if isinstance(node, yaml.MappingNode) else []


def _nodes(node: yaml.Node, above: frozenset[int] = frozenset()) -> Iterator[yaml.Node]:
    """A node and its descendants; an aliased node appears once for each alias."""
    yield node
    if id(node) in above:
        return
    entries = cast("list[yaml.Node]", node.value) if isinstance(node, yaml.SequenceNode) else []
    for below in (*entries, *(value for _, value in _pairs(node))):
        yield from _nodes(below, above | {id(node)})
