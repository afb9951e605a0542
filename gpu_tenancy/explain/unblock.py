"""Simulates the admission of a new workload, and changes that would admit a pending workload.

Seeks the smallest change: the end of one running workload of the cohort tree, the nearest first; else several ends in
sequence, lowest priority and newest first; else the removal of workloads ahead of it. All pending workloads compete for
the freed quota, as in Kueue: an end whose quota another workload gets does not count.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy import kueue
from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.quantity import add
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.estimate import Estimate, Expected, estimate, estimates
from gpu_tenancy.cluster.pods import named
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.snapshot import LIVELOCK, NotSimulatedError, Snapshot, Suits, settled
from gpu_tenancy.cluster.workloads import PodSet, Workload, ahead
from gpu_tenancy.kueue import Admitted, FlavorResource, Settled, Unmodelled

TRIES: Final = 64  # maximum of ends that are tested alone, and in sequence
WORK: Final = 24_000  # maximum of simulated workloads in all tests of one kind; limits the ends in a large tree
_LEAST: Final = 8  # ends that are tested in the largest tree
_SUBMITTED: Final = "this workload"
_ENOUGH: Final = 5  # sufficient ends after which the search stops


@dataclass(frozen=True, slots=True)
class Unblock:
    """The simulated outcome for a pending or submitted workload. Names are `namespace/name`.

    For pending workloads only: fields from `ends` to `running`.
    """

    admitted: bool  # by the next scheduling cycle
    preempted: tuple[str, ...] = ()  # by its admission
    reason: str = ""  # why it is pending; empty if it is admitted
    ends: tuple[str, ...] = ()  # the end of any one of these workloads is enough
    together: tuple[str, ...] = ()  # ends of all of these, in this order, are enough; only without `ends`
    ahead: tuple[str, ...] = ()  # the removal of these pending workloads is enough; only without `ends` and `together`
    admitted_instead: tuple[str, ...] = ()  # get the quota of other tested ends
    tested: int = 0  # number of ends that were tested alone
    tested_in_sequence: int = 0
    running: int = 0  # readable running workloads in its cohort tree
    unseen_pending: int = 0  # workloads of the tree that the user may not read
    not_simulated: tuple[Unmodelled, ...] = ()
    queue_head: str = ""  # of its StrictFIFO queue, if it waits for the head
    estimate: Estimate | None = field(default=None, compare=False)  # None if it is admitted

    @property
    def of_submitted(self) -> str:
        """Outcome for a workload that is submitted now."""
        head = "simulation: if submitted now, the workload would be"
        if not self.admitted:
            return f"{head} pending: {self.reason}"
        preempts = f"and preempt {named(self.preempted)}" if self.preempted else "without preemption"
        return f"{head} admitted {preempts}"

    @property
    def lines(self) -> Iterator[str]:
        """Changes that would admit the workload."""
        if self.admitted:
            preempts = f"preempts {named(self.preempted)}" if self.preempted else "no preemption"
            yield f"simulation: admitted in the next scheduling cycle, {preempts}"
        else:
            yield from self._ways()
        if self.unseen_pending:
            pending = plural(self.unseen_pending, "workload")
            yield f"{pending} of other teams pending in the same cohorts can get freed quota first"
        if self.not_simulated:
            yield not_simulated_text(self.not_simulated)

    def _ways(self) -> Iterator[str]:
        tested = f"tested {self.tested} of {plural(self.running, 'running workload')}"
        if self.ends:
            which = self.ends[0] if len(self.ends) == 1 else f"any one of these: {named(self.ends)}"
            yield f"simulation: admitted after the end of {which} ({tested})"
        elif self.running:
            yield f"simulation: ending one workload would not admit it ({tested})"
        if self.admitted_instead:
            freed = "quota freed by the others" if self.ends else "the freed quota"
            yield f"{freed} would go to: {named(self.admitted_instead)}"
        if self.together:
            yield f"simulation: admitted after these {len(self.together)} end: {named(sorted(self.together))}"
        elif self.tested_in_sequence > 1:
            ending = f"ending {self.tested_in_sequence} workloads in sequence, lowest priority first"
            yield f"simulation: {ending}, would not admit it"
        if self.ahead:
            yield f"simulation: admitted after the removal of the workloads ahead of it: {named(self.ahead)}"

    @property
    def fix(self) -> str:
        """The event to wait for, as a fix."""
        if len(self.ends) == 1:
            return f"wait until {self.ends[0]} {'ends' if '/' in self.ends[0] else 'end'}"  # others in a queue
        if self.ends:
            return f"wait until one of these ends: {named(self.ends)}"
        if self.together:
            return f"wait until these {len(self.together)} end: {named(sorted(self.together))}"
        if self.ahead:
            return f"wait, or remove the workloads ahead of it: {named(self.ahead)}"
        if self.admitted_instead:
            return f"wait for the workloads that are admitted first, such as {named(self.admitted_instead)}"
        return "wait until several workloads end: no single one would admit it"


def not_simulated_text(parts: Sequence[str]) -> str:
    """Message about features of the queue that the simulation does not cover."""
    return f"used by this queue but not simulated: {'; '.join(parts)}"


def find_unblock(queues: Queues, workload: Workload) -> Unblock:
    """Simulates the cohort tree of a pending workload; raises NotSimulatedError if that is not possible."""
    target = queues.queue_of(workload)
    snapshot, simulation = settled(queues, target)
    start = simulation.settled()
    pending = {each.name: each for each in start.pending}
    if workload.label not in pending:
        evicted = dict.fromkeys(one.name for one in start.evicted if one.by == workload.label)
        running = {one.name for one in start.admitted}
        preempted = tuple(name for name in evicted if name not in running)  # Some are admitted again elsewhere.
        return Unblock(admitted=True, preempted=preempted, not_simulated=snapshot.left_out)
    before = [other for other in ahead(workload, queues.members.get(target, ())) if other.label in pending]
    head = before[0] if before and queues.cluster_queues[target].strict else None
    blocked = head or workload
    bound = max(_LEAST, min(TRIES, WORK // len(snapshot.participants)))
    fork = simulation.fork()
    search = _Search(fork, workload.label, start, bound)
    ranking = Ranking(queues, snapshot, blocked, start)
    ends, instead, tested = search.alone(ranking.alone())
    together, in_sequence = (), 0
    if not ends:
        together, in_sequence = search.in_sequence(ranking.in_sequence())
        if not together and snapshot.unseen:  # Own workloads alone are not enough.
            together, _ = search.in_sequence([*ranking.in_sequence(), *sorted(snapshot.unseen)])
    if len(together) == 1:  # It ranked too low to be tested alone.
        ends, together = together, ()
    first = () if ends or together else search.in_sequence([other.label for other in before])[0]
    return Unblock(
        admitted=False,
        reason=pending[workload.label].why,
        ends=ends,
        together=together,
        ahead=first,
        admitted_instead=instead,
        tested=tested,
        tested_in_sequence=in_sequence,
        running=len(start.admitted) - len(snapshot.unseen),
        unseen_pending=snapshot.unseen_pending,
        not_simulated=snapshot.left_out,
        queue_head=head.label if head else "",
        estimate=estimate(fork, workload.label, expected_of(queues), ends or together),
    )


def expected_of(queues: Queues) -> Expected:
    """Durations of the workloads that the user may read."""
    state = queues.state
    jobs = {text_at(job, "metadata", "uid"): job for job in state.of("Job")}
    return Expected({workload.label: workload for workload in queues.workloads}, jobs, state.history)


class _Search:
    """Simulates ends of workloads, each from the same state."""

    def __init__(self, fork: Callable[[], kueue.Simulation], name: str, start: kueue.Settled, bound: int) -> None:
        self._fork = fork
        self._name = name
        self._running = {workload.name for workload in start.admitted}
        self._bound = bound

    def alone(self, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """Sufficient single ends, workloads that get the quota of other ends, and the number of tested ends."""
        enough: list[str] = []
        instead: Counter[str] = Counter()
        tested = 0
        for name in names[: self._bound]:
            tested += 1
            running = _after(self._fork(), name) or frozenset()
            if self._name in running:
                enough.append(name)
                if len(enough) == _ENOUGH:
                    break
            else:
                instead.update(running - self._running)
        return tuple(enough), tuple(name for name, _ in instead.most_common()), tested

    def in_sequence(self, names: Sequence[str]) -> tuple[tuple[str, ...], int]:
        """A minimal sufficient sequence of ends, and the number of tested ends."""
        sequence = self._prefix(names[: self._bound])
        if not sequence:
            return (), min(self._bound, len(names))
        tested = len(sequence)
        left = 2 * self._bound  # Ends that may still be simulated to find those that are not needed.
        for name in sequence[:-1]:
            fewer = [other for other in sequence if other != name]
            if len(fewer) > left:
                break
            left -= len(fewer)
            if self._prefix(fewer) == fewer:
                sequence = fewer
        return tuple(sequence), tested

    def _prefix(self, names: Sequence[str]) -> list[str]:
        """The shortest sufficient prefix, or empty. A livelock ends the search, since later states are unknown."""
        simulation = self._fork()
        for count, name in enumerate(names, 1):
            running = _after(simulation, name)
            if running is None:
                return []
            if self._name in running:
                return list(names[:count])
        return []


def _after(simulation: kueue.Simulation, name: str) -> frozenset[str] | None:
    """Workloads that run after one has ended; None in a livelock."""
    simulation.finish(name)
    if simulation.rest():
        return None
    return frozenset(workload.name for workload in simulation.settled().admitted)


def forecast(queues: Queues, target: str, sets: Sequence[PodSet], priority: int) -> Unblock:
    """Submits a workload to a ClusterQueue, behind pending ones; raises NotSimulatedError if that is not possible."""
    snapshot, simulation = settled(queues, target)
    before = {workload.name for workload in simulation.settled().admitted}
    simulation.submit(Suits(queues).workload(_SUBMITTED, target, sets, priority))
    if simulation.rest():
        raise NotSimulatedError(LIVELOCK)
    after = simulation.settled()
    admitted = {workload.name for workload in after.admitted}
    why = next((workload.why for workload in after.pending if workload.name == _SUBMITTED), "")
    preempted = tuple(sorted(before - admitted))
    wait = None
    if _SUBMITTED not in admitted:
        wait = estimates(simulation.fork(), [_SUBMITTED], expected_of(queues), _SUBMITTED)[_SUBMITTED]
    return Unblock(_SUBMITTED in admitted, preempted, why, not_simulated=snapshot.left_out, estimate=wait)


class Ranking:
    """Orders running workloads for the tests of a pending one."""

    def __init__(self, queues: Queues, snapshot: Snapshot, lacks: Workload, start: Settled) -> None:
        self._cohorts = {name: queue.spec.cohort for name, queue in queues.cluster_queues.items()}
        self._target = queues.queue_of(lacks)
        participants = {participant.workload.name: participant for participant in snapshot.participants}
        self._priorities = {name: participant.workload.priority for name, participant in participants.items()}
        self._lacking = _lacking(queues, participants[lacks.label].workload)
        self._wanted = {line for each in self._lacking for line in each}
        visible = [each for each in start.admitted if each.name not in snapshot.unseen]
        self._holds = {each.name: _held(each, participants[each.name].workload) for each in visible}
        self._lowest_first = sorted(
            visible, key=lambda each: (self._priorities[each.name], -participants[each.name].since)
        )

    def alone(self) -> list[str]:
        """Running workloads in the order in which their ends are tested alone.

        First workloads that hold enough of the missing quota, then some of it, then the rest; in each group the nearest
        first (same queue, same cohort, same tree), and one of several equal workloads before the others.
        """
        seen: Counter[Hashable] = Counter()
        order: dict[str, tuple[bool, bool, int, int]] = {}
        for each in self._lowest_first:
            held = self._holds[each.name]
            kind = each.queue, self._priorities[each.name], tuple(sorted(held.items()))
            enough = any(all(held.get(line, 0) >= much for line, much in lack.items()) for lack in self._lacking)
            order[each.name] = not enough, not self._touches(held), seen[kind], self._distance(each)
            seen[kind] += 1
        return sorted(order, key=lambda name: order[name])

    def in_sequence(self) -> list[str]:
        """Running workloads by lowest priority, then newest; only holders of missing quota, if there are any."""
        order = [each.name for each in self._lowest_first]
        return [name for name in order if self._touches(self._holds[name])] or order

    def _touches(self, held: dict[FlavorResource, int]) -> bool:
        return not self._wanted.isdisjoint(held)

    def _distance(self, each: Admitted) -> int:
        if each.queue == self._target:
            return 0
        cohort = self._cohorts[self._target]
        return 1 if cohort and self._cohorts[each.queue] == cohort else 2


def _lacking(queues: Queues, workload: kueue.Workload) -> list[dict[FlavorResource, int]]:
    """Missing amounts for each flavor that lacks something."""
    asked = add(*({name: much * each.count for name, much in each.requests.items()} for each in workload.pod_sets))
    suits = frozenset[str]().union(*(each.flavors or () for each in workload.pod_sets))
    short: dict[str, dict[FlavorResource, int]] = {}
    for line in queues.cluster_queues[workload.queue].spec.quotas:
        flavor, resource = line
        more = asked.get(resource, 0) - queues.quotas.available(workload.queue, line)
        if flavor in suits and asked.get(resource) and more > 0:
            short.setdefault(flavor, {})[line] = more
    return list(short.values())


def _held(each: Admitted, workload: kueue.Workload) -> dict[FlavorResource, int]:
    held: Counter[FlavorResource] = Counter()
    for pods, flavors in zip(workload.pod_sets, each.flavors, strict=True):
        for resource, flavor in flavors.items():
            held[flavor, resource] += pods.requests.get(resource, 1 if resource == "pods" else 0) * pods.count
    return dict(held)
