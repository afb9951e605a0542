"""Runs a tenancy: workloads arrive and end, and after each the whole comes to rest."""

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpu_tenancy.model.admission.cohort_tree import grow
from gpu_tenancy.model.admission.quota import Asks
from gpu_tenancy.model.admission.reasons import Amount, bare, why
from gpu_tenancy.model.admission.runner import Runner
from gpu_tenancy.model.admission.spec import Step, Tenancy, Workload
from gpu_tenancy.model.admission.workload_info import Queue, WorkloadInfo, claim


@dataclass(frozen=True, slots=True)
class Admitted:
    """A workload that runs.

    Attributes:
        flavors: of each pod set, in order: the flavor of each resource.
    """

    name: str
    queue: str
    flavors: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """A workload that waits, and why, in words."""

    name: str
    queue: str
    why: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """A workload that had to give way.

    Attributes:
        by: the workload that needed its room.
        reason: Kueue's own word for it, such as `InCohortReclamation`.
        at: seconds of the logical clock.
    """

    name: str
    by: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Settled:
    """The state at rest.

    Attributes:
        admitted: in the order of creation, as `pending`.
        evicted: who gave way since the state before, in the order in which it happened; some may run again.
        livelock: the cluster queues of each tree that did not come to rest: workloads there evict one another for
            ever, as in the real Kueue, and the state is one of many. Something that happened later in the same step
            may have ended it.
    """

    admitted: tuple[Admitted, ...] = ()
    pending: tuple[Pending, ...] = ()
    evicted: tuple[Evicted, ...] = ()
    livelock: tuple[tuple[str, ...], ...] = ()


class Simulation:
    """A tenancy with its workloads.

    Args:
        tenancy: the queues and cohorts.
        amount: how an amount of a resource is written where a workload is said to wait for it.

    Raises:
        ValueError: the tenancy contradicts itself; see `gpu_tenancy.model.admission.spec.parents`.
    """

    def __init__(self, tenancy: Tenancy, amount: Amount = bare) -> None:
        self._amount = amount
        self._runners = [Runner(tree) for tree in grow(tenancy)]
        self._queues: dict[str, tuple[Runner, Queue]] = {
            name: (runner, queue) for runner in self._runners for name, queue in runner.tree.queues.items()
        }
        self._claims: dict[str, WorkloadInfo] = {}
        self._told: dict[str, int] = {}
        self._fixed: set[str] = set()
        self._begun = False
        self._born = 0

    def submit(self, workload: Workload) -> None:
        """A workload arrives.

        Raises:
            ValueError: there is such a workload already, or no such queue.
        """
        runner, arrived = self._arrive(workload)
        runner.submit(arrived)

    def _arrive(self, workload: Workload) -> tuple[Runner, WorkloadInfo]:
        if workload.name in self._claims:
            msg = f"duplicate workload {workload.name!r}"
            raise ValueError(msg)
        if workload.queue not in self._queues:
            msg = f"workload {workload.name!r}: ClusterQueue {workload.queue!r} does not exist"
            raise ValueError(msg)
        runner, queue = self._queues[workload.queue]
        arrived = claim(workload, queue, self._born)
        self._born += 1
        self._claims[workload.name] = arrived
        return runner, arrived

    def place(
        self,
        workload: Workload,
        flavors: Sequence[Mapping[str, str]],
        since: int,
        *,
        leaving: bool = False,
        fixed: bool = False,
    ) -> None:
        """A workload is there that runs already, whether or not it would be admitted now.

        `submit` and `place` in the order of creation, before the first `rest`, make the state of a cluster at work.

        Args:
            workload: what runs.
            flavors: of each pod set, in order: the flavor of each resource, as in `Admitted`. What the workload's
                tree has no quota of uses none.
            since: the second in which its quota was reserved; the clock begins at 0, so it is below.
            leaving: it was evicted, keeps its quota until it has stopped, and then waits.
            fixed: nobody may preempt it, as where its queue is stopped.

        Raises:
            ValueError: there is such a workload already, or no such queue; or something has happened already.
        """
        if self._begun:
            msg = f"workload {workload.name!r} cannot be placed after the simulation has started"
            raise ValueError(msg)
        runner, arrived = self._arrive(workload)
        arrived.start(
            _usage(runner.tree.names, arrived.asks, flavors), tuple(dict(each) for each in flavors), second=since
        )
        arrived.queue.use(arrived.usage)
        if fixed:
            self._fixed.add(workload.name)
            return
        arrived.queue.running[arrived] = None
        if leaving:
            arrived.evicting = True
            runner.clock.evict(arrived)

    def finish(self, name: str) -> None:
        """A workload ends, whether it runs or waits.

        Raises:
            ValueError: there is no such workload.
        """
        if name not in self._claims:
            msg = f"workload {name!r} does not exist and cannot finish"
            raise ValueError(msg)
        ended = self._claims.pop(name)
        self._told.pop(name, None)
        if name in self._fixed:
            self._fixed.remove(name)
            ended.queue.running[ended] = None
        self._queues[ended.workload.queue][0].finish(ended)

    def fork(self) -> Callable[[], "Simulation"]:
        """Gives copies of the state as it is now, as many as one asks for: each goes on by itself."""
        kept = pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
        return lambda: pickle.loads(kept)  # noqa: S301 - what it has just written itself

    def rest(self) -> tuple[tuple[str, ...], ...]:
        """Lets everything come to rest, and a moment pass; the queues of each tree that never does."""
        self._begun = True
        for runner in self._runners:
            runner.rest()
            runner.clock.pause()
        return tuple(tuple(runner.tree.queues) for runner in self._runners if runner.endless)

    def settled(self, livelock: tuple[tuple[str, ...], ...] = ()) -> Settled:
        """The state as it is, with the evictions since it was last asked for."""
        admitted: list[Admitted] = []
        pending: list[Pending] = []
        evicted: list[Evicted] = []
        for name, each in self._claims.items():
            queue = each.queue.name
            if each.running:
                admitted.append(Admitted(name, queue, each.flavors))
            else:
                line = self._queues[queue][0].tree.lines[each.queue]
                pending.append(Pending(name, queue, why(each, line, self._amount)))
            told = self._told.get(name, 0)
            evicted += [Evicted(name, one.by, one.reason, one.at) for one in each.evictions[told:]]
            self._told[name] = len(each.evictions)
        return Settled(tuple(admitted), tuple(pending), tuple(sorted(evicted, key=lambda one: one.at)), livelock)


def _usage(
    names: Sequence[tuple[str, str]], asks: Iterable[Mapping[str, int]], flavors: Iterable[Mapping[str, str]]
) -> Asks:
    """What pod sets use of a tree, by the number of flavor and resource."""
    keys = {pair: key for key, pair in enumerate(names)}
    usage: dict[int, int] = {}
    for wanted, given in zip(asks, flavors, strict=True):
        for resource, amount in wanted.items():
            key = keys.get((given.get(resource, ""), resource))
            if key is not None and amount:
                usage[key] = usage.get(key, 0) + amount
    return tuple(usage.items())


def settle(tenancy: Tenancy, workloads: Iterable[Workload]) -> Settled:
    """Who runs and who waits when all these workloads are there at once; the first in the list is the oldest.

    Raises:
        ValueError: the tenancy or the workloads contradict themselves.
    """
    simulation = Simulation(tenancy)
    for each in workloads:
        simulation.submit(each)
    return simulation.settled(simulation.rest())


def run(tenancy: Tenancy, steps: Iterable[Step], amount: Amount = bare) -> tuple[Settled, ...]:
    """The state after each step; within a step, each workload comes or ends after the one before has come to rest.

    Args:
        tenancy: the queues and cohorts.
        steps: what happens.
        amount: how an amount of a resource is written.

    Raises:
        ValueError: the tenancy or the steps contradict themselves.
    """
    simulation = Simulation(tenancy, amount)
    found: list[Settled] = []
    for step in steps:
        restless: dict[tuple[str, ...], None] = {}
        for name in step.finish:
            simulation.finish(name)
            restless |= dict.fromkeys(simulation.rest())
        for workload in step.submit:
            simulation.submit(workload)
            restless |= dict.fromkeys(simulation.rest())
        found.append(simulation.settled(tuple(restless)))
    return tuple(found)
