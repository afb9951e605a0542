"""The pictures of the report: where each bar, tick and bracket lies. The template only writes it down.

Across, everything is in percent of the picture's width, so that a bar is as long as its place and its text stays as
large as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict

from gpu_tenancy.console.review.drawing_scale import CUT, Scale, hues
from gpu_tenancy.model.outlook import Group, StackOutlook
from gpu_tenancy.model.outlook.shares import Holding


@dataclass(frozen=True, slots=True)
class Bar:
    """What a team or group has of one flavor.

    Attributes:
        name: whose it is.
        hue: its flavor's colour, from 0.
        rail: where all that the flavor can have ends.
        solid: where the guarantee ends.
        hatch: where that which may be borrowed begins and how long it is.
        tick: where the limit is; None where there is none.
        used: where that which is in use ends; None where nobody looked.
        ring: nothing is guaranteed.
        kept: the bracket under the guarantee: True where it is never lent, None where there is no bracket.
        numbers: `8 → 32`.
        was: the same at the base, where it was something else.
        remark: what the bracket means.
        says: all of it in words.
    """

    name: str
    flavor: str
    scheduler: str
    hue: int
    rail: float
    solid: float
    hatch: tuple[float, float]
    tick: float | None
    used: float | None
    ring: bool
    kept: bool | None
    numbers: str
    was: str
    remark: str
    says: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of the cohort tree with what is in it.

    Attributes:
        nobody: what is guaranteed to none of its own: of the root everyone's to borrow.
        guaranteed: what the group is guaranteed, with all in it.
        teams: names, each with its bars.
        count: teams in it and below.
    """

    name: str
    depth: int
    nobody: str
    guaranteed: str
    bars: tuple[Bar, ...]
    groups: tuple["Branch", ...]
    teams: tuple[tuple[str, tuple[Bar, ...]], ...]
    count: int


class _Lengths(TypedDict):
    hue: int
    rail: float
    solid: float
    hatch: tuple[float, float]
    tick: float | None


class Drawing:
    """All pictures of one stack.

    Args:
        outlook: what it comes to.
        before: what it came to at the base.
        used: GPUs in use by team, flavor and scheduler, where somebody looked.
    """

    def __init__(
        self,
        outlook: StackOutlook,
        before: StackOutlook | None = None,
        used: Mapping[tuple[str, str, str], int] | None = None,
    ) -> None:
        self._outlook = outlook
        self._old = _old(before) if before else None
        self._used = used or {}
        self._most = {each.flavor: each.gpus.most for each in outlook.supply}
        self._hues = hues(outlook)
        self._groups = {group.name: group for group in outlook.groups}
        self._teams = {team.name: team for team in outlook.teams}
        self.scale = Scale(_longest(outlook))

    @property
    def tree(self) -> Branch:
        """The cohort tree from its root."""
        return self._branch(self._groups[self._outlook.root], 0)

    @property
    def cut(self) -> tuple[str, ...]:
        """Flavors that have more than the tree's picture shows."""
        return tuple(name for name, most in self._most.items() if self.scale.beyond(name, most))

    def _branch(self, group: Group, depth: int) -> Branch:
        groups = tuple(self._branch(self._groups[name], depth + 1) for name in group.groups)
        teams = tuple((name, tuple(self._bars(name))) for name in self._below(group))
        return Branch(
            name=group.name,
            depth=depth,
            nobody=", ".join(f"{own} {flavor}" for flavor, (own, _, _) in group.shares.items() if own),
            guaranteed=", ".join(f"{sure} {flavor}" for flavor, (_, sure, _) in group.shares.items() if sure),
            bars=tuple(self._bounds(group)) if group.parent is not None else (),
            groups=groups,
            teams=teams,
            count=len(teams) + sum(each.count for each in groups),
        )

    def _below(self, group: Group) -> list[str]:
        """The teams whose queues are in a group, each followed by those that use its queue."""
        users: dict[str, list[str]] = {}
        for team in self._outlook.teams:
            if team.queue != team.name:
                users.setdefault(team.queue, []).append(team.name)
        return [name for owner in group.teams for name in (owner, *users.get(owner, []))]

    def _bars(self, name: str) -> Iterator[Bar]:
        team = self._teams[name]
        for each in team.holdings:
            through = "" if team.queue == name or each.scheduler == "Volcano" else team.queue
            yield self._bar(name, each, through)

    def _bar(self, name: str, each: Holding, through: str) -> Bar:
        used = self._used.get((name, each.flavor, each.scheduler))
        kept = None if each.guaranteed == 0 or through else not each.lends
        remark = f"in the queue of {through}" if through else _remark(each.scheduler, kept=kept)
        said = [
            f"{name}, {each.flavor}: {each.guaranteed} guaranteed",
            f"at most {each.limit} of {self._most.get(each.flavor, 0)}",
            remark,
            "" if used is None else f"{used} in use",
        ]
        return Bar(
            name=name,
            flavor=each.flavor,
            scheduler=each.scheduler,
            **self._lengths(each.flavor, each.guaranteed, each.limit),
            used=None if used is None else self.scale.percent(each.flavor, used),
            ring=each.guaranteed == 0,
            kept=kept,
            numbers=_numbers(each.guaranteed, each.limit),
            was=self._was((name, each.flavor, each.scheduler), _numbers(each.guaranteed, each.limit)),
            remark=remark,
            says="; ".join(part for part in said if part),
        )

    def _was(self, key: tuple[str, str, str], now: str) -> str:
        if self._old is None:
            return ""
        old = self._old.get(key)
        return "new" if old is None else f"was {old}" if old != now else ""

    def _bounds(self, group: Group) -> Iterator[Bar]:
        """A group's own bars: where it is guaranteed more than its teams are, or bounded."""
        for flavor, (own, guaranteed, limit) in group.shares.items():
            if not own and limit is None:
                continue
            most = self._most.get(flavor, 0)
            yield Bar(
                name=group.name,
                flavor=flavor,
                scheduler="Kueue",
                **self._lengths(flavor, guaranteed, limit),
                used=None,
                ring=guaranteed == 0,
                kept=None,
                numbers=_numbers(guaranteed, most if limit is None else limit),
                was="",
                remark="",
                says=f"group {group.name}, {flavor}: {guaranteed} guaranteed, {own} of them for any team in it,"
                f" {'no bound' if limit is None else f'at most {limit}'} of {most}",
            )

    def _lengths(self, flavor: str, guaranteed: int, limit: int | None) -> _Lengths:
        most = self._most.get(flavor, 0)
        solid = self.scale.percent(flavor, guaranteed)
        end = self.scale.percent(flavor, most if limit is None else limit)
        return {
            "hue": self._hues.get(flavor, 0),
            "rail": self.scale.percent(flavor, most),
            "solid": solid,
            "hatch": (solid, round(max(0.0, end - solid), 2)),
            "tick": None if limit is None else end,
        }


def _remark(scheduler: str, *, kept: bool | None) -> str:
    if kept is None:
        return "nothing guaranteed"
    if scheduler == "Volcano":
        return "Volcano's gangs, kept"
    return "kept, never lent" if kept else "lent while idle"


def _numbers(guaranteed: int, limit: int) -> str:
    return f"{guaranteed} → {limit}"


def _old(before: StackOutlook) -> dict[tuple[str, str, str], str]:
    """What each team had of each flavor at the base."""
    return {
        (team.name, each.flavor, each.scheduler): _numbers(each.guaranteed, each.limit)
        for team in before.teams
        for each in team.holdings
    }


def _longest(outlook: StackOutlook) -> dict[str, int]:
    """The most GPUs that are drawn of each flavor: all that it can have, unless nobody may reach a fraction of it."""
    reach = {each.flavor: 0 for each in outlook.supply}
    held = [(each.flavor, each.limit) for team in outlook.teams for each in team.holdings]
    bounds = [
        (flavor, max(guaranteed, limit or 0))
        for group in outlook.groups
        for flavor, (_, guaranteed, limit) in group.shares.items()
        if group.parent is not None
    ]
    for flavor, gpus in (*held, *bounds):
        reach[flavor] = max(reach.get(flavor, 0), gpus)
    most = {each.flavor: each.gpus.most for each in outlook.supply}
    return {
        flavor: most.get(flavor, 0) if gpus <= most.get(flavor, 0) <= CUT * gpus or not gpus else gpus
        for flavor, gpus in reach.items()
    }
