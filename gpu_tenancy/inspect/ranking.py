"""The order in which ends of running workloads are tested, to find out what would admit a pending one."""

from collections import Counter
from collections.abc import Hashable

from gpu_tenancy import kueue
from gpu_tenancy.base.quantity import add
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.snapshot import Snapshot
from gpu_tenancy.inspect.workloads import Workload
from gpu_tenancy.kueue import Admitted, FlavorResource, Settled


class Ranking:
    """Running workloads, from the view of a pending one."""

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

        First those that hold enough of what the pending one lacks, then those that hold some of it, then the rest.
        Within each group the nearest first (same queue, same cohort, same tree), and one of several equal workloads
        before the others.
        """
        seen: Counter[Hashable] = Counter()
        order: dict[str, tuple[bool, bool, int, int]] = {}
        for each in self._lowest_first:
            held = self._holds[each.name]
            kind = each.queue, self._priorities[each.name], tuple(sorted(held.items()))
            order[each.name] = not self._enough(held), not self._touches(held), seen[kind], self._distance(each)
            seen[kind] += 1
        return sorted(order, key=lambda name: order[name])

    def in_sequence(self) -> list[str]:
        """Running workloads in the order in which they end in sequence: the lowest priority, then the newest.

        Only those that hold some of what the pending one lacks, if there are any.
        """
        order = [each.name for each in self._lowest_first]
        return [name for name in order if self._touches(self._holds[name])] or order

    def _enough(self, held: dict[FlavorResource, int]) -> bool:
        return any(all(held.get(line, 0) >= much for line, much in each.items()) for each in self._lacking)

    def _touches(self, held: dict[FlavorResource, int]) -> bool:
        return not self._wanted.isdisjoint(held)

    def _distance(self, each: Admitted) -> int:
        if each.queue == self._target:
            return 0
        cohort = self._cohorts[self._target]
        return 1 if cohort and self._cohorts[each.queue] == cohort else 2


def _lacking(queues: Queues, workload: kueue.Workload) -> list[dict[FlavorResource, int]]:
    """What is missing for a workload, for each flavor that lacks something."""
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
