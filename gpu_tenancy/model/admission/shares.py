"""Fair sharing's measure: how much a node borrows of what could be lent to it, divided by its weight.

The measure is Kueue's dominant resource share: for each resource, what the node uses beyond its own quota over what
its parent could reach, in thousandths; the largest counts. It is computed in floating point as there, so that equal
shares are equal here too. Rules: KEP 1714.
"""

from typing import NamedTuple

from gpu_tenancy.model.admission.quota import Asks, Node


class Share(NamedTuple):
    """Comparable: a borrower of weight 0 stands above all others.

    Attributes:
        weightless: whether it borrows with a weight of 0; then `value` is not divided.
        value: thousandths of what could be lent, over the weight.
    """

    weightless: bool
    value: float


NOTHING = Share(weightless=False, value=0.0)
"""The share of what borrows nothing."""


def share(node: Node, resources: list[int]) -> Share:
    """A node's share; `resources` names the resource of each flavor and resource."""
    parent = node.parent
    if parent is None:
        return NOTHING
    borrowed: dict[int, int] = {}
    for key, (used, has) in enumerate(zip(node.used, node.subtree, strict=True)):
        if used > has:
            kind = resources[key]
            borrowed[kind] = borrowed.get(kind, 0) + used - has
    ratio = 0.0
    for kind, amount in borrowed.items():
        lendable = parent.lendable[kind]
        if lendable > 0:
            ratio = max(ratio, float(amount) * 1000.0 / float(lendable))
    if ratio == 0.0:
        return NOTHING
    if node.weight == 0:
        return Share(weightless=True, value=ratio)
    return Share(weightless=False, value=ratio / node.weight)


def borrows_any(node: Node) -> bool:
    """Whether a node uses more than it has of anything; a root borrows from nobody."""
    return node.parent is not None and any(used > has for used, has in zip(node.used, node.subtree, strict=True))


def borrows_for(node: Node, asks: Asks) -> bool:
    """Whether a node uses more than it has of something that is asked for."""
    return node.parent is not None and any(amount > 0 and node.borrows(key) for key, amount in asks)
