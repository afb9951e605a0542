"""Who is looked at in a tree's cycles, and who is left asleep because a look is known to find nothing.

Kueue brings back everybody who is aside when anything has ended, and looks at one workload of each queue in a cycle.
Here a queue stays asleep as long as proofs hold for all who wait in it; that changes nothing about who is admitted, who
is evicted and when. Whoever is asleep still has a turn, at the same cycle as in Kueue: until then a proof may fall, and
some who find nothing matter to others by waiting.
"""

from collections.abc import Iterable, Iterator, Sequence

from gpu_tenancy.model.admission.claims import Claim, Queue
from gpu_tenancy.model.admission.forest import Tree
from gpu_tenancy.model.admission.pool import Pool
from gpu_tenancy.model.admission.proofs import Proof, Standing, prove
from gpu_tenancy.model.admission.quota import Node
from gpu_tenancy.model.admission.watch import Watch


class Attention:
    """The waiting side of a tree.

    Attributes:
        cycle: how many scheduling cycles there were.
    """

    def __init__(self, tree: Tree, pool: Pool) -> None:
        self.cycle = 0
        self._lines = tree.lines
        self._fair = tree.fair is not None
        self._pool = pool
        self._keepers = [queue for queue in tree.lines if queue.keeps]
        # A StrictFIFO queue's head is looked at in every cycle, the others when all are brought back.
        self._strict, self._others = Watch(tree.resources), Watch(tree.resources)
        # Queues in which somebody is in line, and may find something.
        self._awake: dict[Queue, None] = {}
        # Queues in which somebody is aside who may find something when all of those are brought back.
        self._restless: dict[Queue, None] = {}
        # While all of those have their turns: the last cycle before.
        self._since: int | None = None
        # By cycle, the proofs in doubt of workloads that have their turn in it; and those of other workloads.
        self._due: dict[int, list[Proof]] = {}
        self._doubtful: dict[Proof, None] = {}

    def arrive(self, claim: Claim) -> None:
        """A workload comes to wait."""
        line = self._lines[claim.queue]
        line.arrive(claim)
        if line:
            self._awake[claim.queue] = None

    def forget(self, claim: Claim) -> None:
        """A workload has ended that may have waited."""
        line = self._lines[claim.queue]
        line.forget(claim)
        if line:
            self._awake[claim.queue] = None
        elif not line.proven:
            self._restless[claim.queue] = None

    def left(self, queue: Queue) -> None:
        """Something that ran in a queue has left."""
        self._strict.left(queue)
        self._others.left(queue)

    def came(self, claim: Claim) -> None:
        """A workload runs that has waited."""
        self._lines[claim.queue].forget(claim)
        self._strict.came(claim.queue)
        self._others.came(claim.queue)

    def bring_back(self) -> None:
        """All who are aside have their turns, one of each queue in a cycle, as long as somebody changes anything."""
        self._since = self.cycle
        for queue in (*self._restless, *self._awake):
            self._lines[queue].wake()
            self._awake[queue] = None
        self._restless.clear()
        doubtful, self._doubtful = self._doubtful, {}
        for proof in doubtful:
            self._doubt(proof)

    def heads(self) -> list[Claim]:
        """Begins a cycle: whose turn it is, but for those left asleep; nobody where nothing can change any more."""
        while True:
            self._stir()
            heads: list[Claim] = []
            for queue in tuple(self._awake):
                head = self._lines[queue].head
                if head is None:
                    del self._awake[queue]
                else:
                    heads.append(head)
            if heads or not self._due:
                self.cycle += bool(heads)
                return heads
            # Until then everybody has a turn and finds nothing.
            self.cycle = min(self._due) - 1

    def rest(self) -> None:
        """There are no cycles for now."""
        self._since = None
        self._doubtful |= dict.fromkeys(proof for proofs in self._due.values() for proof in proofs)
        self._due.clear()

    def knows(self, claim: Claim) -> bool:
        """Whether a head is known to find nothing."""
        return self._holds(self._lines[claim.queue].proofs.get(claim.shape))

    def nothing(self, claim: Claim) -> bool:
        """A head has found nothing: it goes aside, if its queue is not StrictFIFO. Whether it did."""
        line = self._lines[claim.queue]
        proof = prove(claim, self._pool, fair=self._fair)
        if proof is not None:
            line.proofs[claim.shape] = proof
            self._watch(claim.queue).add(proof)
        if line.strict:
            return False
        line.aside(claim)
        if proof is None:
            line.proofs.pop(claim.shape, None)
            self._restless[claim.queue] = None
        return True

    def nothing_again(self, claim: Claim) -> bool:
        """A head that is known to find nothing had its turn; whether it went aside."""
        line = self._lines[claim.queue]
        claim.verdict = line.proofs[claim.shape].verdict
        claim.scan = None  # Whatever flavors it had left to look at, it has looked at them.
        if line.strict:
            del self._awake[claim.queue]
            return False
        line.aside(claim)
        return True

    def more_turns(self) -> bool:
        """Whether somebody left asleep goes aside in this cycle or in a later one."""
        if self._since is None:
            return False
        turns = max((len(line.turns()) for line in self._lines.values() if not line), default=0)
        return self.cycle <= self._since + turns

    def keepers(self, known: Iterable[Claim]) -> Iterator[Claim]:
        """Those known to find nothing, of `known` and of those asleep, that keep room free while they wait."""
        yield from (head for head in known if head.queue.keeps)
        yield from self._asleep(self._keepers)

    def around(self, known: Iterable[Claim], tops: set[Node]) -> Iterator[Claim]:
        """The others known to find nothing that are below some children of the root."""
        yield from (head for head in known if head.queue.top in tops and not head.queue.keeps)
        yield from self._asleep(queue for queue in self._lines if queue.top in tops and not queue.keeps)

    def _asleep(self, queues: Iterable[Queue]) -> Iterator[Claim]:
        """Whose turn it is in this cycle in queues that are left asleep."""
        place = None if self._since is None else self.cycle - self._since - 1
        for queue in queues:
            if queue in self._awake:
                continue
            line = self._lines[queue]
            if line.strict:
                if line.head is not None:
                    yield line.head
            elif place is not None:
                turns = line.turns()
                if place < len(turns):
                    yield turns[place]

    def _stir(self) -> None:
        """Wakes those who may find something after all in the coming cycle."""
        for proof in self._strict.broken():
            self._doubt(proof)
        if self._since is None:
            return
        for proof in self._others.broken():
            self._doubt(proof)
        for proof in self._due.pop(self.cycle + 1, ()):
            line = self._lines[proof.queue]
            if not line and line.proofs.get(proof.shape) is proof and not self._holds(proof):
                line.wake(self.cycle - self._since)
                self._awake[proof.queue] = None

    def _doubt(self, proof: Proof) -> None:
        """A proof does not hold, or not for sure."""
        queue = proof.queue
        line = self._lines[queue]
        if line.proofs.get(proof.shape) is not proof:
            return
        if line:
            self._awake[queue] = None
        if line.strict:
            return
        if self._since is not None and not line:
            place = _place(line.turns(), proof)
            if place is None:
                del line.proofs[proof.shape]
                return
            if place >= self.cycle - self._since:
                self._due.setdefault(self._since + 1 + place, []).append(proof)
                return
        self._doubtful[proof] = None

    def _holds(self, proof: Proof | None) -> bool:
        """Whether a proof holds, or does so again."""
        if proof is None or proof.standing is Standing.FALLEN:
            return False
        if proof.standing is Standing.DOUBTFUL:
            if not proof.true(self._pool):
                return False
            self._watch(proof.queue).again(proof)
            return True
        # Between the times when all are brought back nobody watches those who are not in StrictFIFO queues.
        return self._lines[proof.queue].strict or self._since is not None or proof.true(self._pool)

    def _watch(self, queue: Queue) -> Watch:
        return self._strict if self._lines[queue].strict else self._others


def _place(turns: Sequence[Claim], proof: Proof) -> int | None:
    """When the workloads of a proof have their turn; None where none of them waits any more."""
    return next((place for place, each in enumerate(turns) if each.shape == proof.shape), None)
