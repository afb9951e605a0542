"""Geometry of the report's charts: positions of bars, ticks and brackets.

Horizontal positions are in percent of the chart's width, so that bars scale with the page and text does not.
"""

from collections.abc import Iterator, Mapping
from typing import TypedDict

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.model.outlook import Group, StackOutlook
from gpu_tenancy.model.outlook.shares import Holding
from gpu_tenancy.pages.bars import CUT, Bar, Branch, Scale
from gpu_tenancy.review.charts import flavor_hues


class _Lengths(TypedDict):
    hue: int
    rail: float
    solid: float
    hatch: tuple[float, float]
    tick: float | None


class Drawing:
    """Charts of one stack.

    Args:
        outlook: the stack summary.
        before: the summary at the base.
        used: GPUs in use by team, flavor and scheduler, where known.
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
        self._capacity = {supply.flavor: supply.capacity.maximum for supply in outlook.supply}
        self._resources = outlook.resources
        self._hues = flavor_hues(outlook)
        self._groups = {group.name: group for group in outlook.groups}
        self._teams = {team.name: team for team in outlook.teams}
        self.scale = Scale(_longest(outlook))

    @property
    def tree(self) -> Branch:
        """The cohort tree from its root."""
        return self._branch(self._groups[self._outlook.root], 0)

    @property
    def cut(self) -> tuple[str, ...]:
        """Flavors whose capacity exceeds the tree's chart."""
        return tuple(name for name, capacity in self._capacity.items() if self.scale.beyond(name, capacity))

    def _branch(self, group: Group, depth: int) -> Branch:
        groups = tuple(self._branch(self._groups[name], depth + 1) for name in group.groups)
        teams = tuple((name, tuple(self._bars(name))) for name in self._below(group))
        return Branch(
            name=group.name,
            depth=depth,
            nobody=self._listed({flavor: own for flavor, (own, _, _) in group.shares.items()}),
            guaranteed=self._listed({flavor: guaranteed for flavor, (_, guaranteed, _) in group.shares.items()}),
            bars=tuple(self._bounds(group)) if group.parent is not None else (),
            groups=groups,
            teams=teams,
            count=len(teams) + sum(branch.count for branch in groups),
        )

    def _text(self, flavor: str, amount: int) -> str:
        return amount_text(self._resources.get(flavor, ""), amount)

    def _listed(self, amounts: Mapping[str, int]) -> str:
        """`8 a100, 40 general CPUs`, without zero amounts."""
        return ", ".join(f"{self._text(flavor, amount)} {flavor}" for flavor, amount in amounts.items() if amount)

    def _numbers(self, flavor: str, guaranteed: int, limit: int) -> str:
        return f"{self._text(flavor, guaranteed)} → {self._text(flavor, limit)}"

    def _below(self, group: Group) -> list[str]:
        """Teams whose queues are in a cohort, each followed by the teams that use its queue."""
        users: dict[str, list[str]] = {}
        for team in self._outlook.teams:
            if team.queue != team.name:
                users.setdefault(team.queue, []).append(team.name)
        return [name for owner in group.teams for name in (owner, *users.get(owner, []))]

    def _bars(self, name: str) -> Iterator[Bar]:
        team = self._teams[name]
        for holding in team.holdings:
            owner = "" if team.queue == name or holding.scheduler == "Volcano" else team.queue
            yield self._bar(name, holding, owner)

    def _bar(self, name: str, holding: Holding, owner: str) -> Bar:
        used = self._used.get((name, holding.flavor, holding.scheduler))
        kept = None if holding.guaranteed == 0 or owner else not holding.lends
        remark = f"uses the queue of {owner}" if owner else _remark(holding.scheduler, kept=kept)
        numbers = self._numbers(holding.flavor, holding.guaranteed, holding.limit)
        capacity = self._text(holding.flavor, self._capacity.get(holding.flavor, 0))
        parts = [
            f"{name}, {holding.flavor}: {self._text(holding.flavor, holding.guaranteed)} guaranteed",
            f"limit {self._text(holding.flavor, holding.limit)} of {capacity}",
            remark,
            "" if used is None else f"{self._text(holding.flavor, used)} in use",
        ]
        return Bar(
            name=name,
            flavor=holding.flavor,
            scheduler=holding.scheduler,
            **self._lengths(holding.flavor, holding.guaranteed, holding.limit),
            used=None if used is None else self.scale.percent(holding.flavor, used),
            ring=holding.guaranteed == 0,
            kept=kept,
            numbers=numbers,
            was=self._was((name, holding.flavor, holding.scheduler), numbers),
            remark=remark if used is None else f"{self._text(holding.flavor, used)} in use, {remark}",
            says="; ".join(part for part in parts if part),
        )

    def _was(self, key: tuple[str, str, str], now: str) -> str:
        if self._old is None:
            return ""
        old = self._old.get(key)
        return "new" if old is None else f"was {old}" if old != now else ""

    def _bounds(self, group: Group) -> Iterator[Bar]:
        """Bars of a cohort that has its own quota or a limit."""
        for flavor, (own, guaranteed, limit) in group.shares.items():
            if not own and limit is None:
                continue
            capacity = self._capacity.get(flavor, 0)
            whole = self._text(flavor, capacity)
            bound = f"no limit, capacity {whole}" if limit is None else f"limit {self._text(flavor, limit)} of {whole}"
            yield Bar(
                name=group.name,
                flavor=flavor,
                scheduler="Kueue",
                **self._lengths(flavor, guaranteed, limit),
                used=None,
                ring=guaranteed == 0,
                kept=None,
                numbers=self._numbers(flavor, guaranteed, capacity if limit is None else limit),
                was="",
                remark="",
                says=f"cohort {group.name}, {flavor}: {self._text(flavor, guaranteed)} guaranteed, "
                f"{self._text(flavor, own)} of them for any of its teams; {bound}",
            )

    def _lengths(self, flavor: str, guaranteed: int, limit: int | None) -> _Lengths:
        capacity = self._capacity.get(flavor, 0)
        solid = self.scale.percent(flavor, guaranteed)
        end = self.scale.percent(flavor, capacity if limit is None else limit)
        return {
            "hue": self._hues.get(flavor, 0),
            "rail": self.scale.percent(flavor, capacity),
            "solid": solid,
            "hatch": (solid, round(max(0.0, end - solid), 2)),
            "tick": None if limit is None else end,
        }


def _remark(scheduler: str, *, kept: bool | None) -> str:
    if kept is None:
        return "no guarantee"
    if scheduler == "Volcano":
        return "Volcano gangs, never lent"
    return "never lent" if kept else "lent while idle"


def _old(before: StackOutlook) -> dict[tuple[str, str, str], str]:
    """Numbers of each team, flavor and scheduler at the base."""
    return {
        (team.name, holding.flavor, holding.scheduler): (
            f"{amount_text(holding.resource, holding.guaranteed)} → {amount_text(holding.resource, holding.limit)}"
        )
        for team in before.teams
        for holding in team.holdings
    }


def _longest(outlook: StackOutlook) -> dict[str, int]:
    """GPUs at the right end of each flavor's chart: its capacity, or the highest limit where that is much lower."""
    reach = {supply.flavor: 0 for supply in outlook.supply}
    held = [(holding.flavor, holding.limit) for team in outlook.teams for holding in team.holdings]
    bounds = [
        (flavor, max(guaranteed, limit or 0))
        for group in outlook.groups
        for flavor, (_, guaranteed, limit) in group.shares.items()
        if group.parent is not None
    ]
    for flavor, gpus in (*held, *bounds):
        reach[flavor] = max(reach.get(flavor, 0), gpus)
    capacity = {supply.flavor: supply.capacity.maximum for supply in outlook.supply}
    return {
        flavor: capacity.get(flavor, 0) if gpus <= capacity.get(flavor, 0) <= CUT * gpus or not gpus else gpus
        for flavor, gpus in reach.items()
    }
