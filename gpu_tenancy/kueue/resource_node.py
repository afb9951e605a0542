"""Quota and usage of one node of a cohort tree; names are from Kueue's `resourceNode`.

A ClusterQueue uses its local quota first, which its lending limit withholds from others; a cohort's usage is the usage
of its children beyond their local quotas. Quotas and usage are lists by key, the number of a flavor and resource.
Rules: pkg/cache/scheduler/resource_node.go of kubernetes-sigs/kueue at v0.19.2, KEPs 79 (hierarchical cohorts) and 1224
(lending limit).

The dominant resource share is the largest ratio of borrowed to lendable quota of the parent, of all resources and in
thousandths, divided by the weight. It is floating point as in Kueue, so that equal shares are equal.
Rules: pkg/cache/scheduler/fair_sharing.go of kubernetes-sigs/kueue at v0.19.2, KEP 1714.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from gpu_tenancy.kueue.api import Quota

Amounts: TypeAlias = Sequence[tuple[int, int]]


class Node:
    """A cohort or, as a leaf, a ClusterQueue; lists are by key.

    Attributes:
        subtree_quota: nominal quota and the quota that children may lend.
        local_quota: the part of `subtree_quota` that the parent never gets.
        usage: usage that counts against `subtree_quota`.
        potential_available: quota that the node could use if the rest of the tree used nothing.
        lendable: the sum of `potential_available` by resource, over all flavors.
        height: steps to the farthest leaf.
        path: the cohorts above, the nearest first.
        position: its place in the tenancy, which decides between equals.
    """

    leaf = False
    __slots__ = (
        "borrowing_limit", "children", "height", "lendable", "local_quota", "name", "nominal", "parent", "path",
        "position", "potential_available", "subtree_quota", "usage", "weight",
    )  # fmt: skip

    def __init__(
        self, name: str, parent: "Node | None", weight: float | None, quotas: Sequence[Quota], position: int
    ) -> None:
        self.name = name
        self.parent = parent
        self.weight = 1.0 if weight is None else weight
        self.position = position
        self.nominal = [quota.nominal for quota in quotas]
        self.borrowing_limit = [quota.borrowing_limit for quota in quotas]
        self.subtree_quota = list(self.nominal)
        self.local_quota = [0] * len(quotas)
        self.usage = [0] * len(quotas)
        self.potential_available = [0] * len(quotas)
        self.children: list[Node] = []
        self.height = 0
        self.lendable: list[int] = []
        self.path: tuple[Node, ...] = ()
        if parent is not None:
            parent.children.append(self)

    def update_subtree_quota(self, quotas: Sequence[Quota]) -> None:
        """Sets subtree and local quota from the node's own quotas and its children's; call it for children first."""
        for key, quota in enumerate(quotas):
            lent = sum(child.subtree_quota[key] - child.local_quota[key] for child in self.children)
            self.subtree_quota[key] = quota.nominal + lent
            if quota.lending_limit is not None:
                self.local_quota[key] = max(0, self.subtree_quota[key] - quota.lending_limit)
        if self.children:
            self.height = 1 + max(child.height for child in self.children)

    def update_potential_available(self, resources: Sequence[int], kinds: int) -> None:
        """Sets `path`, `potential_available` and `lendable`; call it for the parent first."""
        parent = self.parent
        self.path = () if parent is None else (parent, *parent.path)
        for key, subtree_quota in enumerate(self.subtree_quota):
            potential = subtree_quota
            if parent is not None:
                potential = self.local_quota[key] + parent.potential_available[key]
                limit = self.borrowing_limit[key]
                if limit is not None:
                    potential = min(potential, subtree_quota + limit)
            self.potential_available[key] = potential
        self.lendable = [0] * kinds
        for key, kind in enumerate(resources):
            self.lendable[kind] += self.potential_available[key]

    @property
    def root(self) -> "Node":
        """The root of the tree; the node itself if it has no parent."""
        return self.path[-1] if self.path else self

    def local_available(self, key: int) -> int:
        """Unused local quota."""
        return max(0, self.local_quota[key] - self.usage[key])

    def available(self, key: int) -> int:
        """Unused quota of the node and above, within borrowing limits; negative if usage exceeds the quota."""
        local, lowest = 0, None
        node = self
        while node.parent is not None:
            usage, local_quota = node.usage[key], node.local_quota[key]
            limit = node.borrowing_limit[key]
            if limit is not None:
                # Kueue's withMaxFromParent, with the unused local quota of this node and of those below.
                with_max_from_parent = local + node.subtree_quota[key] + limit - max(usage, local_quota)
                if usage < local_quota:
                    with_max_from_parent += local_quota - usage
                if lowest is None or with_max_from_parent < lowest:
                    lowest = with_max_from_parent
            if usage < local_quota:
                local += local_quota - usage
            node = node.parent
        unused = local + node.subtree_quota[key] - node.usage[key]
        return unused if lowest is None or unused < lowest else lowest

    def borrowing_with(self, key: int, amount: int = 0) -> bool:
        """Whether the node uses more than its subtree quota, or would with this additional amount."""
        return self.usage[key] + amount > self.subtree_quota[key]

    def add_usage(self, amounts: Amounts) -> None:
        """Adds usage to the node, and usage beyond the local quota to the cohorts above."""
        for key, whole in amounts:
            node: Node | None = self
            amount = whole
            while node is not None and amount > 0:
                before = node.usage[key]
                beyond = amount - max(0, node.local_quota[key] - before)
                node.usage[key] = before + amount
                node, amount = node.parent, beyond

    def remove_usage(self, amounts: Amounts) -> None:
        """Undoes `add_usage`."""
        for key, whole in amounts:
            node: Node | None = self
            amount = whole
            while node is not None and amount > 0:
                before = node.usage[key]
                stored_in_parent = before - node.local_quota[key]
                node.usage[key] = before - amount
                node, amount = node.parent, min(amount, stored_in_parent)

    def fits(self, amounts: Amounts) -> bool:
        """Whether all amounts are available."""
        for key, amount in amounts:  # noqa: SIM110 - asked for each head of each cycle
            if amount > max(0, self.available(key)):
                return False
        return True

    def within_quota(self, keys: frozenset[int]) -> bool:
        """Whether the node borrows none of these keys."""
        usage, subtree_quota = self.usage, self.subtree_quota
        for key in keys:  # noqa: SIM110 - asked for each candidate of each head
            if usage[key] > subtree_quota[key]:
                return False
        return True


def path_edges(queue: Node) -> Iterator[tuple[Node, Node]]:
    """Each node from a ClusterQueue to below the root, with its parent."""
    return zip((queue, *queue.path), queue.path, strict=False)


def lowest_subtree_that_fits(queue: Node, key: int, amount: int) -> tuple[int, bool]:
    """Height of the lowest subtree with enough unused quota of its own; Kueue's `FindHeightOfLowestSubtreeThatFits`.

    Height 0 is the ClusterQueue itself, without borrowing. Also whether the subtree has a parent to reclaim quota from.
    If no subtree fits: the height of the whole tree, and False.
    """
    if queue.parent is None or not queue.borrowing_with(key, amount):
        return 0, queue.parent is not None
    remaining = amount - queue.local_available(key)
    for node in queue.path:
        if not node.borrowing_with(key, remaining):
            return node.height, node.parent is not None
        remaining -= node.local_available(key)
    return queue.root.height, False


class DominantResourceShare(NamedTuple):
    """A comparable share in thousandths of the lendable quota, divided by the weight unless that is 0."""

    weightless: bool  # a borrower of weight 0, whose share is larger than all others
    value: float


NO_SHARE: Final = DominantResourceShare(weightless=False, value=0.0)  # the node borrows nothing


def share(node: Node, resources: list[int]) -> DominantResourceShare:
    """The dominant resource share of a node; `resources` has the number of each key's resource."""
    parent = node.parent
    if parent is None:
        return NO_SHARE
    borrowed: dict[int, int] = {}
    for key, (usage, quota) in enumerate(zip(node.usage, node.subtree_quota, strict=True)):
        if usage > quota:
            kind = resources[key]
            borrowed[kind] = borrowed.get(kind, 0) + usage - quota
    ratio = 0.0
    for kind, amount in borrowed.items():
        lendable = parent.lendable[kind]
        if lendable > 0:
            ratio = max(ratio, float(amount) * 1000.0 / float(lendable))
    if ratio == 0.0:
        return NO_SHARE
    if node.weight == 0:
        return DominantResourceShare(weightless=True, value=ratio)
    return DominantResourceShare(weightless=False, value=ratio / node.weight)


def is_borrowing(node: Node) -> bool:
    """Whether a node borrows any resource; a root never does."""
    if node.parent is None:
        return False
    return any(usage > quota for usage, quota in zip(node.usage, node.subtree_quota, strict=True))


def is_borrowing_any_of(node: Node, amounts: Amounts) -> bool:
    """Whether a node borrows any resource that is requested."""
    return node.parent is not None and any(amount > 0 and node.borrowing_with(key) for key, amount in amounts)
