"""Who would be preempted next, and by whom: the cluster's queues in the simulation of Kueue."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy import kueue
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.snapshot import LIVELOCK, NotSimulatedError, settled
from gpu_tenancy.inspect.survey.facts import Facts, accelerators

WORK: Final = 20_000
"""Upper bound of simulated workloads: in a large cluster fewer queues are tried."""
_CLAIM: Final = "a workload that claims an idle guarantee"


@dataclass(frozen=True, slots=True)
class Preemption:
    """What one queue would take from others.

    Attributes:
        queue: the ClusterQueue.
        by: a pending workload; empty for a workload that nobody has submitted, of the queue's idle guarantee.
        amount: of GPUs that such a workload would request.
        preempted: workloads that would give way.
    """

    queue: str
    by: str
    amount: int
    flavor: str
    preempted: tuple[str, ...]

    @property
    def text(self) -> str:
        """What happens, as a line."""
        whom = first_names(self.preempted, 3)
        if self.by:
            return f"{self.by} preempts {whom} now"
        return f"if queue {self.queue} uses its {self.amount} idle guaranteed {self.flavor} GPUs: {whom} preempted"


@dataclass(frozen=True, slots=True)
class Preemptions:
    """The result of all simulations.

    Attributes:
        not_simulated: queues that are not simulated, and why.
    """

    found: tuple[Preemption, ...]
    not_simulated: tuple[str, ...]


def preemptions(facts: Facts) -> Preemptions:
    """Simulates each cohort tree: what pending workloads preempt, and what each idle guarantee would take back."""
    queues, left = facts.queues, WORK
    found: list[Preemption] = []
    reasons: dict[str, str] = {}
    seen: set[str] = set()
    for name in queues.cluster_queues if facts.state.knows("ClusterQueue") else ():
        related = sorted(queues.quotas.related(name)[0])
        if name in seen or not any(queues.members.get(other) for other in related):
            continue
        seen.update(related)
        try:
            for one in _of_tree(queues, related):
                found.append(_named(facts, one))
                left -= len(queues.workloads)
                if left < 0:
                    raise NotSimulatedError("the cluster has too many workloads for more simulations")  # noqa: TRY301
        except NotSimulatedError as error:
            reasons.setdefault(facts.name.message(str(error)), facts.name(name))
    return Preemptions(tuple(found), tuple(f"cohort tree of {queue}: {why}" for why, queue in reasons.items()))


def _named(facts: Facts, one: Preemption) -> Preemption:
    name = facts.name
    preempted = tuple(name(each) for each in one.preempted)
    return Preemption(name(one.queue), name(one.by), one.amount, name(one.flavor), preempted)


def _of_tree(queues: Queues, related: list[str]) -> Iterator[Preemption]:
    """What happens in one cohort tree.

    Raises:
        NotSimulatedError: the tree cannot be simulated.
    """
    _, simulation = settled(queues, related[0])
    now = simulation.settled()
    running = {workload.name for workload in now.admitted}
    by: dict[str, list[str]] = {}
    for eviction in now.evicted:
        if eviction.name not in running:
            by.setdefault(eviction.by, []).append(eviction.name)
    queue_of = {workload.name: workload.queue for workload in now.admitted}
    for who, whom in by.items():
        yield Preemption(queue_of.get(who, ""), who, 0, "", tuple(dict.fromkeys(whom)))
    fork = simulation.fork()
    for queue, (flavor, resource), idle in _idle(queues, related):
        trial = fork()
        pods = kueue.PodSet({resource: 1}, idle, frozenset((flavor,)))
        trial.submit(kueue.Workload(_CLAIM, queue, (pods,)))
        if trial.rest():
            raise NotSimulatedError(LIVELOCK)
        after = {workload.name for workload in trial.settled().admitted}
        if _CLAIM in after and (gone := sorted(running - after)):
            yield Preemption(queue, "", idle, flavor, tuple(gone))


def _idle(queues: Queues, related: list[str]) -> Iterator[tuple[str, kueue.FlavorResource, int]]:
    """Guarantees of GPUs that are not used, of queues in whose tree others borrow."""
    for name in related:
        queue = queues.cluster_queues[name]
        for line in queue.spec.quotas:
            idle = queues.quotas.nominal(name, line) - queues.quotas.usage(name, line)
            if idle > 0 and accelerators({line[1]: idle}) and queues.quotas.borrowers(name, line):
                yield name, line, idle
