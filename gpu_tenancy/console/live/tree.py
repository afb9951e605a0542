"""Kueue's cohort tree with its usage: what a queue could use now and at most, and who borrows and lends.

The rules are those of Kueue 0.19 (pkg/cache/scheduler/resource_node.go): a node's quota is its own with its children's;
what a lending limit keeps back never leaves a node; a borrowing limit bounds what it draws from above.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gpu_tenancy.console.cluster.waiting import condition
from gpu_tenancy.console.live.amounts import amount
from gpu_tenancy.console.live.pods import called
from gpu_tenancy.console.offline.wire import Json, at, maps_at, text_at

Line: TypeAlias = tuple[str, str]
"""A flavor and a resource."""

Node: TypeAlias = tuple[Literal["queue", "cohort"], str]


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of one resource of one flavor; None for no bound."""

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Resources that Kueue assigns from one flavor, and the flavors in the order in which it tries them."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A ClusterQueue as Kueue sees it.

    Attributes:
        used: reserved by workloads.
        counted: whether Kueue reports usage; False where it has not seen the queue, or is not running.
        strict: whether its strategy is StrictFIFO.
        reclaims: whether it reclaims its guarantee from borrowers.
        meekly: whether it reclaims from workloads of lower priority only.
        forceful: whether workloads that borrow may preempt others.
        inactive: why the queue admits no workloads; empty where it does.
        stop_policy: `Hold` or `HoldAndDrain`; empty where it is not stopped.
    """

    name: str
    cohort: str = ""
    groups: tuple[Group, ...] = ()
    quotas: Mapping[Line, Quota] = field(default_factory=dict[Line, Quota])
    used: Mapping[Line, int] = field(default_factory=dict[Line, int])
    counted: bool = True
    strict: bool = False
    reclaims: bool = True
    meekly: bool = False
    forceful: bool = False
    inactive: str = ""
    stop_policy: str = ""

    @classmethod
    def of(cls, manifest: Mapping[str, Json]) -> "ClusterQueue":
        """Reads the object."""
        spec = at(manifest, "spec")
        active = condition(manifest, "Active")
        reserved = usage(manifest, "flavorsReservation")
        policy = text_at(manifest, "spec", "stopPolicy")
        policy = "" if policy == "None" else policy
        stopped = f"stopPolicy is {policy}" if policy else ""
        return cls(
            name=called(manifest),
            cohort=text_at(manifest, "spec", "cohortName"),
            groups=_groups(spec if isinstance(spec, dict) else {}),
            quotas=quotas(manifest),
            used=reserved,
            counted=bool(active) or bool(reserved),
            strict=text_at(manifest, "spec", "queueingStrategy") == "StrictFIFO",
            reclaims=text_at(manifest, "spec", "preemption", "reclaimWithinCohort") not in {"", "Never"},
            meekly=text_at(manifest, "spec", "preemption", "reclaimWithinCohort") == "LowerPriority",
            forceful=text_at(manifest, "spec", "preemption", "borrowWithinCohort", "policy") not in {"", "Never"},
            inactive=stopped or (text_at(active, "message") if text_at(active, "status") == "False" else ""),
            stop_policy=policy,
        )


def _groups(spec: Mapping[str, Json]) -> tuple[Group, ...]:
    return tuple(
        Group(
            tuple(str(each) for each in covered) if isinstance(covered := at(group, "coveredResources"), list) else (),
            tuple(text_at(each, "name") for each in maps_at(group, "flavors")),
        )
        for group in maps_at(spec, "resourceGroups")
    )


def quotas(manifest: Mapping[str, Json]) -> dict[Line, Quota]:
    """The quotas of a ClusterQueue or a Cohort."""
    found: dict[Line, Quota] = {}
    for group in maps_at(manifest, "spec", "resourceGroups"):
        for flavor in maps_at(group, "flavors"):
            for line in maps_at(flavor, "resources"):
                name = text_at(line, "name")
                nominal = amount(name, line.get("nominalQuota") or "0")
                bounds = (line.get(key) for key in ("borrowingLimit", "lendingLimit"))
                borrowing, lending = (None if each is None else amount(name, each) for each in bounds)
                found[text_at(flavor, "name"), name] = Quota(nominal, borrowing, lending)
    return found


def usage(manifest: Mapping[str, Json], which: str) -> dict[Line, int]:
    """The usage in the status of a ClusterQueue or LocalQueue."""
    return {
        (text_at(flavor, "name"), name): amount(name, line.get("total") or "0")
        for flavor in maps_at(manifest, "status", which)
        for line in maps_at(flavor, "resources")
        if (name := text_at(line, "name"))
    }


class Tree:
    """All queues and cohorts. A cohort that exists only as a name in queues has no quota of its own."""

    def __init__(self, queues: Iterable[ClusterQueue], cohorts: Iterable[Mapping[str, Json]] = ()) -> None:
        self.queues = {each.name: each for each in queues}
        self._quotas: dict[Node, Mapping[Line, Quota]] = {}
        self._parents: dict[Node, Node] = {}
        for each in cohorts:
            self._put(("cohort", called(each)), text_at(each, "spec", "parentName"), quotas(each))
        for queue in self.queues.values():
            self._put(("queue", queue.name), queue.cohort, queue.quotas)
        self._drop_cycles()
        self._sums: dict[tuple[Node, Line], int] = {}
        self._uses: dict[tuple[Node, Line], int] = {}
        self._children: dict[Node, list[Node]] = defaultdict(list)
        for child, parent in self._parents.items():
            self._children[parent].append(child)

    def _put(self, node: Node, parent: str, found: Mapping[Line, Quota]) -> None:
        self._quotas[node] = found
        if parent:
            self._parents[node] = ("cohort", parent)

    def _drop_cycles(self) -> None:
        """Cuts cycles of cohorts, which an API server accepts and Kueue does not use."""
        for start in [*self._parents]:
            seen, here = {start}, start
            while (above := self._parents.get(here)) is not None:
                if above in seen:
                    del self._parents[here]
                    break
                seen.add(above)
                here = above

    def _quota(self, node: Node, line: Line) -> Quota:
        return self._quotas.get(node, {}).get(line, Quota())

    def _subtree(self, node: Node, line: Line) -> int:
        if (node, line) not in self._sums:
            below = (self._subtree(child, line) - self._kept(child, line) for child in self._children.get(node, ()))
            self._sums[node, line] = self._quota(node, line).nominal + sum(below)
        return self._sums[node, line]

    def _kept(self, node: Node, line: Line) -> int:
        """What the lending limit keeps back."""
        lending = self._quota(node, line).lending
        return 0 if lending is None else max(0, self._subtree(node, line) - lending)

    def _used(self, node: Node, line: Line) -> int:
        if node[0] == "queue":
            return self.queues[node[1]].used.get(line, 0)
        if (node, line) not in self._uses:
            below = (self._used(child, line) - self._kept(child, line) for child in self._children.get(node, ()))
            self._uses[node, line] = sum(max(0, each) for each in below)
        return self._uses[node, line]

    def available(self, queue: str, line: Line) -> int:
        """What a queue can use now without preemption; below zero where quotas were cut."""
        return self._available(("queue", queue), line)

    def _available(self, node: Node, line: Line) -> int:
        used, above = self._used(node, line), self._parents.get(node)
        if above is None:
            return self._subtree(node, line) - used
        kept, bound = self._kept(node, line), self._quota(node, line).borrowing
        found = self._available(above, line)
        if bound is not None:
            found = min(found, self._subtree(node, line) - kept - max(0, used - kept) + bound)
        return max(0, kept - used) + found

    def limit(self, queue: str, line: Line) -> int:
        """What a queue could use if all others released theirs."""
        return self._most(("queue", queue), line)

    def _most(self, node: Node, line: Line) -> int:
        above, own = self._parents.get(node), self._subtree(node, line)
        if above is None:
            return own
        found, bound = self._kept(node, line) + self._most(above, line), self._quota(node, line).borrowing
        return found if bound is None else min(found, own + bound)

    def borrowed(self, queue: str, line: Line) -> int:
        """What a queue uses beyond its guarantee."""
        found = self.queues[queue]
        return max(0, found.used.get(line, 0) - self._quota(("queue", queue), line).nominal)

    def borrowers(self, queue: str, line: Line) -> dict[str, int]:
        """The other queues of the same tree that use more than their guarantee, and by how much; largest first."""
        root = self._root(("queue", queue))
        found = {
            name: self.borrowed(name, line)
            for name in self.queues
            if name != queue and self._root(("queue", name)) == root
        }
        return dict(
            sorted(((name, much) for name, much in found.items() if much), key=lambda each: (-each[1], each[0]))
        )

    def related(self, queue: str) -> tuple[frozenset[str], frozenset[str]]:
        """The queues and the cohorts of the same tree; quota never moves between trees."""
        root = self._root(("queue", queue))
        nodes: set[Node] = {*self._quotas, *self._parents.values()}
        found = [node for node in nodes if self._root(node) == root]
        return (
            frozenset(name for kind, name in found if kind == "queue"),
            frozenset(name for kind, name in found if kind == "cohort"),
        )

    def _root(self, node: Node) -> Node:
        while (above := self._parents.get(node)) is not None:
            node = above
        return node

    def lent(self, queue: str, line: Line) -> int:
        """Upper bound of what others borrow of a queue's idle guarantee.

        Kueue records who borrows, not from whom. So quota that is guaranteed to no queue counts as borrowed first, and
        near cohorts before far ones; the rest came from idle guarantees, from each at most what it had idle.
        """
        node: Node = ("queue", queue)
        above = self._parents.get(node)
        spare = self._spare(node, line)
        return min(spare, self._drawn(above, line)) if above is not None and spare > 0 else 0

    def _spare(self, node: Node, line: Line) -> int:
        """What a node leaves to its parent; below zero what it takes from there."""
        kept = self._kept(node, line)
        return self._subtree(node, line) - kept - max(0, self._used(node, line) - kept)

    def _drawn(self, node: Node, line: Line) -> int:
        """What is borrowed from idle guarantees directly below a cohort, by its own children and by others."""
        lacking = sum(max(0, -self._spare(child, line)) for child in self._children.get(node, ()))
        above, spare = self._parents.get(node), self._spare(node, line)
        beyond = min(spare, self._drawn(above, line)) if above is not None and spare > 0 else 0
        return max(0, lacking + beyond - self._quota(node, line).nominal)
