"""Proofs that a workload which found nothing will find nothing again, until something it stands on has changed.

Whatever ends in a tree brings everybody who waits in it back to be looked at, and almost all of them find what they
found before. A proof saves that look. It stands on amounts in use that must not fall, on shares that others must not
reach, and on the workload's own queue, in which nothing may come to run or leave. Where the reasons are of another
kind there is no proof, and the workload is looked at as often as Kueue looks at it.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from gpu_tenancy.model.admission.candidates import permits
from gpu_tenancy.model.admission.claims import Claim, Group, Queue
from gpu_tenancy.model.admission.pool import Pool
from gpu_tenancy.model.admission.quota import Node, edges
from gpu_tenancy.model.admission.shares import Share, share_of
from gpu_tenancy.model.admission.spec import Policy
from gpu_tenancy.model.admission.verdicts import Verdict


class Standing(Enum):
    """How a proof stands."""

    HOLDS = auto()
    DOUBTFUL = auto()
    FALLEN = auto()


@dataclass(slots=True)
class Grounds:
    """What a proof stands on.

    Attributes:
        bounds: nodes that must use more than so much of a flavor and resource.
        shares: cohorts in which none of the children but one may come to such a share.
        lower: flavors and resources of which nobody in another queue, of a lower priority than so much, may borrow.
    """

    bounds: list[tuple[Node, int, int]] = field(default_factory=list[tuple[Node, int, int]])
    shares: list[tuple[Node, Node, Share]] = field(default_factory=list[tuple[Node, Node, Share]])
    lower: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add(self, other: "Grounds") -> None:
        """Stands on these too."""
        self.bounds += other.bounds
        self.shares += other.shares
        self.lower += other.lower


@dataclass(slots=True, eq=False)
class Proof:
    """Why workloads of one shape find nothing in their queue.

    Attributes:
        verdict: what the scheduler said when it looked.
        standing: doubtful is what may hold again when another has taken what became free; what has fallen never does.
    """

    queue: Queue
    shape: Hashable
    verdict: Verdict | None
    grounds: Grounds = field(default_factory=Grounds)
    standing: Standing = Standing.HOLDS

    def true(self, pool: Pool) -> bool:
        """Whether all that it stands on is so, as the tree is now."""
        grounds = self.grounds
        return (
            all(node.used[key] > bound for node, key, bound in grounds.bounds)
            and all(pool.nobody_lower(key, priority, self.queue) for key, priority in grounds.lower)
            and not any(
                (other := pool.largest(cohort, node)) is not None and other >= size
                for cohort, node, size in grounds.shares
            )
        )


def prove(claim: Claim, pool: Pool, *, fair: bool) -> Proof | None:
    """A proof that a workload finds nothing, as the tree is now; None where there is none of these kinds.

    One pod set suffices that no flavor suits, and of each flavor one resource.
    """
    queue = claim.queue
    if queue.keeps and ((fair and len(queue.path) > 1) or only_want(claim) is None):
        # Such a workload keeps room free while it waits, and how much is no simple matter.
        return None
    for index, asks in enumerate(claim.asks):
        allowed = claim.workload.pod_sets[index].flavors
        groups: dict[int, Group] = {}
        for resource, amount in asks.items():
            group = queue.group_of.get(resource)
            if group is None:
                if amount:
                    return Proof(queue, claim.shape, claim.verdict)
            else:
                groups[id(group)] = group
        for group in groups.values():
            grounds = Grounds()
            if all(
                any(
                    _lacks(_Want(claim, keys[resource], amount), grounds, pool, fair=fair)
                    for resource, amount in asks.items()
                    if resource in keys
                )
                for name, keys in group.flavors
                if allowed is None or name in allowed
            ):
                return Proof(queue, claim.shape, claim.verdict, grounds)
    return None


def only_want(claim: Claim) -> tuple[int, int] | None:
    """The one thing and the amount that a workload asks for; None where there are several, or a choice of flavors."""
    if claim.settled is None or len(claim.asks) != 1 or len(claim.asks[0]) != 1:
        return None
    return claim.settled[0]


class _Want:
    """An amount of one flavor and resource that a workload asks for at least."""

    def __init__(self, claim: Claim, key: int, amount: int) -> None:
        self.claim = claim
        self.queue = claim.queue
        self.key = key
        self.amount = amount
        policy = claim.queue.spec.preemption.within
        # Of workloads of one shape an older one may come back, and preempt more of its equals than this one.
        self.own = [
            each
            for each in claim.queue.running
            if permits(policy, claim, each) or (policy is Policy.LOWER_OR_NEWER and each.priority == claim.priority)
        ]
        # Then nothing else can be contested.
        self.only = len(claim.asks) == 1 and len(claim.asks[0]) == 1
        self.freed = sum(amount for each in self.own for at, amount in each.usage if at == key)


def _lacks(want: _Want, grounds: Grounds, pool: Pool, *, fair: bool) -> bool:
    """Whether it is sure not to be had, by preemption neither; then the proof stands on what that depends on."""
    queue, key = want.queue, want.key
    if want.amount > queue.reach[key]:
        return True
    if queue.parent is None:
        return want.amount > queue.subtree[key] - queue.used[key] + want.freed
    limit = queue.borrowing[key]
    if limit is not None and want.amount + queue.used[key] - queue.subtree[key] > limit + want.freed:
        return True
    short = _short(want)
    elsewhere = Grounds()
    if short is None:
        return False
    if queue.spec.preemption.reclaim is not Policy.NEVER:
        found = _nobody_lower(want, pool) or (_no_fairer(want, pool) if fair else _no_advantage(want))
        if found is None:
            return False
        elsewhere = found
    grounds.add(short)
    grounds.add(elsewhere)
    return True


def _short(want: _Want) -> Grounds | None:
    """There is too little, even if the queue's own candidates go."""
    key = want.key
    local = 0
    grounds = Grounds()
    for node in (want.queue, *want.queue.path):
        limit = 0 if node.parent is None else node.borrowing[key]
        if limit is not None:
            least = node.subtree[key] + limit + local + want.freed - want.amount
            if node.used[key] > least:
                # What happens in the queue itself ends its proofs anyway.
                grounds.bounds += [] if node is want.queue else [(node, key, least)]
                return grounds
        local += node.local(key)
        grounds.bounds += _kept(node, key, want.queue)
    return None


def _nobody_lower(want: _Want, pool: Pool) -> Grounds | None:
    """Nobody in another queue is of a lower priority, and of no other may it take anything."""
    claim, key = want.claim, want.key
    if not want.only or claim.queue.spec.preemption.reclaim is not Policy.LOWER:
        return None
    if not pool.nobody_lower(key, claim.priority, claim.queue):
        return None
    return Grounds(lower=[(key, claim.priority)])


def _no_advantage(want: _Want) -> Grounds | None:
    """Without fair sharing: it would borrow all the way up, and may not take from others for that."""
    queue, key, left = want.queue, want.key, want.amount
    if queue.spec.preemption.borrow is not None or want.amount <= queue.subtree[key] - queue.used[key] + want.freed:
        return None
    grounds = Grounds()
    for node in (queue, *queue.path[:-1]):
        if node.used[key] + left <= node.subtree[key]:
            return None
        if node is not queue:
            grounds.bounds.append((node, key, node.subtree[key] - left))
        left = max(0, left - node.local(key))
        grounds.bounds += _kept(node, key, queue)
    return grounds


def _no_fairer(want: _Want, pool: Pool) -> Grounds | None:
    """With fair sharing: with it the share would be larger than any other's, at every level."""
    queue, key = want.queue, want.key
    if want.own or queue.used[key] + want.amount <= queue.subtree[key]:
        return None
    left = want.amount
    grounds = Grounds()
    for node, cohort in edges(queue):
        mine = _share_with(node, key, left, pool)
        other = pool.largest(cohort, node)
        if other is not None and other >= mine:
            return None
        grounds.shares.append((cohort, node, mine))
        if node is not queue:
            grounds.bounds.append((node, key, node.used[key] - 1))
        left = max(0, left - node.local(key))
    return grounds


def _share_with(node: Node, key: int, amount: int, pool: Pool) -> Share:
    """The share that a node would have at least with so much more."""
    return share_of(node, pool.resources[key], node.used[key] + amount - node.subtree[key])


def _kept(node: Node, key: int, queue: Queue) -> Iterator[tuple[Node, int, int]]:
    """What a node holds back for itself and uses must not become free."""
    if node is not queue and node.held[key]:
        yield node, key, min(node.held[key], node.used[key]) - 1
