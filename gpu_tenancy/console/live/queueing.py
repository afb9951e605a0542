"""Whether a queue of Kueue's would take some pods, from which flavor, and by whose leave."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from gpu_tenancy.console.live.amounts import ordered, said
from gpu_tenancy.console.live.answers import Verdict
from gpu_tenancy.console.live.placing import untolerated, wants
from gpu_tenancy.console.live.pods import Manifest, called
from gpu_tenancy.console.live.tree import ClusterQueue, Line, Tree
from gpu_tenancy.console.live.workloads import PodSet
from gpu_tenancy.console.offline.wire import at, maps_at

Leave = Literal["own", "borrowing", "reclaiming", "others", "own end", "never"]
"""By whose leave it starts: out of the guarantee; beyond it; out of it, once borrowers gave back; once others leave
theirs; once the queue's own work ends; never."""

ORDER: Final[tuple[Leave, ...]] = ("own", "borrowing", "reclaiming", "others", "own end", "never")
"""The easiest first."""


@dataclass(frozen=True, slots=True)
class Share:
    """One resource of one flavor, as asked of a queue.

    Attributes:
        asked: by all the pods that were judged so far with these.
        nominal: what the queue is guaranteed.
        used: by the queue.
        available: what it could take now.
        limit: the most that it can ever have.
        lacking: what must come free; 0 where nothing must.
    """

    flavor: str
    resource: str
    asked: int
    nominal: int
    used: int
    available: int
    limit: int
    leave: Leave

    @property
    def lacking(self) -> int:
        """What must come free first."""
        return max(0, self.asked - self.available)

    @property
    def numbers(self) -> str:
        """The share without a word on when it starts, where the simulation tells that."""
        nominal, free, limit, used = (
            said(self.resource, each)
            for each in (self.nominal, max(0, self.nominal - self.used), self.limit, self.used)
        )
        head = f"{self.flavor} {self.resource} {said(self.resource, self.asked)}"
        lacks = f"{said(self.resource, self.lacking)} of it missing" if self.lacking else "so much is free now"
        return f"{head}: {lacks} (guaranteed {nominal}, of which {free} are free; limit {limit}, used {used})"

    @property
    def words(self) -> str:
        """The share in a sentence, with its numbers."""
        name = self.resource
        asked, used, limit, lacking = (said(name, each) for each in (self.asked, self.used, self.limit, self.lacking))
        free = said(name, max(0, self.nominal - self.used))
        nominal = said(name, self.nominal)
        head = f"{self.flavor} {name} {asked}"
        own = f"guaranteed {nominal}, of which {free} are free"
        match self.leave:
            case "own":
                return f"{head}: fits now ({own})"
            case "borrowing":
                much = said(name, min(self.asked, self.used + self.asked - self.nominal))
                return f"{head}: fits now, borrowing {much} ({own}; {said(name, self.available)} can be had in all)"
            case "reclaiming":
                return f"{head}: fits after others give back the {lacking} that they borrowed from you ({own})"
            case "others":
                return f"{head}: fits only when others leave {lacking} of theirs ({own}; limit {limit}, used {used})"
            case "own end":
                return f"{head}: fits only when work of your own ends ({own}; limit {limit}, used {used})"
            case "never":
                return f"{head}: never: limit {limit}"


@dataclass(frozen=True, slots=True)
class Taken:
    """What a queue says to one set of pods.

    Attributes:
        shares: of the flavors that it would take; empty where none is for these pods.
        refused: why other flavors are not for them, or why none is.
    """

    pods: PodSet
    shares: tuple[Share, ...]
    refused: tuple[str, ...]

    @property
    def leave(self) -> Leave:
        """The hardest condition of all its resources."""
        if not self.shares:
            return "never" if self.refused else "own"
        return ORDER[max(ORDER.index(each.leave) for each in self.shares)]


VERDICTS: Final[Mapping[Leave, Verdict]] = {
    "own": "now",
    "borrowing": "now",
    "reclaiming": "later",
    "others": "later",
    "own end": "later",
    "never": "never",
}


def judge_queue(tree: Tree, queue: ClusterQueue, flavors: Sequence[Manifest], sets: Iterable[PodSet]) -> list[Taken]:
    """What a queue says to sets of pods that start together."""
    assumed: dict[Line, int] = {}
    found: list[Taken] = []
    for pods in sets:
        taken = _set(tree, queue, {called(each): each for each in flavors}, pods, assumed)
        found.append(taken)
        for share in taken.shares:
            assumed[share.flavor, share.resource] = share.asked
    borrows = any(share.used + share.asked > share.nominal for each in found for share in each.shares)
    return [_meek(each) for each in found] if borrows and not queue.forceful else found


def _meek(taken: Taken) -> Taken:
    """Work that must borrow anything takes nothing from others, not even of what it would not borrow."""
    shares = (replace(each, leave="others") if each.leave == "reclaiming" else each for each in taken.shares)
    return replace(taken, shares=tuple(shares))


def _set(
    tree: Tree, queue: ClusterQueue, flavors: Mapping[str, Manifest], pods: PodSet, assumed: Mapping[Line, int]
) -> Taken:
    wanted = {name: value for name, value in {**pods.total, "pods": pods.count}.items() if value}
    shares: list[Share] = []
    refused: list[str] = []
    covered: set[str] = set()
    for group in queue.groups:
        covered |= set(group.resources)
        asked = {name: wanted[name] for name in ordered(group.resources) if name in wanted}
        if not asked:
            continue
        choices: list[list[Share]] = []
        for flavor in group.flavors:
            if why := unfit(flavor, flavors.get(flavor), pods.spec):
                refused.append(why)
                continue
            choices.append([_share(tree, queue, (flavor, name), value, assumed) for name, value in asked.items()])
        if not choices:
            return Taken(pods, (), tuple(refused))
        shares += min(choices, key=_hardness)
    lacking = [name for name in ordered(wanted) if name not in covered and name != "pods"]
    refused += [f"{name} is in no flavor of queue {queue.name}, so Kueue never admits it" for name in lacking]
    return Taken(pods, () if lacking else tuple(shares), tuple(refused))


def _hardness(shares: Sequence[Share]) -> tuple[int, float]:
    """Kueue tries flavors in their order, and takes one that must borrow before a second with room of its own.

    Of several that can never give it, the one that could give most of it tells most.
    """
    hardest = max(0 if each.leave == "borrowing" else ORDER.index(each.leave) for each in shares)
    return hardest, -min(each.limit / each.asked for each in shares) if hardest == ORDER.index("never") else 0


def _share(tree: Tree, queue: ClusterQueue, line: Line, value: int, assumed: Mapping[Line, int]) -> Share:
    asked = value + assumed.get(line, 0)
    quota = queue.quotas.get(line)
    nominal, used = quota.nominal if quota else 0, queue.used.get(line, 0)
    available, limit = tree.available(queue.name, line), tree.limit(queue.name, line)
    if asked > limit:
        leave: Leave = "never"
    elif asked <= available:
        leave = "own" if used + asked <= nominal else "borrowing"
    elif used + asked <= nominal:
        leave = "reclaiming" if queue.reclaims else "others"
    else:
        leave = "own end" if used + asked > limit else "others"
    return Share(*line, asked, nominal, used, available, limit, leave)


def unfit(name: str, flavor: Manifest | None, spec: Manifest) -> str:
    """Why a flavor is not for a pod; empty where it is, or where the flavor may not be read."""
    if flavor is None:
        return ""
    labels = at(flavor, "spec", "nodeLabels")
    here = {key: str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}
    if not wants(spec, here, keys=here):
        return f"{name} is not what the pod's node selector or affinity asks for"
    taint = untolerated(spec, maps_at(flavor, "spec", "nodeTaints"), maps_at(flavor, "spec", "tolerations"))
    return f"{name} has the taint {taint}, which the pod does not tolerate" if taint else ""
