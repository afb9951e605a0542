"""Next preemptions in a cluster, by the simulation of Kueue."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy import kueue
from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.snapshot import LIVELOCK, NotSimulatedError, settled
from gpu_tenancy.cluster.supply import Facts, accelerators

# Upper bound of workloads and quotas of all simulations; in a large cluster, fewer idle guarantees are tried.
WORK: Final = 20_000
_CLAIM: Final = "a workload that claims an idle guarantee"


@dataclass(frozen=True, slots=True)
class Preemption:
    """Workloads that a queue would preempt for its pending workload `by`, or (empty) to use its idle guarantee."""

    queue: str
    by: str
    amount: int
    flavor: str
    preempted: tuple[str, ...]

    @property
    def text(self) -> str:
        """The preemption in one line."""
        whom = first_names(self.preempted, 3)
        if self.by:
            return f"{self.by} preempts {whom} now"
        return f"if queue {self.queue} uses its {self.amount} idle guaranteed {self.flavor} GPUs: {whom} preempted"


@dataclass(frozen=True, slots=True)
class Preemptions:
    """Results of all simulations, and queues that are not simulated, with the reason."""

    found: tuple[Preemption, ...]
    not_simulated: tuple[str, ...]


def preemptions(facts: Facts) -> Preemptions:
    """Simulates each cohort tree: preemptions by pending workloads, and by each idle guarantee."""
    queues, trials = facts.queues, _Trials(facts.queues)
    found: list[Preemption] = []
    reasons: dict[str, str] = {}
    seen: set[str] = set()
    for name in queues.cluster_queues if facts.state.knows("ClusterQueue") else ():
        related = sorted(queues.quotas.related(name)[0])
        if name in seen or not any(queues.members.get(other) for other in related):
            continue
        seen.update(related)
        try:
            for one in trials.of_tree(related):
                preempted = tuple(facts.name(each) for each in one.preempted)
                by, flavor = facts.name(one.by), facts.name(one.flavor)
                found.append(Preemption(facts.name(one.queue), by, one.amount, flavor, preempted))
        except NotSimulatedError as error:
            reasons.setdefault(facts.name.message(str(error)), facts.name(name))
    texts = [f"cohort tree of {queue}: {why}" for why, queue in reasons.items()]
    if trials.left_out:
        texts.append(f"{plural(trials.left_out, 'idle guarantee')}: it would take too long")
    return Preemptions(tuple(found), tuple(texts))


class _Trials:
    """Simulations of one cluster, limited by `WORK`; further idle guarantees are `left_out`."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._left = WORK
        self.left_out = 0

    def of_tree(self, related: list[str]) -> Iterator[Preemption]:
        """Preemptions in one cohort tree. Raises NotSimulatedError if it cannot be simulated."""
        snapshot, simulation = settled(self._queues, related[0])
        now = simulation.settled()
        running = {workload.name for workload in now.admitted}
        by = grouped((eviction.by, eviction.name) for eviction in now.evicted if eviction.name not in running)
        queue_of = {workload.name: workload.queue for workload in now.admitted}
        for who, whom in by.items():
            yield Preemption(queue_of.get(who, ""), who, 0, "", tuple(dict.fromkeys(whom)))
        # Guarantees of GPUs that are not used, where others of the tree borrow the same; the largest first.
        quotas, queues = self._queues.quotas, self._queues.cluster_queues
        lines = [(name, line) for name in related for line in queues[name].spec.quotas if accelerators({line[1]: 1})]
        borrowed = {line for name, line in lines if quotas.borrowed(name, line)}
        unused = ((quotas.nominal(name, line) - quotas.usage(name, line), name, line) for name, line in lines)
        idle = sorted((one for one in unused if one[0] > 0 and one[2] in borrowed), key=lambda one: (-one[0], *one[1:]))
        fork = simulation.fork()
        cost = len(snapshot.participants) + sum(len(queue.quotas) for queue in snapshot.tenancy.queues)
        for at, (amount, queue, (flavor, resource)) in enumerate(idle):
            self._left -= cost
            if self._left < 0:
                self.left_out += len(idle) - at
                return
            trial = fork()
            pods = kueue.PodSet({resource: 1}, amount, frozenset((flavor,)))
            trial.submit(kueue.Workload(_CLAIM, queue, (pods,)))
            if trial.rest():
                raise NotSimulatedError(LIVELOCK)
            after = {workload.name for workload in trial.settled().admitted}
            if _CLAIM in after and (gone := sorted(running - after)):
                yield Preemption(queue, "", amount, flavor, tuple(gone))
