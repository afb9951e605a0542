"""Kueue's dominant resource share: what a node borrows of what could be lent to it, divided by its weight.

For each resource, the usage beyond the subtree quota over the parent's lendable quota, in thousandths; the largest
counts. It is computed in floating point as in Kueue, so that shares that are equal there are equal here.
Rules: pkg/cache/scheduler/fair_sharing.go of kubernetes-sigs/kueue at v0.19.2, KEP 1714.
"""

from typing import Final, NamedTuple

from gpu_tenancy.kueue.resource_node import Amounts, Node


class DominantResourceShare(NamedTuple):
    """Comparable: a borrower of weight 0 has a larger share than all others.

    Attributes:
        weightless: whether it borrows with a weight of 0; then `value` is not divided by it.
        value: thousandths of the lendable quota, divided by the weight.
    """

    weightless: bool
    value: float


NO_SHARE: Final = DominantResourceShare(weightless=False, value=0.0)
"""The share of a node that borrows nothing."""


def share(node: Node, resources: list[int]) -> DominantResourceShare:
    """The share of a node; `resources` are the numbers of the keys' resources."""
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
    """Whether a node borrows any resource; a root has nobody to borrow from."""
    if node.parent is None:
        return False
    return any(usage > quota for usage, quota in zip(node.usage, node.subtree_quota, strict=True))


def is_borrowing_any_of(node: Node, amounts: Amounts) -> bool:
    """Whether a node borrows something that is requested."""
    return node.parent is not None and any(amount > 0 and node.borrowing_with(key) for key, amount in amounts)
