"""Whether a ClusterQueue would admit some pods, from which flavors, and what has to be released first."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from gpu_tenancy.console.live.amounts import ordered
from gpu_tenancy.console.live.answers import Verdict
from gpu_tenancy.console.live.placing import untolerated, wants
from gpu_tenancy.console.live.pods import Manifest, called
from gpu_tenancy.console.live.tree import ClusterQueue, Line, Tree
from gpu_tenancy.console.live.workloads import PodSet
from gpu_tenancy.console.offline.wire import at, maps_at

Leave = Literal["own", "borrowing", "reclaiming", "others", "own end", "never"]
"""How the pods get quota: from the unused guarantee; by borrowing; by reclaiming what others borrowed; when others
release theirs; when workloads of the same queue end; never."""

ORDER: Final[tuple[Leave, ...]] = ("own", "borrowing", "reclaiming", "others", "own end", "never")
"""The easiest first."""


@dataclass(frozen=True, slots=True)
class Share:
    """One resource of one flavor, as requested from a queue. Amounts are in base units.

    Attributes:
        asked: requested by all pods that were judged so far together with these.
        nominal: the queue's guarantee.
        used: by the queue.
        available: what the queue could use now.
        limit: what the queue could use if all others released theirs.
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
        """What must be released first; 0 for nothing."""
        return max(0, self.asked - self.available)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a flavor cannot be used for some pods, or why a queue cannot admit them at all.

    Attributes:
        flavor: whose labels or taint exclude the pods; empty where no flavor covers the resource.
        taint: as `key=value:effect`; empty where the flavor's labels do not match.
        queue: where no flavor covers the resource.
        resource: that no flavor covers.
    """

    flavor: str = ""
    taint: str = ""
    queue: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a queue offers to one pod set.

    Attributes:
        shares: of the flavors that it would use; empty where there is none.
        refused: flavors that cannot be used.
    """

    pods: PodSet
    shares: tuple[Share, ...]
    refused: tuple[Refusal, ...]

    @property
    def leave(self) -> Leave:
        """The hardest condition of all its resources."""
        if not self.shares:
            return "never" if self.refused else "own"
        return ORDER[max(ORDER.index(share.leave) for share in self.shares)]


VERDICTS: Final[Mapping[Leave, Verdict]] = {
    "own": "now",
    "borrowing": "now",
    "reclaiming": "later",
    "others": "later",
    "own end": "later",
    "never": "never",
}


def judge_queue(tree: Tree, queue: ClusterQueue, flavors: Sequence[Manifest], sets: Iterable[PodSet]) -> list[Taken]:
    """What a queue offers to pod sets that start together."""
    assumed: dict[Line, int] = {}
    offers: list[Taken] = []
    by_name = {called(flavor): flavor for flavor in flavors}
    for pods in sets:
        taken = _set(tree, queue, by_name, pods, assumed)
        offers.append(taken)
        for share in taken.shares:
            assumed[share.flavor, share.resource] = share.asked
    borrows = any(share.used + share.asked > share.nominal for taken in offers for share in taken.shares)
    return [_without_reclaim(taken) for taken in offers] if borrows and not queue.forceful else offers


def _without_reclaim(taken: Taken) -> Taken:
    """A workload that must borrow anything preempts nobody, not even for what it would not have to borrow."""
    shares = (replace(share, leave="others") if share.leave == "reclaiming" else share for share in taken.shares)
    return replace(taken, shares=tuple(shares))


def _set(
    tree: Tree, queue: ClusterQueue, flavors: Mapping[str, Manifest], pods: PodSet, assumed: Mapping[Line, int]
) -> Taken:
    wanted = {name: value for name, value in {**pods.total, "pods": pods.count}.items() if value}
    shares: list[Share] = []
    refused: list[Refusal] = []
    covered: set[str] = set()
    for group in queue.groups:
        covered |= set(group.resources)
        asked = {name: wanted[name] for name in ordered(group.resources) if name in wanted}
        if not asked:
            continue
        choices: list[list[Share]] = []
        for flavor in group.flavors:
            if refusal := unfit(flavor, flavors.get(flavor), pods.spec):
                refused.append(refusal)
                continue
            choices.append([_share(tree, queue, (flavor, name), value, assumed) for name, value in asked.items()])
        if not choices:
            return Taken(pods, (), tuple(refused))
        shares += min(choices, key=_hardness)
    uncovered = [name for name in ordered(wanted) if name not in covered and name != "pods"]
    refused += [Refusal(queue=queue.name, resource=name) for name in uncovered]
    return Taken(pods, () if uncovered else tuple(shares), tuple(refused))


def _hardness(shares: Sequence[Share]) -> tuple[int, float]:
    """Kueue tries flavors in their order, and takes one that must borrow before a second with room of its own.

    Of several flavors that are all too small, the one that could give the largest part explains most.
    """
    hardest = max(0 if share.leave == "borrowing" else ORDER.index(share.leave) for share in shares)
    return hardest, -min(share.limit / share.asked for share in shares) if hardest == ORDER.index("never") else 0


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


def unfit(name: str, flavor: Manifest | None, spec: Manifest) -> Refusal | None:
    """Why a flavor cannot be used for a pod; None where it can, or where the flavor may not be read."""
    if flavor is None:
        return None
    labels = at(flavor, "spec", "nodeLabels")
    own = {key: str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}
    if not wants(spec, own, keys=own):
        return Refusal(flavor=name)
    taint = untolerated(spec, maps_at(flavor, "spec", "nodeTaints"), maps_at(flavor, "spec", "tolerations"))
    return Refusal(flavor=name, taint=taint) if taint else None
