"""Usage over time of teams that share a queue: Kueue's AdmissionFairSharing.

Kueue sums what the workloads of a LocalQueue use, each resource by its weight and whatever the flavor, lets the sum
decay, and admits first what the LocalQueue with the smallest sum has pending. It compares LocalQueues of the same
ClusterQueue only, so a queue of one team has no use for it.
https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/keps/4136-admission-fair-sharing
"""

from gpu_tenancy.model.plan.shares import Tree


def by_usage(tree: Tree, queue: str) -> bool:
    """Whether past usage decides which team of a queue is next."""
    return tree.stack.fairness.usage is not None and len(tree.users.get(queue, ())) > 1


def usage_weight(tree: Tree, team: str) -> float | None:
    """Weight of a team's LocalQueue; None if usage does not count in its queue."""
    return (tree.stack.teams[team].usage_weight or 1.0) if by_usage(tree, tree.queue_of(team)) else None
