"""From a tenancy to its trees: each root with all below it stands alone, since quota never moves between trees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpu_tenancy.model.admission.pending_queue import PendingQueue
from gpu_tenancy.model.admission.quota import Node
from gpu_tenancy.model.admission.spec import ClusterQueue, Cohort, FairStrategy, Quota, ResourceGroup, Tenancy, parents
from gpu_tenancy.model.admission.workload_info import Group, Queue


@dataclass(eq=False)
class Tree:
    """One tree of cohorts, or one queue without a cohort.

    Attributes:
        names: flavor and resource of each number.
        resources: for each number, the number of its resource.
        lines: who waits at each queue.
        fair: the strategies of fair sharing; None where it is off.
    """

    names: tuple[tuple[str, str], ...]
    resources: list[int]
    fair: tuple[FairStrategy, ...] | None
    queues: dict[str, Queue] = field(default_factory=dict[str, Queue])
    cohorts: dict[str, Node] = field(default_factory=dict[str, Node])
    lines: dict[Queue, PendingQueue] = field(default_factory=dict[Queue, PendingQueue])


def grow(tenancy: Tenancy) -> list[Tree]:
    """The trees of a tenancy, in the order of its queues.

    Raises:
        ValueError: a name twice, a cycle of cohorts, or a resource in two groups of a queue.
    """
    above = parents(tenancy)
    roots: dict[str, str] = {}
    for name in above:
        top = name
        while (parent := above[top]) is not None:
            top = parent
        roots[name] = top
    members: dict[tuple[str, str], list[ClusterQueue]] = {}
    for queue in tenancy.queues:
        # A queue alone and a cohort may have the same name.
        place = ("queue", queue.name) if queue.cohort is None else ("cohort", roots[queue.cohort])
        members.setdefault(place, []).append(queue)
    declared = {each.name: each for each in tenancy.cohorts}
    return [
        _tree(
            queues,
            [declared.get(name, Cohort(name)) for name in above if kind == "cohort" and roots[name] == root],
            tenancy.fair_sharing,
        )
        for (kind, root), queues in members.items()
    ]


def _tree(queues: Sequence[ClusterQueue], cohorts: Sequence[Cohort], fair: tuple[FairStrategy, ...] | None) -> Tree:
    pairs = dict.fromkeys(
        (flavor.flavor, resource)
        for owner in (*queues, *cohorts)
        for group in owner.groups
        for flavor in group.flavors
        for resource in flavor.resources
    )
    keys = {pair: number for number, pair in enumerate(pairs)}
    kinds = {resource: number for number, resource in enumerate(dict.fromkeys(resource for _, resource in pairs))}
    tree = Tree(tuple(pairs), [kinds[resource] for _, resource in pairs], fair)
    own: dict[Node, list[Quota]] = {}
    by_name = {each.name: each for each in cohorts}

    def cohort(name: str) -> Node:
        if name not in tree.cohorts:
            each = by_name[name]
            quotas = _quotas(each.groups, keys)
            parent = None if each.parent is None else cohort(each.parent)
            tree.cohorts[name] = Node(name, parent, each.weight, quotas, len(tree.cohorts))
            own[tree.cohorts[name]] = quotas
        return tree.cohorts[name]

    for each in cohorts:
        cohort(each.name)
    for position, queue in enumerate(queues):
        quotas = _quotas(queue.groups, keys)
        parent = None if queue.cohort is None else cohort(queue.cohort)
        node = Queue(queue, parent, quotas, _groups(queue, keys), position)
        own[node] = quotas
        tree.queues[queue.name] = node
        tree.lines[node] = PendingQueue(queue.strategy)
    for root in [each for each in own if each.parent is None]:
        _sum_up(root, own)
        _measure(root, tree.resources, len(kinds))
    return tree


def _sum_up(node: Node, own: Mapping[Node, list[Quota]]) -> None:
    for child in node.children:
        _sum_up(child, own)
    node.lend(own[node])


def _measure(node: Node, resources: Sequence[int], kinds: int) -> None:
    node.measure(resources, kinds)
    for child in node.children:
        _measure(child, resources, kinds)


def _quotas(groups: Sequence[ResourceGroup], keys: Mapping[tuple[str, str], int]) -> list[Quota]:
    quotas = [Quota()] * len(keys)
    for group in groups:
        for flavor in group.flavors:
            for resource, quota in flavor.resources.items():
                quotas[keys[flavor.flavor, resource]] = quota
    return quotas


def _groups(queue: ClusterQueue, keys: Mapping[tuple[str, str], int]) -> tuple[Group, ...]:
    seen: set[str] = set()
    groups: list[Group] = []
    for group in queue.groups:
        covered = group.covered
        twice = sorted(seen & covered)
        if twice:
            msg = f"ClusterQueue {queue.name}: {', '.join(twice)} is covered by two resource groups"
            raise ValueError(msg)
        seen |= covered
        for flavor in group.flavors:
            lacking = sorted(covered - set(flavor.resources))
            if lacking:
                msg = f"ClusterQueue {queue.name}: flavor {flavor.flavor} has no quota for {', '.join(lacking)}"
                raise ValueError(msg)
        flavors = tuple(
            (each.flavor, {resource: keys[each.flavor, resource] for resource in each.resources})
            for each in group.flavors
        )
        groups.append(Group(covered, flavors))
    return tuple(groups)
