"""Quota and usage of all ClusterQueues: available, borrowed and lent quota, and possible preemptors.

Preemptors follow the rules of `classical_preemption` and `fair_preemption`, for any requests and without workloads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpu_tenancy.kueue.api import FlavorResource, Policy, Tenancy
from gpu_tenancy.kueue.resource_node import Node
from gpu_tenancy.kueue.workload_info import CohortTree, Queue, cohort_trees

Usage = Mapping[FlavorResource, int]  # of a ClusterQueue's admitted workloads


class Quotas:
    """The cohort trees of a tenancy with their usage by ClusterQueue; amounts are in the tenancy's units.

    Raises ValueError: a duplicate name, or a cycle of cohorts.
    """

    def __init__(self, tenancy: Tenancy, usage: Mapping[str, Usage] | None = None) -> None:
        usage = usage or {}
        self._keys: dict[CohortTree, dict[FlavorResource, int]] = {}
        self._places: dict[str, tuple[CohortTree, Queue]] = {}
        for tree in cohort_trees(tenancy, dict.fromkeys(name for amounts in usage.values() for name in amounts)):
            keys = self._keys[tree] = {name: key for key, name in enumerate(tree.names)}
            for name, queue in tree.queues.items():
                self._places[name] = tree, queue
                queue.add_usage([(keys[line], amount) for line, amount in usage.get(name, {}).items()])

    def place(self, queue: str, line: FlavorResource) -> tuple[Queue, int | None]:
        """The node of a ClusterQueue, and the key; None if the tree has neither quota nor usage of it."""
        tree, node = self._places[queue]
        return node, self._keys[tree].get(line)

    def fair(self, queue: str) -> bool:
        """Whether fair sharing is on in the tree of a ClusterQueue."""
        return bool(self._places[queue][0].fair)

    def nominal(self, queue: str, line: FlavorResource) -> int:
        """The nominal quota of a ClusterQueue."""
        node, key = self.place(queue, line)
        return 0 if key is None else node.nominal[key]

    def usage(self, queue: str, line: FlavorResource) -> int:
        """Usage of a ClusterQueue's admitted workloads."""
        node, key = self.place(queue, line)
        return 0 if key is None else node.usage[key]

    def available(self, queue: str, line: FlavorResource) -> int:
        """Quota that a ClusterQueue can use now without preemption; negative if quotas were lowered below the usage."""
        node, key = self.place(queue, line)
        return 0 if key is None else node.available(key)

    def potential_available(self, queue: str, line: FlavorResource) -> int:
        """Quota that a ClusterQueue could use if all others used nothing."""
        node, key = self.place(queue, line)
        return 0 if key is None else node.potential_available[key]

    def borrowed(self, queue: str, line: FlavorResource) -> int:
        """Usage of a ClusterQueue beyond its nominal quota."""
        node, key = self.place(queue, line)
        return 0 if key is None else max(0, node.usage[key] - node.nominal[key])

    def borrowers(self, queue: str, line: FlavorResource) -> dict[str, int]:
        """The other ClusterQueues of the tree that borrow, with amounts, the largest first."""
        amounts = {name: self.borrowed(name, line) for name in self.related(queue)[0] if name != queue}
        borrowing = [(name, amount) for name, amount in amounts.items() if amount]
        return dict(sorted(borrowing, key=lambda pair: (-pair[1], pair[0])))

    def related(self, queue: str) -> tuple[Iterable[str], Iterable[str]]:
        """The ClusterQueues and the cohorts of the same tree."""
        tree, _ = self._places[queue]
        return tree.queues.keys(), tree.cohorts.keys()

    def lent(self, queue: str, line: FlavorResource) -> int:
        """Upper bound of a ClusterQueue's unused nominal quota that others borrow.

        Kueue records borrowers, not lenders. So the quota of cohorts counts as borrowed first, near cohorts before far
        ones; the rest comes from ClusterQueues, from each at most its unused quota.
        """
        node, key = self.place(queue, line)
        if key is None or node.parent is None:
            return 0
        unused = _unused(node, key)
        return min(unused, _lent_below(node.parent, key)) if unused > 0 else 0


def _unused(node: Node, key: int) -> int:
    """Quota that a node leaves to its parent; negative if it borrows."""
    local_quota = node.local_quota[key]
    return node.subtree_quota[key] - local_quota - max(0, node.usage[key] - local_quota)


def _lent_below(cohort: Node, key: int) -> int:
    borrowed = sum(max(0, -_unused(child, key)) for child in cohort.children)
    unused = _unused(cohort, key)
    beyond = min(unused, _lent_below(cohort.parent, key)) if cohort.parent is not None and unused > 0 else 0
    return max(0, borrowed + beyond - cohort.nominal[key])


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A ClusterQueue that can preempt workloads of another one."""

    queue: str
    lower: bool  # only workloads of lower priority than its own
    at_most: int | None = None  # the highest priority that it preempts, in addition; None for no bound
    fair: bool = False  # only while its share is not larger, since it has no quota to reclaim

    @property
    def when(self) -> str:
        """The condition as text for users."""
        parts = ["for workloads of higher priority"] if self.lower else []
        parts += [f"from priorities up to {self.at_most}"] if self.at_most is not None else []
        parts += ["while its share is not larger"] if self.fair else []
        return " ".join(parts) or "at any time"


def by_time(found: Iterable[Preemptor]) -> dict[str, list[str]]:
    """Names of preempting queues by `Preemptor.when`."""
    times: dict[str, list[str]] = {}
    for one in sorted(found, key=lambda one: (one.lower, one.fair, one.when, one.queue)):
        times.setdefault(one.when, []).append(one.queue)
    return times


def preemptors(quotas: Quotas, borrower: str, line: FlavorResource, *, ever: bool = False) -> Iterator[Preemptor]:
    """The queues that can preempt workloads of a queue for a flavor and resource, an upper bound.

    Any workload may be submitted next, so present usage of the preemptors does not count. Limits of several queues that
    always leave enough free quota are not always recognized. `ever` counts the queue and its cohorts as borrowing if
    they may borrow, not only if they do now.
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
    """The cohorts above for which every node on the path below borrows."""
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
    return _Search(key, [queue for queue in _leaves(root) if line in queue.spec.quotas], fair=fair)


def _leaves(node: Node) -> Iterator[Queue]:
    if isinstance(node, Queue):
        yield node
    for child in node.children:
        yield from _leaves(child)


class _Search:
    """Queues with quota for one flavor and resource of a tree; the results do not depend on usage."""

    def __init__(self, key: int, users: Sequence[Queue], *, fair: bool) -> None:
        self.key, self.fair, self.users = key, fair, dict.fromkeys(users)
        self._found: dict[Node, list[tuple[tuple[Node, ...], Preemptor]]] = {}
        self._mosts: dict[Node, int] = {}
        self._totals: dict[Node, int] = {}

    def preemptors(self, cohort: Node) -> Sequence[tuple[tuple[Node, ...], Preemptor]]:
        """The queues below a cohort that can preempt in its other subtrees, each with its path to the root."""
        if cohort not in self._found:
            below = [queue for queue in self.users if cohort in queue.path]
            self._found[cohort] = [
                ((queue, *queue.path), found) for queue in below if (found := self.preemptor(queue, cohort))
            ]
        return self._found[cohort]

    def preemptor(self, queue: Queue, common: Node) -> Preemptor | None:
        """How a queue preempts in the other subtrees below a cohort; None if it never does."""
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
        return node.subtree_quota[self.key] - node.local_quota[self.key]

    def _most(self, node: Node) -> int:
        """Upper bound of a node's usage of its parent's quota."""
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
        own, used = side, 0
        for cohort in side.path:
            used += self._total(cohort) - self._most(own)
            if cohort.height >= common.height and used + amount > cohort.potential_available[self.key]:
                return True
            own = cohort
        return False
