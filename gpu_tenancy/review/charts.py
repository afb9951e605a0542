"""Scale of the charts, text bars, and the chart of guarantees and limits against capacity."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.quantity import amount_text
from gpu_tenancy.base.texts import unit
from gpu_tenancy.model.outlook import Group, StackOutlook, TeamOutlook
from gpu_tenancy.model.outlook.shares import Holding
from gpu_tenancy.model.plan.shares import flavor_of
from gpu_tenancy.pages.bars import CUT, Bar, Branch, Scale, hues
from gpu_tenancy.review.figures import span

TEXT_WIDTH: Final = 20  # characters of a text bar


def flavor_hues(outlook: StackOutlook) -> dict[str, int]:
    """The colour of each measure, by label: CPU and memory of a flavor share one."""
    return hues({label: flavor_of(label, resource) for label, resource in outlook.resources.items()})


def text_bar(guaranteed: int, limit: int, capacity: int) -> str:
    """A text bar: █ guaranteed, ▒ may borrow, · other capacity; each part above 0 has at least one character."""
    whole = max(capacity, limit, 1)
    solid, end = (max(1, round(TEXT_WIDTH * gpus / whole)) if gpus else 0 for gpus in (guaranteed, limit))
    hatched = max(end - solid, 1 if limit > guaranteed and solid < TEXT_WIDTH else 0)
    return "█" * solid + "▒" * hatched + "·" * (TEXT_WIDTH - solid - hatched)


@dataclass(frozen=True, slots=True)
class Tank:
    """Guarantees and limits of a flavor against its capacity; positions are in percent of the width."""

    flavor: str
    hue: int
    sure: float  # end of the GPUs that are always available
    rail: float  # end of the maximum capacity
    solid: float  # end of the guarantees
    tick: float  # the sum of limits
    numbers: str
    remark: str  # guaranteed GPUs that depend on autoscaling
    says: str


def tanks(outlook: StackOutlook) -> Iterator[Tank]:
    """One chart for each flavor."""
    scale = Scale(
        {supply.flavor: max(supply.capacity.maximum, supply.limits, supply.guaranteed) for supply in outlook.supply}
    )
    colours = flavor_hues(outlook)
    for supply in outlook.supply:
        text, place = partial(amount_text, supply.resource), partial(scale.percent, supply.flavor)
        autoscaled = supply.guaranteed - supply.capacity.minimum
        units = f"guaranteed {unit(supply.resource)}"
        remark = f"{text(autoscaled)} {units} depend on autoscaling" if autoscaled > 0 else ""
        guaranteed, limits = text(supply.guaranteed), text(supply.limits)
        capacity = span(supply.capacity, supply.resource)
        numbers = f"{guaranteed} guaranteed of {capacity}, sum of limits {limits}"
        yield Tank(
            flavor=supply.flavor,
            hue=colours[supply.flavor],
            sure=place(supply.capacity.minimum),
            rail=place(supply.capacity.maximum),
            solid=place(supply.guaranteed),
            tick=place(supply.limits),
            numbers=f"{guaranteed} of {capacity} · sum of limits {limits}",
            remark=remark,
            says=f"{supply.flavor}: {numbers}; {remark}" if remark else f"{supply.flavor}: {numbers}",
        )


class Drawing:
    """Charts of one stack; `before` is the summary at the base, `used` are GPUs by team, flavor and scheduler."""

    def __init__(
        self,
        outlook: StackOutlook,
        before: StackOutlook | None = None,
        used: Mapping[tuple[str, str, str], int] | None = None,
    ) -> None:
        self._outlook = outlook
        self._compared = before is not None
        self._old = {
            (team.name, own.flavor, own.scheduler): _numbers(own.resource, own.guaranteed, own.limit)
            for team in (before.teams if before else ())
            for own in team.holdings
        }
        self._used = used or {}
        self._capacity = {supply.flavor: supply.capacity.maximum for supply in outlook.supply}
        self._resources = outlook.resources
        self._hues = flavor_hues(outlook)
        self._groups = {group.name: group for group in outlook.groups}
        self._teams = {team.name: team for team in outlook.teams}
        # By queue: the teams without one, which use it.
        self._guests = grouped((team.queue, team.name) for team in outlook.teams if team.queue != team.name)
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
        names = [name for owner in group.teams for name in (owner, *self._guests.get(owner, ()))]
        teams = tuple(
            (name, (*_shared(self._teams[name]), *(self._bar(name, holding) for holding in self._teams[name].holdings)))
            for name in names
        )
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

    def _bar(self, name: str, holding: Holding) -> Bar:
        key = (name, holding.flavor, holding.scheduler)
        used = self._used.get(key)
        kept = None if holding.guaranteed == 0 else not holding.lends
        remark = _remark(holding.scheduler, kept=kept)
        numbers = _numbers(self._resources.get(holding.flavor, ""), holding.guaranteed, holding.limit)
        was = self._old.get(key) if self._compared else numbers
        capacity = self._text(holding.flavor, self._capacity.get(holding.flavor, 0))
        parts = [
            f"{name}, {holding.flavor}: {self._text(holding.flavor, holding.guaranteed)} guaranteed",
            f"limit {self._text(holding.flavor, holding.limit)} of {capacity}",
            remark,
            "" if used is None else f"{self._text(holding.flavor, used)} in use",
        ]
        return self._drawn(holding.flavor, holding.guaranteed, holding.limit)(
            name=name,
            scheduler=holding.scheduler,
            used=None if used is None else self.scale.percent(holding.flavor, used),
            kept=kept,
            numbers=numbers,
            was="new" if was is None else f"was {was}" if was != numbers else "",
            remark=remark if used is None else f"{self._text(holding.flavor, used)} in use, {remark}",
            says="; ".join(part for part in parts if part),
            job=f"covers jobs with {str(holding.guarantee).partition(', ')[2]}" if holding.bound else "",
        )

    def _bounds(self, group: Group) -> Iterator[Bar]:
        for flavor, (own, guaranteed, limit) in group.shares.items():
            if not own and limit is None:
                continue
            capacity = self._capacity.get(flavor, 0)
            whole = self._text(flavor, capacity)
            bound = f"no limit, capacity {whole}" if limit is None else f"limit {self._text(flavor, limit)} of {whole}"
            yield self._drawn(flavor, guaranteed, limit)(
                name=group.name,
                scheduler="Kueue",
                numbers=_numbers(self._resources.get(flavor, ""), guaranteed, capacity if limit is None else limit),
                remark="",
                says=f"cohort {group.name}, {flavor}: {self._text(flavor, guaranteed)} guaranteed, "
                f"{self._text(flavor, own)} of them for any of its teams; {bound}",
            )

    def _drawn(self, flavor: str, guaranteed: int, limit: int | None) -> partial[Bar]:
        capacity = self._capacity.get(flavor, 0)
        solid = self.scale.percent(flavor, guaranteed)
        end = self.scale.percent(flavor, capacity if limit is None else limit)
        return partial(
            Bar,
            flavor=flavor,
            hue=self._hues.get(flavor, 0),
            rail=self.scale.percent(flavor, capacity),
            solid=solid,
            hatch=(solid, round(max(0.0, end - solid), 2)),
            tick=None if limit is None else end,
            ring=guaranteed == 0,
        )


def _shared(team: TeamOutlook) -> Iterator[Bar]:
    """The empty bar of a team that shares a queue, which has the bars."""
    if team.shares:
        remark = f"shares the {team.shares}"
        yield Bar(name=team.name, flavor="", scheduler="Kueue", remark=remark, says=f"{team.name} {remark}")


def _numbers(resource: str, guaranteed: int, limit: int) -> str:
    return f"{amount_text(resource, guaranteed)} → {amount_text(resource, limit)}"


def _remark(scheduler: str, *, kept: bool | None) -> str:
    if kept is None:
        return "no guarantee"
    if scheduler == "Volcano":
        return "Volcano gangs, never lent"
    return "never lent" if kept else "lent while idle"


def _longest(outlook: StackOutlook) -> dict[str, int]:
    """GPUs at the right end of each flavor's chart: its capacity, or the highest limit if that is much lower."""
    capacity = {supply.flavor: supply.capacity.maximum for supply in outlook.supply}
    reach = dict.fromkeys(capacity, 0)
    held = [(holding.flavor, holding.limit) for team in outlook.teams for holding in team.holdings]
    bounds = [
        (flavor, max(guaranteed, limit or 0))
        for group in outlook.groups
        for flavor, (_, guaranteed, limit) in group.shares.items()
        if group.parent is not None
    ]
    for flavor, gpus in (*held, *bounds):
        reach[flavor] = max(reach.get(flavor, 0), gpus)
    return {
        flavor: capacity.get(flavor, 0) if gpus <= capacity.get(flavor, 0) <= CUT * gpus or not gpus else gpus
        for flavor, gpus in reach.items()
    }
