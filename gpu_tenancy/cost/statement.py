"""The GPU-hours of a month with their costs, from any source."""

import calendar
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.model.plan.costs import gpu_prices
from gpu_tenancy.model.plan.shares import Tree

HOUR: Final = 3600.0
_DECEMBER: Final = 12


@dataclass(frozen=True, slots=True)
class Period:
    """A month in UTC, or its past part; in seconds since 1970."""

    month: str
    start: float
    end: float

    @classmethod
    def of(cls, month: str | None, now: datetime) -> Self:
        """The month `2026-10`, by default the last one. Raises ConsoleError if it is not a month that has begun."""
        if month is None:
            year, number = (now.year - 1, _DECEMBER) if now.month == 1 else (now.year, now.month - 1)
            month = f"{year:04}-{number:02}"
        try:
            start = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
        except ValueError as error:
            raise ConsoleError(f"--month {month}: is not a month", "set one such as 2026-10") from error
        if start >= now:
            raise ConsoleError(f"--month {month}: has not begun", "set a month that has")
        days = calendar.monthrange(start.year, start.month)[1]
        end = min(start.timestamp() + days * 24 * HOUR, now.timestamp())
        return cls(f"{start:%Y-%m}", start.timestamp(), end)

    @property
    def hours(self) -> float:
        """Length in hours."""
        return (self.end - self.start) / HOUR


@dataclass(frozen=True, slots=True)
class Hours:
    """GPU-hours of a queue in a flavor; `idle` is unused guarantee, `borrowed` use beyond the guarantee."""

    guaranteed: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    borrowed: float = 0.0
    lent: float | None = 0.0  # idle guarantee that others borrowed; None if the use of others is unknown

    def __add__(self, other: "Hours") -> "Hours":
        *amounts, (mine, its) = zip(astuple(self), astuple(other), strict=True)
        lent = None if mine is None or its is None else mine + its
        return Hours(*(one + more for one, more in amounts), lent=lent)


@dataclass(frozen=True, slots=True)
class Line:
    """One flavor of a team's queue and of the teams that use it; `center` is empty for unknown namespaces."""

    team: str
    center: str
    flavor: str
    hours: Hours
    price: float | None  # US dollars per GPU-hour; None if unknown
    budget: float | None  # US dollars for all GPUs of the team in 30 days


@dataclass(frozen=True, slots=True)
class Loss:
    """GPU-hours of a team that were lost; None if unknown."""

    team: str
    unused: float | None = None  # held by pods whose GPUs did less than 5 %
    preempted: float | None = None  # of workloads up to a preemption, an upper bound
    failed: float | None = None  # of workloads that failed, and up to evictions for other reasons


@dataclass(frozen=True, slots=True)
class Freed:
    """GPU-hours that `idle` of a team would have freed, at a threshold."""

    team: str
    below: float  # percent
    after: float  # seconds
    gpu_hours: float  # after stops, until a job was busy again
    price: float | None
    stops: int
    again: tuple[str, ...]  # jobs that were busy again, and would have been stopped wrongly


@dataclass(frozen=True, slots=True)
class JobUse:
    """A job's GPU-hours; `queue` is the team with the queue, `user` the label `gpu-tenancy.dev/user` or empty."""

    queue: str
    team: str
    job: str
    user: str
    flavor: str
    gpu_hours: float
    price: float | None


@dataclass(frozen=True, slots=True)
class Supply:
    """GPU-hours of a flavor, or of all; `reserved` ones are for Volcano's gangs, which Kueue does not count."""

    flavor: str
    existed: float  # of its nodes; from a file of Workloads, of its pools at their maximum
    reserved: float
    guaranteed: float
    used: float

    @property
    def unused(self) -> float:
        """GPU-hours that no workload of a queue used."""
        return self.existed - self.reserved - self.used


@dataclass(frozen=True, slots=True)
class Statement:
    """A month of a stack, of which the source has `covered` hours; `notes` are remarks for readers."""

    stack: str
    source: str
    period: Period
    covered: float
    at_most: bool  # whether the supply is an upper bound, not a measurement
    lines: tuple[Line, ...]
    losses: tuple[Loss, ...]
    jobs: tuple[JobUse, ...]
    supply: tuple[Supply, ...]
    notes: tuple[str, ...] = ()
    freed: tuple[Freed, ...] = ()  # empty without metrics of the use of GPUs


@dataclass(frozen=True, slots=True)
class Terms:
    """Prices, teams and cost centers of a stack."""

    tree: Tree
    prices: dict[str, float | None]

    @classmethod
    def of(cls, tree: Tree) -> Self:
        """The terms with the prices of the flavors with GPUs. Raises ConsoleError if the stack has none."""
        found = gpu_prices(tree)
        if not found:
            raise ConsoleError("the stack has no GPUs, and only GPU-hours are counted", "specify a stack with GPUs")
        return cls(tree, found)

    def queue_of(self, namespace: str) -> str:
        """The team whose queue a namespace uses; the namespace itself if the stack does not have it."""
        return self.tree.queue_of(namespace) if namespace in self.tree.stack.teams else namespace

    def flavor_of(self, team: str) -> tuple[str, float | None]:
        """The only flavor with GPUs that a team uses, and its price; empty and None for several, or none."""
        shares = self.tree.shares_of(team) if team in self.tree.stack.teams else ()
        flavors = [name for name in shares if name in self.prices]
        return (flavors[0], self.prices[flavors[0]]) if len(flavors) == 1 else ("", None)

    def line(self, team: str, flavor: str, hours: Hours) -> Line:
        """A line with cost center, price and budget."""
        spec = self.tree.stack.teams.get(team)
        center, budget = (spec.cost_center, spec.monthly_budget) if spec else ("", None)
        return Line(team, center, flavor, hours, self.prices.get(flavor), budget)

    def ordered(self, lines: Iterable[Line]) -> tuple[Line, ...]:
        """Lines with GPU-hours in the order of the stack; other namespaces last."""
        teams = {team: place for place, team in enumerate(self.tree.stack.teams)}
        flavors = {flavor: place for place, flavor in enumerate(self.tree.flavors)}
        shown = (line for line in lines if line.hours.guaranteed or line.hours.used)
        last = len(teams)
        return tuple(
            sorted(shown, key=lambda line: (teams.get(line.team, last), line.team, flavors.get(line.flavor, last)))
        )


def of_only(statement: Statement, team: str) -> Statement:
    """The part of a statement about one team."""
    return replace(
        statement,
        lines=tuple(line for line in statement.lines if line.team == team),
        losses=tuple(loss for loss in statement.losses if loss.team == team),
        jobs=tuple(job for job in statement.jobs if job.queue == team),
        freed=tuple(one for one in statement.freed if one.team == team),
        supply=(),
    )
