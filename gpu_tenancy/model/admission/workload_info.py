"""A workload as the simulation sees it, and the queue that it waits in or runs from."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.model.admission.quota import Asks, Node
from gpu_tenancy.model.admission.spec import ClusterQueue, Policy, Quota, Workload
from gpu_tenancy.model.admission.verdicts import Verdict

PODS: Final = "pods"
"""The resource that counts pods, where a queue has a quota of it."""


@dataclass(frozen=True, slots=True)
class Scan:
    """How far an earlier cycle got through the flavors, for each pod set and resource; -1 is all of them."""

    tried: tuple[dict[str, int], ...]
    cycle: int
    generation: int

    @property
    def unfinished(self) -> bool:
        """Whether there are flavors that were not looked at."""
        return any(index != -1 for each in self.tried for index in each.values())


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a running workload had to go, for whom, and at which second of the logical clock."""

    by: str
    reason: str
    at: float


@dataclass(slots=True, eq=False)
class WorkloadInfo:
    """One workload's way through its queue.

    Attributes:
        born: its place in the order of creation, which it keeps when it is evicted.
        shape: what makes two workloads equal to the scheduler.
        asks: amounts of each pod set, by resource.
        flavors: of each pod set, by resource, while it runs.
        usage: what it uses while it runs.
        reserved: the second in which its quota was reserved.
        evicting: whether it still runs although it has been evicted.
        verdict: what the scheduler last said about it; None before it was looked at.
    """

    workload: Workload
    queue: "Queue"
    born: int
    shape: Hashable
    asks: tuple[dict[str, int], ...]
    flavors: tuple[dict[str, str], ...] = ()
    usage: Asks = ()
    reserved: int = 0
    running: bool = False
    evicting: bool = False
    scan: Scan | None = None
    verdict: Verdict | None = None
    evictions: list[Eviction] = field(default_factory=list[Eviction])

    def start(self, usage: Asks, flavors: tuple[dict[str, str], ...], *, second: int) -> None:
        """Its quota is reserved."""
        self.running = True
        self.usage, self.flavors, self.reserved = usage, flavors, second

    @property
    def name(self) -> str:
        """The workload's name."""
        return self.workload.name

    @property
    def priority(self) -> int:
        """The workload's priority."""
        return self.workload.priority


@dataclass(frozen=True, slots=True)
class Group:
    """A resource group, with the number of each flavor and resource.

    Attributes:
        flavors: each flavor's name and the numbers of its resources, in the order of trial.
    """

    covered: frozenset[str]
    flavors: tuple[tuple[str, dict[str, int]], ...]


class Queue(Node):
    """A leaf of the tree with its rules and with what runs from it.

    Attributes:
        generation: counts what has left, so that an old scan of the flavors is recognised.
        keeps: whether its head, when it waits without victims, keeps room free: it cannot be sure to reclaim it.
    """

    leaf = True
    __slots__ = ("generation", "group_of", "keeps", "running", "spec")

    def __init__(
        self, spec: ClusterQueue, parent: Node | None, quotas: list[Quota], groups: tuple[Group, ...], position: int
    ) -> None:
        super().__init__(spec.name, parent, spec.weight, quotas, position)
        self.spec = spec
        self.group_of = {resource: group for group in groups for resource in group.covered}
        self.running: dict[WorkloadInfo, None] = {}
        self.generation = 0
        self.keeps = spec.preemption.reclaim is not Policy.ANY


def claim(workload: Workload, queue: Queue, born: int) -> WorkloadInfo:
    """A workload that arrives at its queue."""
    counts_pods = PODS in queue.group_of
    asks: list[dict[str, int]] = []
    for each in workload.pod_sets:
        wanted = {resource: amount * each.count for resource, amount in each.requests.items()}
        if counts_pods:
            wanted[PODS] = each.count
        asks.append(wanted)
    shape = (
        workload.priority,
        tuple(
            (each.name, each.count, tuple(sorted(each.requests.items())), each.flavors) for each in workload.pod_sets
        ),
    )
    return WorkloadInfo(workload, queue, born, shape, tuple(asks))
