"""Quota and usage of all ClusterQueues at one moment: what each can use now and at most, who borrows and who lends."""

from collections.abc import Iterable, Mapping

from gpu_tenancy.kueue.api import FlavorResource, Tenancy
from gpu_tenancy.kueue.cohort_tree import CohortTree, cohort_trees
from gpu_tenancy.kueue.resource_node import Node
from gpu_tenancy.kueue.workload_info import Queue

Usage = Mapping[FlavorResource, int]
"""What the admitted workloads of a ClusterQueue use."""


class Quotas:
    """The cohort trees of a tenancy with their usage; amounts are in the tenancy's units.

    Args:
        tenancy: ClusterQueues and cohorts.
        usage: by the name of the ClusterQueue.

    Raises:
        ValueError: a duplicate name, or a cycle of cohorts.
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
        """The node of a ClusterQueue, and the key; None where the tree has neither quota nor usage of it."""
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
        """What a ClusterQueue uses."""
        node, key = self.place(queue, line)
        return 0 if key is None else node.usage[key]

    def available(self, queue: str, line: FlavorResource) -> int:
        """What a ClusterQueue can use now without preemption; negative where quotas were lowered below the usage."""
        node, key = self.place(queue, line)
        return 0 if key is None else node.available(key)

    def potential_available(self, queue: str, line: FlavorResource) -> int:
        """What a ClusterQueue could use if all others used nothing."""
        node, key = self.place(queue, line)
        return 0 if key is None else node.potential_available[key]

    def borrowed(self, queue: str, line: FlavorResource) -> int:
        """What a ClusterQueue uses beyond its nominal quota."""
        node, key = self.place(queue, line)
        return 0 if key is None else max(0, node.usage[key] - node.nominal[key])

    def borrowers(self, queue: str, line: FlavorResource) -> dict[str, int]:
        """The other ClusterQueues of the tree that borrow, and how much; the largest first."""
        amounts = {name: self.borrowed(name, line) for name in self.related(queue)[0] if name != queue}
        borrowing = [(name, amount) for name, amount in amounts.items() if amount]
        return dict(sorted(borrowing, key=lambda pair: (-pair[1], pair[0])))

    def related(self, queue: str) -> tuple[Iterable[str], Iterable[str]]:
        """The ClusterQueues and the cohorts of the same tree."""
        tree, _ = self._places[queue]
        return tree.queues.keys(), tree.cohorts.keys()

    def lent(self, queue: str, line: FlavorResource) -> int:
        """Upper bound of what others borrow of a ClusterQueue's unused nominal quota.

        Kueue records who borrows, not from whom. So quota of cohorts counts as borrowed first, and near cohorts before
        far ones; the rest came from unused quota of ClusterQueues, from each at most what it has unused.
        """
        node, key = self.place(queue, line)
        if key is None or node.parent is None:
            return 0
        unused = _unused(node, key)
        return min(unused, _lent_below(node.parent, key)) if unused > 0 else 0


def _unused(node: Node, key: int) -> int:
    """What a node leaves to its parent; negative: what it borrows from there."""
    local_quota = node.local_quota[key]
    return node.subtree_quota[key] - local_quota - max(0, node.usage[key] - local_quota)


def _lent_below(cohort: Node, key: int) -> int:
    """What is borrowed of the unused quota directly below a cohort, by its own children and by others."""
    borrowed = sum(max(0, -_unused(child, key)) for child in cohort.children)
    unused = _unused(cohort, key)
    beyond = min(unused, _lent_below(cohort.parent, key)) if cohort.parent is not None and unused > 0 else 0
    return max(0, borrowed + beyond - cohort.nominal[key])
