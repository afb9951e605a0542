"""Who could be preempted in a tree, gathered once for all heads of a cycle.

The heads of a cycle are judged on the same state, so what one of them finds out about the others' workloads holds for
the next. A pool is for one cycle: whatever is admitted or leaves makes it void.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from model.admission.candidates import order, uses
from model.admission.claims import Claim, Queue
from model.admission.quota import Node
from model.admission.shares import Share, borrows_any, share
from model.admission.spec import Policy

Key: TypeAlias = tuple[frozenset[int], Policy, int]
"""What is contested, by which policy and priority: all that decides who is a candidate elsewhere."""

Sides: TypeAlias = tuple[Sequence[Claim], Sequence[Claim]]
"""Those whose eviction is under way, and the others."""


class Rank(NamedTuple):
    """A queue's turn to lose a workload: the largest share first, then the first candidate in the order of victims."""

    weightless: int
    value: float
    victim: tuple[bool, bool, int, int, int]

    @classmethod
    def of(cls, size: Share, victim: tuple[bool, bool, int, int, int]) -> "Rank":
        """A rank sorts ascending, a share descending."""
        return cls(-int(size.weightless), -size.value, victim)


class Ranked(NamedTuple):
    """The candidates elsewhere, for fair sharing.

    Attributes:
        claims: of each queue, the first one last.
        holders: the cohorts that hold any of these queues, whether they borrow or not.
        queues: of each cohort its queues, the next to lose a workload last.
        cohorts: of each cohort those below it that borrow and hold any of these queues, the next one last.
    """

    claims: dict[Queue, list[Claim]]
    queues: dict[Node, list[tuple[Rank, Queue]]]
    cohorts: dict[Node, list[tuple[Share, int, Node]]]
    holders: dict[Node, None]


class Pool:
    """Candidates and shares of one tree in one state."""

    def __init__(self, resources: list[int]) -> None:
        self.resources = resources
        self._borrowers: dict[frozenset[int], list[Queue]] = {}
        self._claims: dict[frozenset[int], Sides] = {}
        self._ranked: dict[Key, Ranked] = {}
        self._shares: dict[Node, Share] = {}

    def share(self, node: Node) -> Share:
        """A node's share in this state."""
        found = self._shares.get(node)
        if found is None:
            found = self._shares[node] = share(node, self.resources)
        return found

    def borrowers(self, root: Node, contested: frozenset[int]) -> list[Queue]:
        """The queues of the tree that use more than they have of something that is contested."""
        found = self._borrowers.get(contested)
        if found is None:
            found = self._borrowers[contested] = list(_borrowing(root, contested))
        return found

    def claims(self, root: Node, contested: frozenset[int]) -> Sides:
        """What runs from these queues and uses something that is contested, in the order of victims."""
        found = self._claims.get(contested)
        if found is None:
            running = (each for queue in self.borrowers(root, contested) for each in queue.running)
            claims = sorted((each for each in running if uses(each, contested)), key=_elsewhere)
            evicting = sum(each.evicting for each in claims)
            found = self._claims[contested] = (claims[:evicting], claims[evicting:])
        return found

    def ranked(self, root: Node, key: Key) -> Ranked:
        """The candidates of these queues by share."""
        found = self._ranked.get(key)
        if found is None:
            found = self._ranked[key] = self._rank(root, key)
        return found

    def _rank(self, root: Node, key: Key) -> Ranked:
        contested, policy, priority = key
        ranked = Ranked({}, {}, {}, {})
        first, second = (tuple(below(side, policy, priority)) for side in self.claims(root, contested))
        for claim in (*reversed(second), *reversed(first)):
            ranked.claims.setdefault(claim.queue, []).append(claim)
        for queue, claims in ranked.claims.items():
            rank = Rank.of(self.share(queue), _elsewhere(claims[-1]))
            ranked.queues.setdefault(queue.path[0], []).append((rank, queue))
            ranked.holders.update(dict.fromkeys(queue.path))
        for cohort in ranked.holders:
            if cohort.parent is not None and borrows_any(cohort):
                entry = (self.share(cohort), -cohort.position, cohort)
                ranked.cohorts.setdefault(cohort.parent, []).append(entry)
        for queues in ranked.queues.values():
            queues.sort(key=lambda each: each[0], reverse=True)
        for cohorts in ranked.cohorts.values():
            cohorts.sort(key=lambda each: each[:2])
        return ranked


def below(claims: Sequence[Claim], policy: Policy, priority: int) -> Iterable[Claim]:
    """Those that a policy of reclaim lets a workload of a priority preempt."""
    if policy is Policy.ANY:
        return claims
    return (each for each in claims if each.priority < priority)


def _borrowing(root: Node, contested: frozenset[int]) -> Iterator[Queue]:
    todo = [root]
    while todo:
        node = todo.pop()
        # A cohort within its quota may still hold a queue that borrows from its siblings.
        todo += node.cohorts
        yield from (each for each in node.over_in(contested) if isinstance(each, Queue))


def _elsewhere(claim: Claim) -> tuple[bool, bool, int, int, int]:
    return order(None, claim)
