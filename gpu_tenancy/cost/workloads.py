"""The GPU-hours of a month from the Workloads of a cluster, where no Prometheus has them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from gpu_tenancy.cost.ledger import HOUR, Hours, Ledger, Promise
from gpu_tenancy.cost.statement import JobUse, Line, Loss, Period, Statement, Supply, Terms
from gpu_tenancy.simulation.replay import JobRecord, Run, Trace

NO_LENT: Final = "lent is unknown: the file has the Workloads of one namespace only; collect those of all with -A"
AS_NOW: Final = "guaranteed is what the stack guarantees now, for the whole time; Workloads do not say what it was"
SPREAD: Final = (
    "of workloads that were evicted, Kueue keeps the seconds until then, not when: they are spread evenly between their"
    " submission and their last admission"
)
UNUSED: Final = "how busy GPUs were is not in Workloads: --prometheus has it"


@dataclass(slots=True)
class _Reading:
    """What has been read of the records.

    Attributes:
        changes: by flavor, moments at which a queue uses more or fewer GPUs.
        jobs: GPU-hours by team, job, user and flavor.
        evicted: whether a workload was evicted and admitted again.
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
        """Adds a workload."""
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
        """GPUs from a start to an end; returns their GPU-hours in the period."""
        start, end = self.period.part(start, end)
        if end <= start:
            return 0.0
        self.changes[flavor] += [(start, team, gpus), (end, team, -gpus)]
        return gpus * (end - start) / HOUR

    def lines(self) -> Iterator[Line]:
        """The GPU-hours of each queue and flavor."""
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
        """What a reader should know."""
        yield AS_NOW
        if len(self.spaces) == 1 and len(self.terms.tree.queue_owners) > 1:
            yield NO_LENT
        if self.evicted:
            yield SPREAD
        for flavor, count in self.strangers.items():
            yield f"{count} parts of workloads are left out: flavor {flavor} with GPUs is not in the stack"
        yield UNUSED


def of_workloads(stack: str, terms: Terms, trace: Trace, period: Period) -> Statement:
    """The statement of a month.

    Args:
        stack: name of the stack.
        terms: of the stack.
        trace: the Workloads; those that still run count until the end of the period.
        period: the month.

    Raises:
        TraceError: the file cannot be read.
    """
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
    """What the pools of each flavor could have at most, beside what was guaranteed and used."""
    sums: dict[str, Hours] = {}
    for line in lines:
        sums[line.flavor] = sums.get(line.flavor, Hours()) + line.hours
    for name in terms.prices:
        flavor = terms.tree.flavors[name]
        existed, gangs = (amounts.get(flavor.resource or "", 0) for amounts in (flavor.capacity, flavor.gangs))
        found = sums.get(name, Hours())
        yield Supply(name, existed * hours, gangs * hours, found.guaranteed, found.used)
