"""The cohort trees of a tenancy. Each root with all below it stands alone, since quota never moves between trees."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpu_tenancy.kueue.api import ClusterQueue, Cohort, FairStrategy, FlavorResource, Quota, Tenancy, parents
from gpu_tenancy.kueue.resource_node import Node
from gpu_tenancy.kueue.workload_info import Queue


@dataclass(eq=False)
class CohortTree:
    """One tree of cohorts, or one ClusterQueue without a cohort.

    Attributes:
        names: the flavor and resource of each key.
        resources: the number of each key's resource.
        fair: the preemption strategies of fair sharing; None where it is off.
    """

    names: tuple[FlavorResource, ...]
    resources: list[int]
    fair: tuple[FairStrategy, ...] | None
    queues: dict[str, Queue] = field(default_factory=dict[str, Queue])
    cohorts: dict[str, Node] = field(default_factory=dict[str, Node])


def cohort_trees(tenancy: Tenancy, used: Iterable[FlavorResource] = ()) -> list[CohortTree]:
    """The trees of a tenancy, in the order of its ClusterQueues.

    Args:
        tenancy: ClusterQueues and cohorts.
        used: flavors and resources that may have usage although no quota is set.

    Raises:
        ValueError: a duplicate name, or a cycle of cohorts.
    """
    parent_of = parents(tenancy)
    roots: dict[str, str] = {}
    for name in parent_of:
        top = name
        while (parent := parent_of[top]) is not None:
            top = parent
        roots[name] = top
    members: dict[tuple[str, str], list[ClusterQueue]] = {}
    for queue in tenancy.queues:
        # A ClusterQueue without a cohort and a cohort may have the same name.
        place = ("queue", queue.name) if queue.cohort is None else ("cohort", roots[queue.cohort])
        members.setdefault(place, []).append(queue)
    declared = {cohort.name: cohort for cohort in tenancy.cohorts}
    more = tuple(used)
    return [
        _tree(
            queues,
            [declared.get(name, Cohort(name)) for name in parent_of if kind == "cohort" and roots[name] == root],
            tenancy.fair_sharing,
            more,
        )
        for (kind, root), queues in members.items()
    ]


def _tree(
    queues: Sequence[ClusterQueue],
    cohorts: Sequence[Cohort],
    fair: tuple[FairStrategy, ...] | None,
    more: Sequence[FlavorResource],
) -> CohortTree:
    names = dict.fromkeys((*(name for owner in (*queues, *cohorts) for name in owner.quotas), *more))
    keys = {name: key for key, name in enumerate(names)}
    kinds = {resource: number for number, resource in enumerate(dict.fromkeys(resource for _, resource in names))}
    tree = CohortTree(tuple(names), [kinds[resource] for _, resource in names], fair)
    quotas_of: dict[Node, list[Quota]] = {}
    by_name = {cohort.name: cohort for cohort in cohorts}

    def cohort_node(name: str) -> Node:
        if name not in tree.cohorts:
            cohort = by_name[name]
            quotas = _by_key(cohort.quotas, keys)
            parent = None if cohort.parent is None else cohort_node(cohort.parent)
            tree.cohorts[name] = Node(name, parent, cohort.weight, quotas, len(tree.cohorts))
            quotas_of[tree.cohorts[name]] = quotas
        return tree.cohorts[name]

    for cohort in cohorts:
        cohort_node(cohort.name)
    for position, queue in enumerate(queues):
        quotas = _by_key(queue.quotas, keys)
        parent = None if queue.cohort is None else cohort_node(queue.cohort)
        node = Queue(queue, parent, quotas, keys, position)
        quotas_of[node] = quotas
        tree.queues[queue.name] = node
    for root in [node for node in quotas_of if node.parent is None]:
        _sum_up(root, quotas_of)
        _hand_down(root, tree.resources, len(kinds))
    return tree


def _sum_up(node: Node, quotas_of: Mapping[Node, list[Quota]]) -> None:
    for child in node.children:
        _sum_up(child, quotas_of)
    node.update_subtree_quota(quotas_of[node])


def _hand_down(node: Node, resources: Sequence[int], kinds: int) -> None:
    node.update_potential_available(resources, kinds)
    for child in node.children:
        _hand_down(child, resources, kinds)


def _by_key(quotas: Mapping[FlavorResource, Quota], keys: Mapping[FlavorResource, int]) -> list[Quota]:
    none = Quota()
    return [quotas.get(name, none) for name in keys]
