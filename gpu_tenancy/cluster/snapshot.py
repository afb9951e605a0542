"""Current state of a cluster as input of the simulation of Kueue.

Workloads with quota start with it in the order of reservation; others are pending. Left out: workloads that Kueue does
not consider, workloads in a queue that admits nothing, and workloads that stop soon and do not return. If the user may
read Workloads of one namespace only, other usage of each queue is one workload that neither ends nor is preempted, and
other pending workloads are left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from gpu_tenancy import kueue
from gpu_tenancy.base.json import Json, list_at, maps_at, text_at
from gpu_tenancy.base.quantity import amount_text
from gpu_tenancy.cluster.pods import Manifest, name_of
from gpu_tenancy.cluster.queueing import Offer, Source, unfit
from gpu_tenancy.cluster.queues import KUEUE_NOT_RUNNING, Queues
from gpu_tenancy.cluster.reading import Kind
from gpu_tenancy.cluster.workloads import PodSet, Workload, is_counted
from gpu_tenancy.kube.waiting import condition

# Kinds that must be readable, at least in the user's namespace.
_SEEN: Final[tuple[Kind, ...]] = ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Workload")
_PODS: Final = "pods"
# Controller of the admission checks that dispatch a workload to another cluster.
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
LIVELOCK: Final = "workloads of this cohort tree preempt one another endlessly, in Kueue too"


class NotSimulatedError(Exception):
    """The cluster cannot be simulated, for the reason in the message."""


@dataclass(frozen=True, slots=True)
class Participant:
    """A workload at the start of the simulation."""

    workload: kueue.Workload
    flavors: tuple[Mapping[str, str], ...] | None = None  # of each pod set; None while pending
    since: int = 0  # second of its reservation, below 0
    leaving: bool = False  # preempted, but not stopped yet
    fixed: bool = False  # cannot be preempted


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cohort tree with its workloads, in the order of creation."""

    tenancy: kueue.Tenancy
    participants: tuple[Participant, ...]
    left_out: tuple[kueue.Unmodelled, ...] = ()  # features in use that the simulation does not cover
    unseen: frozenset[str] = frozenset()  # participants for workloads that the user may not read
    unseen_pending: int = 0  # number of pending workloads that the user may not read

    def play(self) -> kueue.Simulation:
        """Starts a simulation. Raises ValueError if the queues contradict each other; their conditions report it."""
        simulation = kueue.Simulation(self.tenancy, amount=amount_text)
        for one in self.participants:
            if one.flavors is None:
                simulation.submit(one.workload)
            else:
                simulation.place(one.workload, one.flavors, one.since, leaving=one.leaving, fixed=one.fixed)
        return simulation


def settled(
    queues: Queues, target: str, strategies: tuple[kueue.FairStrategy, ...] | None = None
) -> tuple[Snapshot, kueue.Simulation]:
    """A ClusterQueue's cohort tree, and its simulation at rest. Raises NotSimulatedError if there is none.

    `strategies` are of fair sharing, empty if it is off; None as in the cluster.
    """
    snapshot = take_snapshot(queues, target)
    if strategies is not None:
        snapshot = replace(snapshot, tenancy=replace(snapshot.tenancy, fair_sharing=strategies or None))
    simulation = snapshot.play()
    if simulation.rest():
        raise NotSimulatedError(LIVELOCK)
    return snapshot, simulation


def take_snapshot(queues: Queues, target: str) -> Snapshot:
    """Reads the cohort tree of a ClusterQueue. Raises NotSimulatedError if it cannot be simulated."""
    state = queues.state
    if unseen := [state.missing[kind] for kind in _SEEN if not state.sees(kind)]:
        raise NotSimulatedError(unseen[0].text)
    if queues.uncounted:
        raise NotSimulatedError(KUEUE_NOT_RUNNING)
    names, cohorts = (frozenset(related) for related in queues.quotas.related(target))
    workloads = sorted(
        (workload for workload in queues.workloads if queues.holder_of(workload) in names),
        key=lambda workload: (workload.since, workload.namespace, workload.name),
    )
    others = _unseen(queues, names, workloads)
    latest = max((_reserved(workload) for workload in workloads), default=0)
    suits = Suits(queues)
    participants = (_participant(queues, workload, latest, suits) for workload in workloads)
    there = (*others, *(participant for participant in participants if participant is not None))
    of_tree = tuple(queue for queue in queues.tenancy.queues if queue.name in names)
    groups = tuple(cohort for cohort in queues.tenancy.cohorts if cohort.name in cohorts)
    tree = replace(queues.tenancy, queues=of_tree, cohorts=groups)
    for name, queue in queues.cluster_queues.items():
        if name in names and queue.invalid:
            raise NotSimulatedError(f"the queue configuration is invalid: {queue.invalid}")
    try:
        snapshot = Snapshot(
            tree,
            there,
            _left_out(queues, target, workloads),
            frozenset(participant.workload.name for participant in others),
            sum(queues.unseen(name) for name in names),
        )
        snapshot.play()
    except ValueError as error:
        raise NotSimulatedError(f"the queue configuration is invalid: {error}") from error
    return snapshot


def _unseen(queues: Queues, names: Iterable[str], workloads: Iterable[Workload]) -> list[Participant]:
    """Raises NotSimulatedError if Kueue reports other usage than readable workloads, although all can be read."""
    held: dict[str, dict[kueue.FlavorResource, int]] = defaultdict(lambda: defaultdict(int))
    for workload in workloads:
        for line, amount in workload.held.items():
            held[queues.holder_of(workload)][line] += amount
    complete = queues.state.knows("Workload") and queues.state.knows("LocalQueue")
    found: list[Participant] = []
    for name in sorted(names):
        queue = queues.cluster_queues[name]
        rest: dict[str, dict[str, int]] = defaultdict(dict)
        for line in queue.spec.quotas:
            flavor, resource = line
            counted, seen = queue.usage.get(line, 0), held[name][line]
            if counted > seen and not complete:
                rest[flavor][resource] = counted - seen
            elif counted != seen:
                reported, summed = amount_text(resource, counted), amount_text(resource, seen)
                usage = f"Kueue reports {reported} {resource} of {flavor} in use in queue {name}"
                raise NotSimulatedError(f"{usage}, but its workloads hold {summed}; retry in a moment")
        if rest:
            found.append(_stand_in(name, rest))
    return found


def _stand_in(queue: str, held: Mapping[str, Mapping[str, int]]) -> Participant:
    sets: list[kueue.PodSet] = []
    flavors: list[Mapping[str, str]] = []
    for flavor, amounts in held.items():
        requests = {name: amount for name, amount in amounts.items() if name != _PODS}
        for index, (asked, count) in enumerate(((requests, 1), (dict[str, int](), amounts.get(_PODS, 1) - 1))):
            if count:
                sets.append(kueue.PodSet(asked, count, frozenset((flavor,)), f"{flavor}-{index}"))
                flavors.append(dict.fromkeys(amounts, flavor))
    return Participant(kueue.Workload(f"others in {queue}", queue, tuple(sets)), tuple(flavors), since=-1, fixed=True)


def unseen_reclaim(queues: Queues, offers: Iterable[Offer]) -> bool:
    """Whether Kueue would preempt workloads that the user may not read, which the simulation cannot do."""
    return not queues.state.knows("Workload") and any(offer.source is Source.RECLAIMED for offer in offers)


def _participant(queues: Queues, workload: Workload, latest: int, suits: "Suits") -> Participant | None:
    name = queues.holder_of(workload)
    queue = queues.cluster_queues[name]
    if workload.stage == "waiting":
        held_back = workload.held_back or queue.inactive or queues.stopped(workload.namespace, workload.queue)
        if held_back or queues.shut_out(workload.namespace, name):
            return None
        return Participant(suits.workload(workload.label, name, workload.sets, workload.priority))
    evicted = condition(workload.manifest, "Evicted")
    leaving = text_at(evicted, "status") == "True"
    policies = {queue.stop_policy, queues.stop_policy(workload.namespace, workload.queue)}
    # A stopped queue admits no workload that only has quota.
    stopped = any(policies) if workload.stage == "checked" else "HoldAndDrain" in policies
    if (
        not workload.assigned
        or workload.stage == "switched off"
        or stopped
        or (leaving and text_at(evicted, "reason") != "Preempted")
    ):
        return None
    placed = suits.workload(workload.label, name, [assigned.pods for assigned in workload.assigned], workload.priority)
    flavors = tuple(assigned.flavors for assigned in workload.assigned)
    return Participant(placed, flavors, _reserved(workload) - latest - 1, leaving=leaving, fixed=bool(queue.inactive))


def _reserved(workload: Workload) -> int:
    """The second of its quota reservation; 0 without one."""
    since = text_at(condition(workload.manifest, "QuotaReserved"), "lastTransitionTime")
    return int(datetime.fromisoformat(since).timestamp()) if since and workload.assigned else 0


def _left_out(queues: Queues, target: str, workloads: Iterable[Workload]) -> tuple[kueue.Unmodelled, ...]:
    """Features of a ClusterQueue or of workloads in its tree that the simulation does not cover."""
    state = queues.state
    queue = next(manifest for manifest in state.of("ClusterQueue") if name_of(manifest) == target)
    flavors = {flavor for flavor, _ in queues.cluster_queues[target].spec.quotas}
    objects: list[Mapping[str, Json]] = [{**queue, "kind": "ClusterQueue"}]
    objects += [{**item, "kind": "ResourceFlavor"} for item in state.of("ResourceFlavor") if name_of(item) in flavors]
    # Kueue writes a topology request into every workload; it has an effect only where a flavor has a topology.
    requested = set(kueue.unmodelled({**workload.manifest, "kind": "Workload"} for workload in workloads))
    used = set(kueue.unmodelled(objects)) | requested - {kueue.Unmodelled.TOPOLOGY}
    by_strategy = maps_at(queue, "spec", "admissionChecksStrategy", "admissionChecks")
    checks = {*list_at(queue, "spec", "admissionChecks"), *(text_at(check, "name") for check in by_strategy)}
    if any(
        name_of(check) in checks and text_at(check, "spec", "controllerName") == MULTIKUEUE
        for check in state.of("AdmissionCheck")
    ):
        used.add(kueue.Unmodelled.MULTIKUEUE)
    return tuple(part for part in kueue.Unmodelled if part in used)


class Suits:
    """Flavors of a queue that suit pods; cached, since many workloads request the same."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._flavors: dict[str, Manifest] = {name_of(flavor): flavor for flavor in queues.state.of("ResourceFlavor")}
        self._known: dict[tuple[str, str], frozenset[str]] = {}

    def workload(self, name: str, queue: str, sets: Sequence[PodSet], priority: int) -> kueue.Workload:
        """A workload of the simulation, with pods as a resource if the queue has a quota of pods."""
        counted: list[kueue.PodSet] = []
        covered = {resource for _, resource in self._queues.cluster_queues[queue].spec.quotas}
        for pods in sets:
            placement = [pods.placed, *(pods.spec.get(key) for key in ("nodeSelector", "affinity", "tolerations"))]
            key = queue, repr(placement)
            if key not in self._known:
                names = {flavor for flavor, _ in self._queues.cluster_queues[queue].spec.quotas}
                self._known[key] = frozenset(name for name in names if not unfit(name, self._flavors, pods, names))
            amounts = {name: amount for name, amount in pods.pod.items() if amount and is_counted(name, covered)}
            asked = {name: amount for name, amount in amounts.items() if name != _PODS}
            counted.append(kueue.PodSet(asked, pods.count, self._known[key], pods.name))
        return kueue.Workload(name, queue, tuple(counted), priority)
