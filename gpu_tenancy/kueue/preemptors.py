"""Which ClusterQueues can preempt workloads of one that borrows, whatever they request.

Rules: those of `classical_preemption` and `fair_preemption`, without workloads.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
    for one in sorted(found, key=lambda one: (one.lower, one.fair, one.when, one.queue)):
        times.setdefault(one.when, []).append(one.queue)
    return times


def preemptors(quotas: Quotas, borrower: str, line: FlavorResource, *, ever: bool = False) -> Iterator[Preemptor]:
    """The queues of the tree that can preempt workloads of a queue for a flavor and resource.

    What they use at present does not matter, since what they submit next decides. It is an upper bound: that the limits
    of several queues together leave so much free that there is never a need to preempt is not always seen.

    Args:
        quotas: quota and usage of all queues.
        borrower: the queue.
        line: flavor and resource.
        ever: whether the queue and its cohorts count as borrowing if they may; else if they do now.
    """
    node, key = quotas.place(borrower, line)
    if key is None or not node.path:
        return
    below, side = _borrowing(node, key, ever=ever), node
    search = _search(node.root, key, line, fair=quotas.fair(borrower))
    for cohort in node.path:
        if cohort in below:
            yield from (found for path, found in search.preemptors(cohort) if side not in path)
        side = cohort


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


@lru_cache(maxsize=64)
def _search(root: Node, key: int, line: FlavorResource, *, fair: bool) -> "_Search":
    """The search in a tree, which all its borrowers share."""
    return _Search(key, [queue for queue in _leaves(root) if line in queue.spec.quotas], fair=fair)


def _leaves(node: Node) -> Iterator[Queue]:
    if isinstance(node, Queue):
        yield node
    for child in node.children:
        yield from _leaves(child)


class _Search:
    """One flavor and resource of a tree; what is found does not depend on usage.

    Args:
        key: of the flavor and resource.
        users: the queues that have the flavor.
        fair: whether fair sharing is on.
    """

    def __init__(self, key: int, users: Sequence[Queue], *, fair: bool) -> None:
        self.key, self.fair, self.users = key, fair, dict.fromkeys(users)
        self._found: dict[Node, list[tuple[tuple[Node, ...], Preemptor]]] = {}
        self._mosts: dict[Node, int] = {}
        self._totals: dict[Node, int] = {}

    def preemptors(self, cohort: Node) -> Sequence[tuple[tuple[Node, ...], Preemptor]]:
        """The queues below a cohort that can preempt in its other subtrees, each with the nodes from it to the root."""
        if cohort not in self._found:
            below = [queue for queue in self.users if cohort in queue.path]
            self._found[cohort] = [
                ((queue, *queue.path), found) for queue in below if (found := self.preemptor(queue, cohort))
            ]
        return self._found[cohort]

    def preemptor(self, queue: Queue, common: Node) -> Preemptor | None:
        """How a queue preempts in the subtrees below a cohort that are not its own; None if it never does."""
        preemption, borrows = queue.spec.preemption, queue.potential_available[self.key] > queue.nominal[self.key]
        if preemption.reclaim is Policy.NEVER:
            return None
        lower, lends = preemption.reclaim is not Policy.ANY, self._lent(queue) > 0
        side = queue if self.fair else (queue, *queue.path)[queue.path.index(common)]
        reclaims = lends if side is queue else self._lent(side) > 0 and (lends or borrows)
        if reclaims and self._can_be_used_up(side, common, self._lent(side)):
            return Preemptor(queue.name, lower)
        if not borrows or not self._can_be_used_up(queue, common, self._most(queue)):
            return None
        if self.fair:
            return Preemptor(queue.name, lower, fair=True)
        return Preemptor(queue.name, lower=True, at_most=preemption.borrow.threshold) if preemption.borrow else None

    def _lent(self, node: Node) -> int:
        """What others can have of its quota, which it then reclaims."""
        return node.subtree_quota[self.key] - node.local_quota[self.key]

    def _most(self, node: Node) -> int:
        """An upper bound of what a node uses of its parent's quota."""
        if node not in self._mosts:
            most = node.potential_available[self.key] if node.children or node in self.users else 0
            most = min(most, self._total(node)) if node.children else most
            self._mosts[node] = max(0, most - node.local_quota[self.key])
        return self._mosts[node]

    def _total(self, cohort: Node) -> int:
        if cohort not in self._totals:
            self._totals[cohort] = sum(map(self._most, cohort.children))
        return self._totals[cohort]

    def _can_be_used_up(self, side: Node, common: Node, amount: int) -> bool:
        """Whether all others of some cohort above can together leave a node less than an amount."""
        own, used = side, 0
        for cohort in side.path:
            used += self._total(cohort) - self._most(own)
            if cohort.height >= common.height and used + amount > cohort.potential_available[self.key]:
                return True
            own = cohort
        return False
