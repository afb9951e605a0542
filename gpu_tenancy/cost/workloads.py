"""The GPU-hours of a month from the Workloads of a cluster without Prometheus."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gpu_tenancy.cost.statement import HOUR, Hours, JobUse, Line, Loss, Period, Statement, Supply, Terms
from gpu_tenancy.simulation.records import JobRecord, Run, Trace

NO_LENT: Final = "lent is unknown: the file has the Workloads of one namespace only; collect those of all with -A"
AS_NOW: Final = "guaranteed is what the stack guarantees now, for the whole time; Workloads do not say what it was"
SPREAD: Final = (
    "of workloads that were evicted, Kueue keeps the seconds until then, not when: they are spread evenly between their"
    " submission and their last admission"
)
_NOTHING: Final = 1e-9  # GPUs that rounding leaves
UNUSED: Final = "how busy GPUs were is not in Workloads: --prometheus has it"


@dataclass(frozen=True, slots=True)
class Promise:
    """A queue's guaranteed GPUs of a flavor, and whether others may borrow idle ones."""

    guaranteed: float
    lends: bool = True


@dataclass(slots=True)
class _Account:
    """A queue up to a moment, in GPU-seconds; `rates` is the ledger's sum at that moment."""

    promise: Promise
    since: float
    level: float = 0.0
    used: float = 0.0
    borrowed: float = 0.0
    lent: float = 0.0
    rates: float = 0.0

    @property
    def over(self) -> float:
        return max(0.0, self.level - self.promise.guaranteed)

    @property
    def lendable(self) -> float:
        return max(0.0, self.promise.guaranteed - self.level) if self.promise.lends else 0.0

    def settle(self, now: float, rates: float) -> None:
        span = now - self.since
        self.used += self.level * span
        self.borrowed += self.over * span
        self.lent += self.lendable * (rates - self.rates)
        self.since, self.rates = now, rates


class Ledger:
    """The queues that share a flavor, from `start` in seconds; a queue without a promise is guaranteed nothing.

    Kueue records borrowers, not lenders. Here, quota that nobody is guaranteed is borrowed first; the rest comes from
    the queues with idle guarantees, in proportion to them. A change takes the same time with any number of queues.
    """

    def __init__(self, promises: Mapping[str, Promise], unassigned: float, start: float) -> None:
        self._accounts = {queue: _Account(promise, start) for queue, promise in promises.items()}
        self._unassigned, self._start, self._now = unassigned, start, start
        self._over = 0.0
        self._lendable = sum(account.lendable for account in self._accounts.values())
        self._rates = 0.0

    def change(self, now: float, queue: str, by: float) -> None:
        """A queue uses more or fewer GPUs from a moment on, not before the last change."""
        self._advance(now)
        account = self._accounts.setdefault(queue, _Account(Promise(0.0), now, rates=self._rates))
        account.settle(now, self._rates)
        over, lendable = account.over, account.lendable
        account.level += by
        self._over += account.over - over
        self._lendable += account.lendable - lendable

    def closed(self, end: float) -> dict[str, Hours]:
        """The GPU-hours of each queue from the start to `end`, not before the last change."""
        self._advance(end)
        found: dict[str, Hours] = {}
        for queue, account in self._accounts.items():
            account.settle(end, self._rates)
            guaranteed = account.promise.guaranteed * (end - self._start)
            idle = max(0.0, guaranteed - (account.used - account.borrowed))
            amounts = (guaranteed, account.used, idle, account.borrowed, account.lent)
            found[queue] = Hours(*(amount / HOUR for amount in amounts))
        return found

    def _advance(self, now: float) -> None:
        lent = max(0.0, self._over - self._unassigned)
        if lent > _NOTHING and self._lendable > _NOTHING:
            self._rates += min(1.0, lent / self._lendable) * (now - self._now)
        self._now = now


@dataclass(slots=True)
class _Reading:
    """Totals of the records; `evicted`: a workload was evicted and admitted again.

    `changes` has by flavor the moments at which a queue uses more or fewer GPUs; `jobs` has GPU-hours.
    """

    terms: Terms
    period: Period
    changes: dict[str, list[tuple[float, str, float]]] = field(default_factory=lambda: defaultdict(list))
    jobs: dict[tuple[str, str, str, str], float] = field(default_factory=lambda: defaultdict(float))
    preempted: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    failed: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    spaces: set[str] = field(default_factory=set[str])
    strangers: Counter[str] = field(default_factory=Counter[str])
    evicted: bool = False

    def read(self, record: JobRecord, run: Run) -> None:
        namespace = record.team or ""
        self.spaces.add(namespace)
        team = self.terms.queue_of(namespace)
        for part in record.parts:
            gpus = part.gpus * part.pods
            if not gpus:
                continue
            if part.flavor not in self.terms.prices:
                self.strangers[part.flavor or "without a flavor"] += 1
                continue
            ran = self._hold(team, part.flavor, run.start, run.start + record.duration, gpus)
            before = 0.0
            if run.evicted and run.start > record.at:
                share = min(1.0, run.evicted / (run.start - record.at))
                before = self._hold(team, part.flavor, record.at, run.start, gpus * share)
                self.evicted = self.evicted or before > 0
            self.jobs[namespace, run.job, run.user, part.flavor] += ran + before
            self.preempted[team] += before * run.preempted
            self.failed[team] += before * (1 - run.preempted) + (ran if run.failed else 0.0)

    def _hold(self, team: str, flavor: str, start: float, end: float, gpus: float) -> float:
        """Returns the GPU-hours in the period."""
        start, end = max(start, self.period.start), min(end, self.period.end)
        if end <= start:
            return 0.0
        self.changes[flavor] += [(start, team, gpus), (end, team, -gpus)]
        return gpus * (end - start) / HOUR

    def lines(self) -> Iterator[Line]:
        tree = self.terms.tree
        lent_known = len(self.spaces) > 1 or len(tree.queue_owners) == 1
        for flavor in self.terms.prices:
            resource = tree.flavors[flavor].resource or ""
            promises = {
                team: Promise(tree.share(team, flavor, resource).guaranteed, tree.lends(team))
                for team in tree.queue_owners
            }
            unassigned = tree.supply(flavor).get(resource, 0) - sum(promise.guaranteed for promise in promises.values())
            ledger = Ledger(promises, unassigned, self.period.start)
            for moment, team, by in sorted(self.changes.get(flavor, ()), key=lambda change: change[0]):
                ledger.change(moment, team, by)
            for team, hours in ledger.closed(self.period.end).items():
                yield self.terms.line(team, flavor, hours if lent_known else replace(hours, lent=None))

    def notes(self) -> Iterator[str]:
        yield AS_NOW
        if len(self.spaces) == 1 and len(self.terms.tree.queue_owners) > 1:
            yield NO_LENT
        if self.evicted:
            yield SPREAD
        for flavor, count in self.strangers.items():
            yield f"{count} parts of workloads are left out: flavor {flavor} with GPUs is not in the stack"
        yield UNUSED


def of_workloads(stack: str, terms: Terms, trace: Trace, period: Period) -> Statement:
    """The statement of a month; running Workloads count until its end. Raises ConsoleError for an unreadable file."""
    reading = _Reading(terms, period)
    trace.until = period.end
    others = 0
    for record in trace:
        if record.run is None:
            others += 1
        else:
            reading.read(record, record.run)
    lines = terms.ordered(reading.lines())
    left_out = [f"{others} entries are left out: they are no Workloads"] if others else []
    pending = sum(trace.left_out.values())
    left_out += [f"{pending} Workloads are left out: they are not admitted"] if pending else []
    teams = dict.fromkeys(line.team for line in lines)
    return Statement(
        stack,
        trace.file.name,
        period,
        covered=period.hours,
        at_most=True,
        lines=lines,
        losses=tuple(Loss(team, None, reading.preempted[team], reading.failed[team]) for team in teams),
        jobs=tuple(
            JobUse(terms.queue_of(key[0]), *key, hours, terms.prices.get(key[-1]))
            for key, hours in sorted(reading.jobs.items(), key=lambda job: -job[1])
            if hours
        ),
        supply=tuple(supply_of_stack(terms, lines, period.hours)),
        notes=(*reading.notes(), *left_out),
    )


def supply_of_stack(terms: Terms, lines: Iterable[Line], hours: float) -> Iterator[Supply]:
    """Maximum GPU-hours of each flavor's pools, with guaranteed and used ones."""
    sums: dict[str, Hours] = {}
    for line in lines:
        sums[line.flavor] = sums.get(line.flavor, Hours()) + line.hours
    for name in terms.prices:
        flavor = terms.tree.flavors[name]
        existed, gangs = (amounts.get(flavor.resource or "", 0) for amounts in (flavor.capacity, flavor.gangs))
        found = sums.get(name, Hours())
        yield Supply(name, existed * hours, gangs * hours, found.guaranteed, found.used)
