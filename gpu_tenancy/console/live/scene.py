"""The state of a cluster as a scene that the simulation of Kueue plays, as often as one likes and from the same start.

What holds quota is there from the beginning, in the order in which it got it, and what waits stands in its queue.
Who has no part in it is left out: what Kueue does not look at, what waits in a queue that admits nothing, and what is
about to stop and will not come back.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gpu_tenancy.console.cluster.waiting import condition, is_true
from gpu_tenancy.console.live.amounts import said
from gpu_tenancy.console.live.pods import Manifest, called
from gpu_tenancy.console.live.queueing import unfit
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.reading import Kind
from gpu_tenancy.console.live.tenancy import left_out, tenancy
from gpu_tenancy.console.live.tree import Line
from gpu_tenancy.console.live.workloads import PodSet, Workload
from gpu_tenancy.console.offline.wire import text_at
from gpu_tenancy.model import admission

_SEEN: Final[tuple[Kind, ...]] = ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Workload")
"""What must be known of the whole cluster."""
_PODS: Final = "pods"


@dataclass(frozen=True, slots=True)
class Actor:
    """One workload as the scene begins.

    Attributes:
        flavors: of each of its pod sets, the flavor of each resource; None while it waits.
        since: the second in which it got its quota, below 0.
        leaving: it was preempted and still has to stop.
        fixed: nobody may preempt it.
    """

    workload: admission.Workload
    flavors: tuple[Mapping[str, str], ...] | None = None
    since: int = 0
    leaving: bool = False
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """One tree of queues with all that is in it.

    Attributes:
        actors: in the order of creation.
        left_out: what the simulation does not know and this tree uses, in words; empty for nothing.
    """

    tenancy: admission.Tenancy
    actors: tuple[Actor, ...]
    left_out: str = ""

    def play(self) -> admission.Simulation:
        """The scene at its beginning; nothing has happened yet.

        Raises:
            ValueError: the queues contradict themselves, which Kueue's own conditions tell.
        """
        simulation = admission.Simulation(self.tenancy, amount=said)
        for each in self.actors:
            if each.flavors is None:
                simulation.submit(each.workload)
            else:
                simulation.place(each.workload, each.flavors, each.since, leaving=each.leaving, fixed=each.fixed)
        return simulation


def scene(queues: Queues, target: str) -> Scene | str:
    """The tree of a ClusterQueue as it is now, or why it cannot be played."""
    state = queues.state
    if unseen := [state.missing[kind] for kind in _SEEN if not state.knows(kind)]:
        return str(unseen[0])
    if queues.uncounted:
        return "Kueue has counted none of the queues: it does not run here"
    names, _ = queues.tree.related(target)
    there = sorted(
        (each for each in queues.workloads if queues.holder_of(each) in names),
        key=lambda each: (each.since, each.namespace, each.name),
    )
    if unlike := _unlike(queues, names, there):
        return unlike
    latest = max((_reserved(each) for each in there), default=0)
    suits = Suits(queues)
    found = tuple(actor for each in there if (actor := _actor(queues, each, latest, suits)) is not None)
    try:
        built = Scene(tenancy(queues, target), found, left_out(queues, target, there))
        built.play()
    except ValueError as error:
        return str(error)
    return built


def _unlike(queues: Queues, names: Iterable[str], there: Iterable[Workload]) -> str:
    """Where Kueue counts another use of a queue than its workloads hold: then not all is there to be seen."""
    held: dict[str, dict[Line, int]] = defaultdict(lambda: defaultdict(int))
    for each in there:
        for line, amount in each.held.items():
            held[queues.holder_of(each)][line] += amount
    for name in sorted(names):
        queue = queues.tree.queues[name]
        for line in queue.quotas:
            counted, found = queue.used.get(line, 0), held[name][line]
            if counted != found:
                flavor, resource = line
                return (
                    f"Kueue counts {said(resource, counted)} {resource} of {flavor} in queue {name},"
                    f" and its workloads hold {said(resource, found)}; ask again in a moment"
                )
    return ""


def _actor(queues: Queues, workload: Workload, latest: int, suits: "Suits") -> Actor | None:
    """A workload's part; None where it has none."""
    name = queues.holder_of(workload)
    queue = queues.tree.queues[name]
    if workload.stage == "waiting":
        if (
            workload.put_off
            or queue.inactive
            or queues.stopped(workload.namespace, workload.queue)
            or queues.shut_out(workload.namespace, name)
        ):
            return None
        return Actor(suits.workload(workload.label, name, workload.sets, workload.priority))
    if not workload.assigned or workload.stage == "switched off" or _stopping(queues, workload):
        return None
    placed = suits.workload(workload.label, name, [each.pods for each in workload.assigned], workload.priority)
    flavors = tuple(each.flavors for each in workload.assigned)
    since, leaving = _reserved(workload) - latest - 1, is_true(workload.manifest, "Evicted")
    return Actor(placed, flavors, since, leaving=leaving, fixed=bool(queue.inactive))


def _stopping(queues: Queues, workload: Workload) -> bool:
    """Whether it is about to give its quota back for good, or for longer than the scene lasts."""
    evicted = condition(workload.manifest, "Evicted")
    if text_at(evicted, "status") == "True" and text_at(evicted, "reason") != "Preempted":
        return True
    policy, queue = (
        queues.stop_policy(workload.namespace, workload.queue),
        queues.tree.queues[queues.holder_of(workload)],
    )
    if workload.stage == "checked":  # Who stops a queue lets nobody through that is not admitted yet.
        return bool(policy or queue.stop_policy)
    return policy == "HoldAndDrain" or queue.stop_policy == "HoldAndDrain"


def _reserved(workload: Workload) -> int:
    """The second in which its quota was reserved; 0 where it has none."""
    since = text_at(condition(workload.manifest, "QuotaReserved"), "lastTransitionTime")
    return int(datetime.fromisoformat(since).timestamp()) if since and workload.assigned else 0


class Suits:
    """Which flavors of a queue suit some pods; many workloads ask for the same."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._flavors: dict[str, Manifest] = {called(each): each for each in queues.state.of("ResourceFlavor")}
        self._known: dict[tuple[str, str], frozenset[str]] = {}

    def workload(self, name: str, queue: str, sets: Sequence[PodSet], priority: int) -> admission.Workload:
        """A workload as the simulation takes it, which counts pods itself where the queue has a quota of them."""
        return admission.Workload(name, queue, tuple(self._set(queue, each) for each in sets), priority)

    def _set(self, queue: str, pods: PodSet) -> admission.PodSet:
        asked = {name: amount for name, amount in pods.pod.items() if amount and name != _PODS}
        return admission.PodSet(asked, pods.count, self._of(queue, pods.spec), pods.name)

    def _of(self, queue: str, spec: Manifest) -> frozenset[str]:
        key = queue, repr([spec.get(each) for each in ("nodeSelector", "affinity", "tolerations")])
        if key not in self._known:
            names = {flavor for flavor, _ in self._queues.tree.queues[queue].quotas}
            self._known[key] = frozenset(each for each in names if not unfit(each, self._flavors.get(each), spec))
        return self._known[key]
