"""Which ClusterQueues can preempt workloads of one that borrows, whatever they request.

Rules: those of `classical_preemption` and `fair_preemption`, without workloads.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpu_tenancy.kueue.api import FlavorResource, Policy
from gpu_tenancy.kueue.quotas import Quotas
from gpu_tenancy.kueue.resource_node import Node
from gpu_tenancy.kueue.workload_info import Queue


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A ClusterQueue that can preempt workloads of another one.

    Attributes:
        lower: whether it preempts only workloads whose priority is lower than that of its own.
        at_most: the highest priority that it preempts, in addition; None for no such bound.
        fair: whether it does so only while its share is not larger, since it has no quota to reclaim.
    """

    queue: str
    lower: bool
    at_most: int | None = None
    fair: bool = False

    @property
    def when(self) -> str:
        """When it does so."""
        parts = ["for workloads of higher priority"] if self.lower else []
        parts += [f"from priorities up to {self.at_most}"] if self.at_most is not None else []
        parts += ["while its share is smaller"] if self.fair else []
        return " ".join(parts) or "at any time"


def by_time(found: Iterable[Preemptor]) -> dict[str, list[str]]:
    """Names of queues by when they preempt."""
    times: dict[str, list[str]] = {}
    for one in sorted(found, key=lambda one: (one.lower, one.fair, one.when)):
        times.setdefault(one.when, []).append(one.queue)
    return times


def preemptors(quotas: Quotas, borrower: str, line: FlavorResource, *, ever: bool = False) -> Iterator[Preemptor]:
    """The queues of the tree that can preempt workloads of a queue for a flavor and resource.

    What each uses at present does not matter, since what it submits next decides; nor whether limits leave so much free
    that it never has to preempt.

    Args:
        quotas: quota and usage of all queues.
        borrower: the queue.
        line: flavor and resource.
        ever: whether the queue and its cohorts count as borrowing if they may; else if they do now.
    """
    node, key = quotas.place(borrower, line)
    if key is None or not node.path:
        return
    below = _borrowing(node, key, ever=ever)
    for name in sorted(quotas.related(borrower)[0]):
        queue, _ = quotas.place(name, line)
        if queue is node or line not in queue.spec.quotas:
            continue
        common = next(cohort for cohort in node.path if cohort in queue.path)
        if common in below and (found := _preemptor(queue, common, key, fair=quotas.fair(borrower))):
            yield found


def _borrowing(node: Node, key: int, *, ever: bool) -> set[Node]:
    """The cohorts above such that everything below them borrows."""
    found: set[Node] = set()
    below: Node = node
    for cohort in node.path:
        most = below.potential_available[key] if ever else below.usage[key]
        if most <= below.subtree_quota[key]:
            break
        found.add(cohort)
        below = cohort
    return found


def _preemptor(queue: Queue, common: Node, key: int, *, fair: bool) -> Preemptor | None:
    preemption, borrows = queue.spec.preemption, queue.potential_available[key] > queue.nominal[key]
    if preemption.reclaim is Policy.NEVER:
        return None
    lower, lends = preemption.reclaim is not Policy.ANY, _lends(queue, key)
    side = (queue, *queue.path)[queue.path.index(common)]
    if lends if fair or side is queue else _lends(side, key) and (lends or borrows):
        return Preemptor(queue.name, lower)
    if not borrows:
        return None
    if fair:
        return Preemptor(queue.name, lower, fair=True)
    return Preemptor(queue.name, lower=True, at_most=preemption.borrow.threshold) if preemption.borrow else None


def _lends(node: Node, key: int) -> bool:
    """Whether others can have quota of it, which it then reclaims."""
    return node.subtree_quota[key] > node.local_quota[key]
