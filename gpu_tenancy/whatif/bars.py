"""The picture of usage: all GPUs of each flavor (or CPUs and memory), and a bar for each team in the cohort tree."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.quantity import CPU, is_extended
from gpu_tenancy.base.texts import unit
from gpu_tenancy.model.plan.measures import Measure, supply_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.pages.bars import CUT, Scale, hues
from gpu_tenancy.simulation.scenarios import Held, amount_of
from gpu_tenancy.whatif.narrative import Played

SHADES: Final = 6
"""Shades of a flavor's colour, one for each team; a colour is a flavor on every page."""
OTHERS: Final = "sx"
"""The shade of teams beyond the number of shades."""
NAMED: Final = 1.2
"""Percent of the picture's width that one character of a name takes, generously."""

Length: TypeAlias = tuple[float, float]
"""Start and length, in percent of the picture's width."""


@dataclass(frozen=True, slots=True)
class Part:
    """GPUs of a flavor, or CPU or memory in base units, that one team uses.

    Attributes:
        kind: `own`, `borrowed`, `gangs` (Volcano's) or `free`.
        named: whether it is wide enough for the team's name.
    """

    who: str
    kind: str
    shade: str
    length: Length
    gpus: int
    named: bool
    says: str


@dataclass(frozen=True, slots=True)
class TeamBar:
    """A team's usage of a flavor, as lengths and as text."""

    team: str
    shade: str
    own: Length
    borrowed: Length
    unused: Length
    waits: Length
    tick: float
    numbers: str
    remark: str
    wants: str
    says: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A cohort with its teams and groups that have a share of the flavor."""

    name: str
    depth: int
    note: str
    groups: tuple["Branch", ...]
    teams: tuple[TeamBar, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """One flavor.

    Attributes:
        parts: of all its GPUs, from the left.
        numbers: `32 of 32 GPUs in use`.
        hue: the flavor's colour, from 0.
        noun: what is counted, such as `a100 GPUs`.
        cut: whether the scale of the teams' bars is shorter than all GPUs of the flavor.
    """

    flavor: str
    hue: int
    parts: tuple[Part, ...]
    numbers: str
    says: str
    tree: Branch
    cut: bool
    noun: str


def flavor_hues(played: Played) -> dict[str, int]:
    """The colour of each flavor, as in the report of the stack."""
    of_labels = hues({measure.label: measure.flavor for measure in played.counted})
    return {measure.flavor: of_labels[measure.label] for measure in played.counted}


def shades(played: Played) -> dict[str, str]:
    """A shade for each team; with more teams than shades, for those that use the most GPUs, or CPUs without GPUs."""
    gpus = [measure for measure in played.counted if is_extended(measure.resource)]
    ranking = gpus or [measure for measure in played.counted if measure.resource == CPU]
    peak: dict[str, int] = dict.fromkeys(played.tree.team_shares, 0)
    for moment in played.moments:
        now = Counter[str]()
        for job in moment.running:
            now[job.team] += sum(amount_of(job, measure) for measure in ranking)
        peak |= {team: max(peak[team], amount) for team, amount in now.items()}
    teams = [usage.team for usage in played.held if usage.flavor in played.labels]
    ranked = sorted(dict.fromkeys(teams), key=lambda team: -peak[team])[:SHADES]
    shown = [team for team in peak if team in ranked]
    return {team: f"s{shown.index(team)}" if team in shown else OTHERS for team in peak}


def pictures(played: Played) -> Iterator[Picture]:
    """One for usage flavor that is used or requested."""
    of_teams, of_flavors = shades(played), flavor_hues(played)
    for measure in played.counted:
        held = {usage.team: usage for usage in played.held if usage.flavor == measure.label}
        drawer = _Drawer(played.tree, measure, held, of_teams)
        used, capacity = sum(usage.runs for usage in held.values()), supply_of(played.tree, measure)
        gangs = drawer.gangs
        noun = unit(measure.resource)
        numbers = f"{drawer.text(used)} of {drawer.text(capacity)} {noun} in use" + (
            f" · {drawer.text(gangs)} more reserved for gangs (Volcano)" if gangs else ""
        )
        parts = tuple(drawer.parts(capacity))
        says = f"{measure.label}: {numbers}; " + ", ".join(part.says for part in parts)
        tree = drawer.branch(played.tree.root, 0)
        yield Picture(measure.label, of_flavors[measure.flavor], parts, numbers, says, tree, drawer.cut, drawer.noun)


class _Drawer:
    """Draws one flavor."""

    def __init__(self, tree: Tree, measure: Measure, held: dict[str, Held], shades: dict[str, str]) -> None:
        self._tree, self._measure, self._held, self._shades = tree, measure, held, shades
        self._flavor = flavor = measure.label
        self._most = supply_of(tree, measure)
        reach = max(
            (max(usage.limit, usage.guaranteed, usage.runs + usage.waits) for usage in held.values()), default=1
        )
        self.cut = self._most > CUT * reach
        self._scale = Scale({flavor: reach if self.cut else max(reach, self._most)})
        self._free = self._most - sum(usage.runs for usage in held.values())
        self._borrowed = sum(usage.borrowed for usage in held.values())

    @property
    def gangs(self) -> int:
        """What is reserved for Volcano's gangs."""
        return self._tree.flavors[self._measure.flavor].gangs.get(self._measure.resource, 0)

    @property
    def noun(self) -> str:
        """`a100 GPUs`, `general CPUs`."""
        label = self._measure.label
        return f"{label} GPUs" if is_extended(self._measure.resource) else label

    def text(self, amount: int) -> str:
        """An amount with its suffix."""
        return amount_text(self._measure.resource, amount)

    def parts(self, capacity: int) -> Iterator[Part]:
        """All GPUs of the flavor, by team."""
        shares = [
            share
            for held in self._held.values()
            for share in ((held.team, "own", held.own), (held.team, "borrowed", held.borrowed))
        ]
        shares += [("nobody", "free", self._free), ("Volcano gangs", "gangs", self.gangs)]
        whole, at = max(1, capacity + self.gangs), 0
        for who, kind, gpus in shares:
            if gpus > 0:
                texts = {
                    "own": f"{who}: {self.text(gpus)} guaranteed",
                    "borrowed": f"{who}: {self.text(gpus)} borrowed",
                    "free": f"{self.text(gpus)} free",
                }
                length = (round(100 * at / whole, 2), round(100 * gpus / whole, 2))
                named, says = len(who) * NAMED < length[1], texts.get(kind, f"{who}: {self.text(gpus)}")
                yield Part(who, kind, self._shades.get(who, OTHERS), length, gpus, named, says)
                at += gpus

    def branch(self, cohort: str, depth: int) -> Branch:
        """A cohort with its groups and teams."""
        groups, teams = self._tree.children(cohort)
        inside = [self.branch(name, depth + 1) for name in groups]
        return Branch(
            cohort,
            depth,
            self._note(cohort, depth),
            tuple(group for group in inside if group.groups or group.teams),
            tuple(self._bar(self._held[name]) for name in teams if name in self._held),
        )

    def _note(self, cohort: str, depth: int) -> str:
        """Guarantee and limit of a group; for the root, GPUs without a guarantee."""
        flavor, resource = self._measure.flavor, self._measure.resource
        if depth:
            limit = self._tree.cohort_limit(cohort, flavor, resource)
            return f"guaranteed {self.text(self._tree.guaranteed(cohort, flavor, resource))}" + (
                "" if limit is None else f", limit {self.text(limit)}"
            )
        nobody, noun = self._most - sum(usage.guaranteed for usage in self._held.values()), unit(resource)
        return (
            f"{self.text(nobody)} {noun} not guaranteed to any team"
            if nobody > 0
            else f"all {noun} guaranteed to teams"
        )

    def _length(self, begin: int, end: int) -> Length:
        left = self._scale.percent(self._flavor, begin)
        return left, round(max(0.0, self._scale.percent(self._flavor, end) - left), 2)

    def _bar(self, usage: Held) -> TeamBar:
        remark, wants = self._remark(usage), f"{self.text(usage.waits)} pending" if usage.waits else ""
        used = f"{usage.team} uses {self.text(usage.runs)} of at most {self.text(usage.limit)} {self.noun}"
        texts = (used, remark, wants)
        return TeamBar(
            team=usage.team,
            shade=self._shades[usage.team],
            own=self._length(0, usage.own),
            borrowed=self._length(usage.own, usage.runs),
            unused=self._length(usage.own, usage.guaranteed) if usage.unused else (0.0, 0.0),
            waits=self._length(usage.runs, usage.runs + usage.waits),
            tick=self._scale.percent(self._flavor, usage.limit),
            numbers=f"{self.text(usage.runs)} of {self.text(usage.limit)}",
            remark=remark,
            wants=wants,
            says="; ".join(part for part in texts if part),
        )

    def _remark(self, usage: Held) -> str:
        parts = [f"{self.text(usage.own)} guaranteed"] if usage.own else []
        parts += [f"{self.text(usage.borrowed)} borrowed"] if usage.borrowed else []
        remarks = [" + ".join(parts)] if parts else []
        if usage.unused:
            remarks.append(f"{self.text(usage.unused)} of the guarantee {self._whereabouts(usage)}")
        return ", ".join(remarks) or "none"

    def _whereabouts(self, usage: Held) -> str:
        """What happens to the unused part of a guarantee. Kueue records who borrows, not from whom."""
        if not self._tree.lends(usage.team):
            return "idle (not lent)"
        if not self._borrowed:
            return "idle"
        return "lent or idle" if self._free else "lent"


def legend(shades: dict[str, str], teams: Iterable[str]) -> list[tuple[str, str]]:
    """Shades by team; teams without a shade of their own are one entry."""
    named = [(team, shades[team]) for team in teams if shades[team] != OTHERS]
    return [*named, *([("other teams", OTHERS)] if any(shades[team] == OTHERS for team in teams) else [])]
