"""GPUs of each team, or CPU and memory: guarantee, amounts when everyone is busy and when alone, and costs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final

from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.quantity import MEMORY, equal_parts, format_duration
from gpu_tenancy.base.usd import NONE, Usd
from gpu_tenancy.kueue import PodSet, Quotas, Simulation, Workload
from gpu_tenancy.model.names import DEFAULT_GRACE
from gpu_tenancy.model.plan.costs import storage_cost
from gpu_tenancy.model.plan.queues import (
    cohort_weight,
    gang_guarantee,
    members,
    potential_available,
    preemption_times,
    reach,
    tenancy,
    unlimited_queue,
)
from gpu_tenancy.model.plan.shares import Measure, Tree, measures_of, supply_of
from gpu_tenancy.model.plan.storage import service_of
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import Storage
from gpu_tenancy.model.spec.pools import PriceEntry


@dataclass(frozen=True, slots=True)
class Span:
    """Minimum and maximum of an amount, such as GPUs or nodes."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Holding:
    """GPUs of one flavor for one team; CPU or memory if the flavor has no GPUs, in base units.

    `back`: how it reclaims its guarantee: `immediately` if Kueue's simulation admits the largest job at once, `from
    lower priorities`, `when borrowers finish`, `never lent`; empty without a guarantee.
    `preempting`: queues of other teams that can preempt its workloads while it borrows, by when.
    """

    flavor: str  # `Measure.label`
    resource: str
    scheduler: str  # `Kueue`, or `Volcano` for gangs
    guaranteed: int  # nominal quota
    limit: int  # GPUs that its queue admits at most
    busy: Span  # GPUs when all teams request up to their limits
    alone: int  # GPUs when no other team uses any
    lends: bool  # whether other teams may borrow its idle guarantee
    back: str
    guarantee: Guarantee | None = None  # largest job for which it reclaims, with CPU and memory; None for memory
    within: str = ""  # when workloads of its own queue preempt others there; empty if they never do
    preempting: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def bound(self) -> str:
        """The most CPU and memory of the largest job for which it reclaims; empty without a guarantee."""
        return self.guarantee.bound if self.guarantee else ""

    @property
    def preemptors(self) -> Iterator[tuple[tuple[str, ...], str, int]]:
        """Preempting queues, when they preempt, and how much: the own queue (no name) all, others the borrowed part."""
        if self.within and self.limit:
            yield (), self.within, self.limit
        if borrowed := self.limit - self.guaranteed:
            for when, queues in self.preempting.items():
                yield queues, f"{when}, while it borrows", borrowed


OWN_QUEUE: Final = "its own"  # shown for a team's queue as preemptor of the team's workloads
_HIGHER: Final = "for workloads of higher priority"
_WITHIN: Final = {
    "Never": "",
    "LowerPriority": _HIGHER,
    "LowerOrNewerEqualPriority": f"{_HIGHER}, or older ones of the same priority",
}
_BACK: Final = {"Any": "immediately", "LowerPriority": "from lower priorities", "Never": "when borrowers finish"}


class Outlook:
    """GPUs of one flavor for each queue when everyone is busy; CPU or memory if it has no GPUs."""

    def __init__(self, tree: Tree, measure: Measure) -> None:
        self._tree = tree
        self._measure = measure
        self._even = even_amounts(tree, measure) if tree.stack.fairness.even else None
        self._sums: dict[str, Span] = {}
        self._groups: dict[str, Span] = {}

    def busy(self, queue: str) -> Span:
        """GPUs of a queue when all queues request up to their limits.

        With even fairness, each queue has its guarantee and borrows by its weight, within the limits of its groups.
        With hierarchical fairness, the order of admission decides: the minimum assumes that all others use their
        limits, the maximum that they use their guarantees. A cohort's guarantee stays in the cohort, and its limit
        applies. Kueue admits whole jobs, so GPUs that are too few for a job stay free.
        """
        if self._even is not None:
            return Span(self._even[queue], self._even[queue])
        share = self._tree.share(queue, self._measure.flavor, self._measure.resource)
        own = Span(share.guaranteed, share.effective_limit)
        minimum = maximum = supply_of(self._tree, self._measure)
        way = [*reversed([*self._tree.above(self._tree.cohort_of(queue))]), None]
        for cohort, inside in pairwise(way):
            assert cohort is not None  # noqa: S101 - only the last is
            part = own if inside is None else self._group(inside)
            together = self._together(cohort)
            minimum = max(part.minimum, min(part.maximum, minimum - (together.maximum - part.maximum)))
            maximum = max(part.minimum, min(part.maximum, maximum - (together.minimum - part.minimum)))
        return Span(minimum, maximum)

    def _group(self, name: str) -> Span:
        """Guarantee of a cohort as far as its queues can use it, and the most that they can use together."""
        if name not in self._groups:
            flavor, resource = self._measure.flavor, self._measure.resource
            bound = self._tree.cohort_limit(name, flavor, resource)
            together = self._together(name).maximum
            maximum = together if bound is None else min(bound, together)
            self._groups[name] = Span(min(self._tree.guaranteed(name, flavor, resource), maximum), maximum)
        return self._groups[name]

    def _together(self, cohort: str) -> Span:
        if cohort not in self._sums:
            groups, teams = self._tree.children(cohort)
            shares = [self._tree.share(team, self._measure.flavor, self._measure.resource) for team in teams]
            below = [self._group(group) for group in groups]
            self._sums[cohort] = Span(
                sum(share.guaranteed for share in shares) + sum(group.minimum for group in below),
                sum(share.effective_limit for share in shares) + sum(group.maximum for group in below),
            )
        return self._sums[cohort]


def grace_of(stack: Stack) -> str:
    """When the pods of a preempted workload stop, by the guards' maximum."""
    if stack.guards_action != "deny":
        return f"after their own grace period, {DEFAULT_GRACE}s by default"
    grace = stack.guards.periods
    return f"within {format_duration(grace.jobs)}, servers within {format_duration(grace.servers)}"


def holdings(tree: Tree, team: str, outlooks: Mapping[Measure, Outlook]) -> Iterator[Holding]:
    """A team's GPUs by flavor: of its own queue, which other teams may share, and of its gangs."""
    preemption, lends = tree.stack.teams[team].preemption, tree.lends(team)
    for measure in measures_of(tree, team) if tree.queue_of(team) == team else ():
        flavor, resource = measure.flavor, measure.resource
        share = tree.share(team, flavor, resource)
        back = _BACK[preemption.reclaim_within_cohort] if lends else "never lent"
        if back == _BACK["Any"] and (team, flavor) not in reclaimed(tree):
            back = _BACK["Never"]
        yield Holding(
            flavor=measure.label,
            resource=resource,
            scheduler="Kueue",
            guaranteed=share.guaranteed,
            limit=share.effective_limit,
            busy=outlooks[measure].busy(team),
            alone=potential_available(tree, team, flavor, resource),
            lends=lends,
            back=back if share.guaranteed else "",
            guarantee=None if resource == MEMORY else tree.guarantee(team, flavor),
            within=_WITHIN[preemption.within_cluster_queue],
            preempting=preemption_times(tree, team, flavor, resource),
        )
    for name, gang in tree.stack.teams[team].gangs.items():
        if resource := tree.flavors[name].resource:
            guarantee = gang_guarantee(tree.flavors[name], gang)
            guaranteed, limit = gang.guaranteed, gang.effective_limit
            yield Holding(
                flavor=name,
                resource=resource,
                scheduler="Volcano",
                guaranteed=guaranteed,
                limit=limit,
                busy=Span(guaranteed, limit),
                alone=limit,
                lends=False,
                back="never lent",
                guarantee=Guarantee(name, resource, guarantee),
            )


_BORROWER: Final = "all that is lent"  # no name of a team has spaces
_PARTS: Final = 8  # workloads of the borrower in each flavor


@lru_cache(maxsize=4)
def reclaimed(tree: Tree) -> frozenset[tuple[str, str]]:
    """Queues and flavors whose largest covered job is admitted at once, while another queue borrows all that is lent.

    Kueue decides in a simulation, in which the borrower is a queue without quota or limit in the root cohort.
    It does not distinguish queues of the same cohort with the same policies, so the largest job of these is played.
    """
    spec = tenancy(tree)
    borrower = unlimited_queue(tree, _BORROWER)
    resources = sorted(borrower.groups[0].covered)
    whole = replace(spec, queues=(*spec.queues, borrower))
    quotas, simulation = Quotas(whole), Simulation(whole)
    for flavor in tree.flavors:
        lent = [equal_parts(quotas.potential_available(_BORROWER, (flavor, name)), _PARTS) for name in resources]
        for number, amounts in enumerate(zip(*lent, strict=True)):
            requests = dict(zip(resources, amounts, strict=True))
            workload = Workload(f"{flavor} {number}", _BORROWER, (PodSet(requests),))
            simulation.place(workload, [dict.fromkeys(resources, flavor)], since=-1)
    alike = defaultdict[tuple[str, str, str, str], list[str]](list)
    for queue in tree.queue_owners:
        preemption = tree.stack.teams[queue].preemption
        for flavor in tree.team_shares[queue]:
            guarantee = tree.guarantee(queue, flavor)
            if guarantee.units and all(guarantee.beside.values()):
                policies = (preemption.reclaim_within_cohort, preemption.within_cluster_queue)
                alike[flavor, tree.cohort_of(queue), *policies].append(queue)
    found: set[tuple[str, str]] = set()
    for (flavor, *_), queues in alike.items():
        queue = max(queues, key=lambda name: tree.guarantee(name, flavor).units)
        requests = {name: amount for name, amount in tree.guarantee(queue, flavor).amounts.items() if amount}
        name = f"{queue} {flavor}"
        simulation.submit(Workload(name, queue, (PodSet(requests, flavors=frozenset({flavor})),)))
        simulation.rest()
        if name in simulation.running:
            found |= {(each, flavor) for each in queues}
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Child:
    """A Cohort or a queue below a Cohort."""

    name: str
    guaranteed: int
    limit: int
    weight: Fraction


def even_amounts(tree: Tree, measure: Measure) -> dict[str, int]:
    """The amount of each queue when all borrow by weight up to their limits; rounded down.

    The children of a Cohort keep their guarantees and fill up by weight until a limit or the quota ends; a child Cohort
    divides its amount in the same way.
    """
    found: dict[str, Fraction] = {}
    _divide(tree, measure, tree.root, Fraction(supply_of(tree, measure)), found)
    return {queue: int(amount) for queue, amount in found.items()}


def _divide(tree: Tree, measure: Measure, cohort: str, amount: Fraction, found: dict[str, Fraction]) -> None:
    flavor, resource = measure.flavor, measure.resource
    below, children = members(tree, cohort), list[_Child]()
    for name in below.cohorts:
        limit, most = tree.cohort_limit(name, flavor, resource), reach(tree, name, flavor, resource)
        most = most if limit is None else min(limit, most)
        guaranteed = min(tree.guaranteed(name, flavor, resource), most)
        children.append(_Child(name, guaranteed, most, Fraction(str(cohort_weight(tree, name)))))
    for name in below.teams:
        share, weight = tree.share(name, flavor, resource), Fraction(str(tree.stack.teams[name].weight))
        children.append(_Child(name, share.guaranteed, share.effective_limit, weight))
    for place, (child, part) in enumerate(zip(children, _filled(children, amount), strict=True)):
        if place < len(below.cohorts):
            _divide(tree, measure, child.name, part, found)
        else:
            found[child.name] = part


def _filled(below: Sequence[_Child], amount: Fraction) -> list[Fraction]:
    """Each child's guarantee, and its part of the rest up to its limit."""
    have = [Fraction(child.guaranteed) for child in below]
    left: Fraction = amount - sum(have, Fraction())
    unfilled = {index for index, child in enumerate(below) if child.limit > child.guaranteed}
    while left > 0 and unfilled:
        weights = sum((below[index].weight for index in unfilled), Fraction())
        part: dict[int, Fraction] = {index: left * below[index].weight / weights for index in unfilled}
        full = {index for index in unfilled if have[index] + part[index] >= below[index].limit}
        for index in full or unfilled:
            have[index] += min(part[index], below[index].limit - have[index])
        left = amount - sum(have, Fraction())
        unfilled -= full
        if not full:
            break
    return have


HOURS: Final = 730
"""Hours per month, as in the clouds' calculators: https://aws.amazon.com/calculator/calculator-assumptions/."""


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars per month of guarantees, limits and claims (`storage`, part of neither).

    A GPU costs its part of its node. Without GPUs, a CPU costs its part of the node, and memory is included.
    """

    guaranteed: Usd = NONE
    limit: Usd = NONE
    storage: Usd = NONE

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.guaranteed + other.guaranteed, self.limit + other.limit, self.storage + other.storage)


NOTHING: Final = Cost()


def cost_of(holdings: Iterable[Holding], prices: Mapping[str, float | None]) -> Cost:
    """Monthly cost of guarantees and of limits; each GPU, or CPU without GPUs, includes its share of the node."""
    total = NOTHING
    for holding in holdings:
        price, units = prices.get(holding.flavor), (holding.guaranteed, holding.limit)
        total += Cost(*(Usd.of(unit * HOURS, price, holding.flavor) for unit in units))
    return total


def cost_of_storage(cluster: Cluster, prices: Mapping[str, PriceEntry], storage: Iterable[Storage]) -> Cost:
    """Monthly cost of a team's claims, at their size."""
    costs = (
        (storage_cost(cluster, prices, claim), claim.storage_class or service_of(cluster, claim)[0])
        for claim in storage
    )
    return sum((Cost(storage=Usd.of(1, cost, kind or "storage")) for cost, kind in costs), NOTHING)
