"""The quota tree: what a node has, uses, lends, and may still take from above.

Usage lives in the leaves. What a node holds back by its lending limit it fills first, and its parent sees only the
rest; so a cohort's usage is what its children use beyond what they hold back. All amounts of a tree are addressed by a
number for each pair of flavor and resource.
Rules: pkg/cache/scheduler of kubernetes-sigs/kueue at v0.19.2, and the KEPs 79 (hierarchical cohorts) and 1224
(lending limit).
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from gpu_tenancy.model.admission.spec import Quota

Asks: TypeAlias = Sequence[tuple[int, int]]
"""Amounts by the number of their flavor and resource."""


class Node:
    """A cohort or, as a leaf, a queue.

    Attributes:
        subtree: own quota and what the children lend.
        held: of that, what never goes to the parent.
        used: what counts against `subtree`.
        over: children that use more than their own subtree has, by flavor and resource.
        height: steps to the farthest leaf.
    """

    leaf = False
    __slots__ = (
        "borrowing",
        "children",
        "cohorts",
        "height",
        "held",
        "lendable",
        "name",
        "nominal",
        "over",
        "parent",
        "path",
        "position",
        "reach",
        "subtree",
        "used",
        "weight",
    )

    def __init__(self, name: str, parent: "Node | None", weight: float, quotas: Sequence[Quota], position: int) -> None:
        self.name = name
        self.parent = parent
        self.weight = weight
        self.position = position
        self.nominal = [each.nominal for each in quotas]
        self.borrowing = [each.borrowing_limit for each in quotas]
        self.subtree = list(self.nominal)
        self.held = [0] * len(quotas)
        self.used = [0] * len(quotas)
        self.reach = [0] * len(quotas)
        self.over: list[dict[Node, None]] = [{} for _ in quotas]
        self.children: list[Node] = []
        self.cohorts: list[Node] = []
        self.height = 0
        self.lendable: list[int] = []
        self.path: tuple[Node, ...] = ()
        if parent is not None:
            parent.children.append(self)

    def lend(self, quotas: Sequence[Quota]) -> None:
        """Sums up what there is from the leaves to this node; `quotas` are its own."""
        for key, quota in enumerate(quotas):
            self.subtree[key] = quota.nominal + sum(each.subtree[key] - each.held[key] for each in self.children)
            if quota.lending_limit is not None:
                self.held[key] = max(0, self.subtree[key] - quota.lending_limit)
        self.cohorts = [each for each in self.children if not each.leaf]
        if self.children:
            self.height = 1 + max(each.height for each in self.children)

    def measure(self, resources: Sequence[int], kinds: int) -> None:
        """Sets what depends on the nodes above: the path, the most that can be had, and that by resource."""
        parent = self.parent
        self.path = () if parent is None else (parent, *parent.path)
        for key, has in enumerate(self.subtree):
            most = has
            if parent is not None:
                most = self.held[key] + parent.reach[key]
                limit = self.borrowing[key]
                if limit is not None:
                    most = min(most, has + limit)
            self.reach[key] = most
        self.lendable = [0] * kinds
        for key, kind in enumerate(resources):
            self.lendable[kind] += self.reach[key]

    @property
    def root(self) -> "Node":
        """The top of the tree; the node itself where it has no parent."""
        return self.path[-1] if self.path else self

    def local(self, key: int) -> int:
        """What is free of what the node holds back."""
        return max(0, self.held[key] - self.used[key])

    def available(self, key: int) -> int:
        """What may still be taken, here and above; below zero where more is used than there is."""
        local, least = 0, None
        node = self
        while node.parent is not None:
            used, held = node.used[key], node.held[key]
            limit = node.borrowing[key]
            if limit is not None:
                # What is free beyond what the node holds back, and what those below hold back.
                most = local + node.subtree[key] + limit - max(used, held)
                if used < held:
                    most += held - used
                if least is None or most < least:
                    least = most
            if used < held:
                local += held - used
            node = node.parent
        free = local + node.subtree[key] - node.used[key]
        return free if least is None or free < least else least

    def borrows(self, key: int, more: int = 0) -> bool:
        """Whether the node uses more than it has, or would with so much more."""
        return self.used[key] + more > self.subtree[key]

    def add(self, key: int, amount: int) -> None:
        """Uses more; the parent sees what is beyond what is held back."""
        at: Node | None = self
        while at is not None and amount:
            before = at.used[key]
            beyond = amount - max(0, at.held[key] - before)
            at.used[key] = before + amount
            if before <= at.subtree[key] < before + amount and at.parent is not None:
                at.parent.over[key][at] = None
            if beyond <= 0:
                return
            at, amount = at.parent, beyond

    def remove(self, key: int, amount: int) -> None:
        """Undoes `add`."""
        at: Node | None = self
        while at is not None and amount:
            before = at.used[key]
            stored = before - at.held[key]
            at.used[key] = before - amount
            if before > at.subtree[key] >= before - amount and at.parent is not None:
                at.parent.over[key].pop(at, None)
            if stored <= 0:
                return
            at, amount = at.parent, min(amount, stored)

    def use(self, asks: Asks) -> None:
        """Adds all of it."""
        for key, amount in asks:
            self.add(key, amount)

    def free(self, asks: Asks) -> None:
        """Removes all of it."""
        for key, amount in asks:
            self.remove(key, amount)

    def fits(self, asks: Asks) -> bool:
        """Whether all of it may be taken."""
        for key, amount in asks:  # noqa: SIM110 - asked for each head of each cycle
            if amount > max(0, self.available(key)):
                return False
        return True

    def within(self, keys: frozenset[int]) -> bool:
        """Whether the node uses no more than it has, in each of these."""
        used, has = self.used, self.subtree
        for key in keys:  # noqa: SIM110 - asked for each candidate of each head
            if used[key] > has[key]:
                return False
        return True

    def over_in(self, keys: frozenset[int]) -> Iterator["Node"]:
        """The children that use more than they have in at least one of these."""
        if len(keys) == 1:
            (key,) = keys
            return iter(tuple(self.over[key]))
        return iter({child: None for key in sorted(keys) for child in self.over[key]})


def edges(queue: Node) -> Iterator[tuple[Node, Node]]:
    """Each node from a queue up, with its parent."""
    return zip((queue, *queue.path), queue.path, strict=False)


def distance(queue: Node, key: int, amount: int) -> tuple[int, bool]:
    """How far up the lowest node lies that has room for so much more on its own: 0 is the queue, no borrowing.

    The second is whether there is a node above it, from which quota could be reclaimed. Where nothing has room it is
    the whole tree's height, and False.
    """
    if queue.parent is None or not queue.borrows(key, amount):
        return 0, queue.parent is not None
    left = amount - queue.local(key)
    for node in queue.path:
        if not node.borrows(key, left):
            return node.height, node.parent is not None
        left -= node.local(key)
    return queue.root.height, False
