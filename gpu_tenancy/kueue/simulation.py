"""Simulates a tenancy: workloads are submitted and finish; after each change the scheduler runs until nothing changes.

Reasons of pending workloads are Kueue's texts where it has some: pkg/scheduler and pkg/scheduler/flavorassigner of
kubernetes-sigs/kueue at v0.19.2.
"""

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gpu_tenancy.kueue.api import Step, Tenancy, Workload, validate
from gpu_tenancy.kueue.pending_queue import PendingQueue
from gpu_tenancy.kueue.runner import Runner
from gpu_tenancy.kueue.workload_info import Evicted, FlavorReason, Outcome, Queue, Verdict, WorkloadInfo, cohort_trees

FormatAmount: TypeAlias = Callable[[str, int], str]


def plain_amount(resource: str, amount: int) -> str:  # noqa: ARG001 - the signature of `FormatAmount`
    """An amount in the unit of the tenancy."""
    return str(amount)


@dataclass(frozen=True, slots=True)
class Admitted:
    """An admitted workload; `flavors` has the flavor of each resource for each pod set, in order."""

    name: str
    queue: str
    flavors: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """A pending workload with the reason as text for users."""

    name: str
    queue: str
    why: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The state after the scheduler has run until nothing changes; workloads are in the order of creation.

    `livelock` has the ClusterQueues of each tree whose workloads preempt one another forever, as in the real Kueue;
    this is one of several states. A later event of the same step may have ended the livelock.
    """

    admitted: tuple[Admitted, ...] = ()
    pending: tuple[Pending, ...] = ()
    evicted: tuple[Evicted, ...] = ()  # since the previous state, in order; some may be admitted again
    livelock: tuple[tuple[str, ...], ...] = ()


class Simulation:
    """A tenancy with its workloads; `amount` formats amounts in the reasons of pending workloads.

    Raises ValueError: the tenancy is invalid; see `gpu_tenancy.kueue.api.parents` and `validate`.
    """

    def __init__(self, tenancy: Tenancy, amount: FormatAmount = plain_amount) -> None:
        self._format_amount = amount
        validate(tenancy)
        self._runners = [Runner(tree) for tree in cohort_trees(tenancy)]
        self._queues: dict[str, tuple[Runner, Queue]] = {
            name: (runner, queue) for runner in self._runners for name, queue in runner.tree.queues.items()
        }
        self._workloads: dict[str, WorkloadInfo] = {}
        # By name of the workload: how many of its evictions `settled` has returned.
        self._reported_evictions: dict[str, int] = {}
        self._fixed: set[str] = set()
        self._started = False
        self._created = 0

    def submit(self, workload: Workload) -> None:
        """Adds a pending workload. Raises ValueError for a duplicate name, or without such a ClusterQueue."""
        runner, info = self._create(workload)
        runner.submit(info)

    def _create(self, workload: Workload) -> tuple[Runner, WorkloadInfo]:
        if workload.name in self._workloads:
            raise ValueError(f"duplicate workload {workload.name!r}")
        if workload.queue not in self._queues:
            raise ValueError(f"workload {workload.name!r}: ClusterQueue {workload.queue!r} does not exist")
        runner, queue = self._queues[workload.queue]
        info = WorkloadInfo.new(workload, queue, self._created)
        self._created += 1
        self._workloads[workload.name] = info
        return runner, info

    def place(
        self,
        workload: Workload,
        flavors: Sequence[Mapping[str, str]],
        since: int,
        *,
        leaving: bool = False,
        fixed: bool = False,
    ) -> None:
        """Adds a workload that is admitted already, even if there is no quota for it now.

        To start from a cluster's state, call `submit` and `place` in the order of creation before the first `rest`.

        Args:
            workload: the admitted workload.
            flavors: for each pod set the flavor of each resource; resources without quota in the tree do not count.
            since: the second of its quota reservation; negative, since the clock starts at 0.
            leaving: it is being evicted: it keeps its quota until it has stopped, and is then pending.
            fixed: it cannot be preempted, for example because its ClusterQueue is stopped.

        Raises:
            ValueError: as for `submit`; or the simulation has started.
        """
        if self._started:
            raise ValueError(f"workload {workload.name!r} cannot be placed after the simulation has started")
        runner, info = self._create(workload)
        keys = {name: key for key, name in enumerate(runner.tree.names)}
        usage: dict[int, int] = {}
        for requests, chosen in zip(info.requests, flavors, strict=True):
            for resource, amount in requests.items():
                key = keys.get((chosen.get(resource, ""), resource))
                if key is not None and amount:
                    usage[key] = usage.get(key, 0) + amount
        info.reserve_quota(tuple(usage.items()), tuple(dict(pod_set) for pod_set in flavors), second=since)
        info.queue.add_usage(info.usage)
        if fixed:
            self._fixed.add(workload.name)
            return
        info.queue.workloads[info] = None
        if leaving:
            info.evicting = True
            runner.clock.start_eviction(info)

    def finish(self, name: str) -> None:
        """Removes a workload, admitted or pending. Raises ValueError if it does not exist."""
        if name not in self._workloads:
            raise ValueError(f"workload {name!r} does not exist and cannot finish")
        info = self._workloads.pop(name)
        self._reported_evictions.pop(name, None)
        if name in self._fixed:
            self._fixed.remove(name)
            info.queue.workloads[info] = None
        self._queues[info.spec.queue][0].finish(info)

    def fork(self) -> Callable[[], "Simulation"]:
        """A function that returns independent copies of the present state."""
        state = pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
        return lambda: pickle.loads(state)  # noqa: S301 - the line above has written it

    @property
    def running(self) -> frozenset[str]:
        """Names of the admitted workloads; faster than `settled`."""
        return frozenset(name for name, info in self._workloads.items() if info.admitted)

    def rest(self) -> tuple[tuple[str, ...], ...]:
        """Runs the scheduler until nothing changes, and the clock until the next action; returns `Settled.livelock`."""
        self._started = True
        for runner in self._runners:
            runner.rest()
            runner.clock.pause()
        return tuple(tuple(runner.tree.queues) for runner in self._runners if runner.livelock)

    def settled(self, livelock: tuple[tuple[str, ...], ...] = ()) -> Settled:
        """The present state, with preemptions since the previous call; `livelock` is the result of `rest`."""
        admitted: list[Admitted] = []
        pending: list[Pending] = []
        evicted: list[Evicted] = []
        for name, info in self._workloads.items():
            queue = info.queue.name
            if info.admitted:
                admitted.append(Admitted(name, queue, info.flavors))
            else:
                pending_queue = self._queues[queue][0].pending[info.queue]
                pending.append(Pending(name, queue, pending_reason(info, pending_queue, self._format_amount)))
            evicted += info.evictions[self._reported_evictions.get(name, 0) :]
            self._reported_evictions[name] = len(info.evictions)
        evicted.sort(key=lambda eviction: eviction.at)
        return Settled(tuple(admitted), tuple(pending), tuple(evicted), livelock)


def run(tenancy: Tenancy, steps: Iterable[Step], amount: FormatAmount = plain_amount) -> tuple[Settled, ...]:
    """The state after each step; the scheduler runs after each finished or submitted workload.

    Raises ValueError: the tenancy or a step is invalid.
    """
    simulation = Simulation(tenancy, amount)
    states: list[Settled] = []
    for step in steps:
        livelock: dict[tuple[str, ...], None] = {}
        for name in step.finish:
            simulation.finish(name)
            livelock |= dict.fromkeys(simulation.rest())
        for workload in step.submit:
            simulation.submit(workload)
            livelock |= dict.fromkeys(simulation.rest())
        states.append(simulation.settled(tuple(livelock)))
    return tuple(states)


def pending_reason(workload: WorkloadInfo, pending_queue: PendingQueue, format_amount: FormatAmount) -> str:
    """The reason of the last cycle that evaluated the workload or an equivalent one, with present amounts."""
    head = pending_queue.head
    if pending_queue.strict_fifo and head is not None and head is not workload:
        reason = _reason(head, pending_queue.verdict(head), format_amount)
        return f"behind {head.name}, the head of a StrictFIFO queue: {reason}"
    return _reason(workload, pending_queue.verdict(workload), format_amount)


def _reason(workload: WorkloadInfo, verdict: Verdict | None, format_amount: FormatAmount) -> str:
    if verdict is None:
        evicted = workload.evictions
        return f"evicted for {evicted[-1].by} and not evaluated since" if evicted else "not evaluated yet"
    match verdict.outcome:
        case Outcome.PREEMPTING:
            return f"pending the preemption of {_names(verdict.targets)}"
        case Outcome.NO_LONGER_FITS:
            return "no longer fits after processing another workload in the same cycle"
        case Outcome.OVERLAPPING_TARGETS:
            return f"overlapping preemption targets with another workload: {_names(verdict.targets)}"
        case Outcome.NO_FIT | Outcome.NO_CANDIDATES:
            return _quota_reason(verdict, workload.queue, format_amount)
        case Outcome.ADMITTED:
            return "admitted"


def _quota_reason(verdict: Verdict, queue: Queue, format_amount: FormatAmount) -> str:
    why = _flavor_messages(verdict, queue, format_amount)
    beyond = _beyond_nominal(verdict, queue, format_amount) if verdict.reclaims else ""
    if verdict.outcome is Outcome.NO_FIT and not beyond:
        return why
    return f"{why}; no workload may be preempted for it{beyond and f': {beyond}'}"


def _flavor_messages(verdict: Verdict, queue: Queue, format_amount: FormatAmount) -> str:
    # A flavor that does not match the pods is named only if there is no other reason.
    reasons = tuple(reason for reason in verdict.reasons if reason.maximum is not None or not reason.flavor)
    reasons = reasons or verdict.reasons
    if any(reason.missing and reason.flavor for reason in reasons):
        # The workload waits for the flavors that it could get.
        reasons = tuple(reason for reason in reasons if reason.missing)
    messages = dict.fromkeys(_flavor_message(reason, queue, format_amount) for reason in reasons)
    return "; ".join(messages) or "no resources requested"


def _flavor_message(reason: FlavorReason, queue: Queue, format_amount: FormatAmount) -> str:
    if not reason.flavor:
        return f"resource {reason.resource} unavailable in ClusterQueue"
    if reason.maximum is None:
        return f"flavor {reason.flavor} does not match the pods"
    quota = f"{reason.resource} in flavor {reason.flavor}"
    if not reason.missing:
        requested = format_amount(reason.resource, reason.requested)
        maximum = format_amount(reason.resource, reason.maximum)
        return f"insufficient quota for {quota}, request > maximum capacity ({requested} > {maximum})"
    # Other workloads may have been admitted since the last evaluation.
    keys = dict(queue.group_of[reason.resource].flavors)[reason.flavor]
    missing = reason.requested - max(0, queue.available(keys[reason.resource]))
    amount = format_amount(reason.resource, missing if missing > 0 else reason.missing)
    return f"insufficient unused quota for {quota}, {amount} more needed"


def _beyond_nominal(verdict: Verdict, queue: Queue, format_amount: FormatAmount) -> str:
    """The resources that keep Kueue from reclaiming others, which are guaranteed, in the same flavor."""
    keys = {
        (flavor, resource): key
        for group in queue.group_of.values()
        for flavor, keys in group.flavors
        for resource, key in keys.items()
    }
    missing = {
        keys[reason.flavor, reason.resource]: reason.requested
        for reason in verdict.reasons
        if reason.flavor and reason.missing
    }
    requested = dict(verdict.amounts) | missing
    beyond = {key: amount + queue.usage[key] - queue.nominal[key] for key, amount in requested.items()}
    guaranteed = {flavor for (flavor, _), key in keys.items() if key in missing and beyond[key] <= 0}
    return " and ".join(
        f"{resource} in flavor {flavor} exceeds nominal quota by {format_amount(resource, beyond[key])}"
        for (flavor, resource), key in keys.items()
        if flavor in guaranteed and beyond.get(key, 0) > 0
    )


def _names(names: tuple[str, ...]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
