"""Effects of a proposed change on the workloads of a cluster: preempted, admitted, delayed.

The simulation of Kueue runs twice from the current cluster: with the proposed queues, and with the current queues, to
find delayed workloads. Kueue ends no workload because a quota became smaller; it preempts for a pending workload that
is now entitled to the quota, and gives freed quota to workloads that may use it.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from gpu_tenancy import kueue
from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import add, amount_text, amounts, gpu_count, gpus
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.bound import owner_title, owner_titles
from gpu_tenancy.cluster.gangs import gang_queues
from gpu_tenancy.cluster.pods import Manifest, ended, label, name_of, namespace_of, requests
from gpu_tenancy.cluster.queueing import Source, judge_queue
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, State
from gpu_tenancy.cluster.snapshot import NotSimulatedError, Snapshot, settled
from gpu_tenancy.cluster.supply import accelerators
from gpu_tenancy.cluster.workloads import Workload
from gpu_tenancy.explain.pending import diagnose
from gpu_tenancy.explain.proposed import (
    Refused,
    SmallerPool,
    key_of,
    on_removed_flavors,
    proposed,
    refused,
    smaller_pools,
)
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.kueue import FairStrategy
from gpu_tenancy.model.names import VOLCANO
from gpu_tenancy.model.plan.pools import POOL_LABEL
from gpu_tenancy.model.spec.people import Grace
from gpu_tenancy.model.spec.teams import Idle

KINDS: Final[tuple[Kind, ...]] = (
    "AdmissionCheck", "ClusterQueue", "Cohort", "LimitRange", "LocalQueue", "Namespace", "Node",
    "PersistentVolumeClaim", "Pod", "PodGroup", "Queue", "ResourceFlavor", "ResourceQuota", "Workload",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Affected:
    """A workload that the change affects."""

    label: str  # namespace and name of its job
    team: str
    gpus: Mapping[str, int]  # held or requested, by flavor; `` while pending
    hours: int = 0  # whole hours since its quota reservation, or creation if pending
    by: str = ""  # preemptor; empty for none
    again: bool = False  # it restarts, since it is admitted again elsewhere or later in the same minute
    why: str = ""  # why it is pending or deleted

    @property
    def amount(self) -> int:
        """GPUs of all flavors."""
        return sum(self.gpus.values())


@dataclass(frozen=True, slots=True)
class Exceeded:
    """Usage beyond a proposed bound; nothing is stopped, and nothing starts until usage is below the bound."""

    place: str  # such as `ResourceQuota budget in ml-research`, or `team ml-research`
    what: str  # the resource, with its flavor if any
    used: str
    bound: str


@dataclass(frozen=True, slots=True)
class Effect:
    """Effects of a change on running and pending workloads.

    A changed queue makes Kueue retry pending workloads, which alone can cause preemptions. Kueue knows no durations:
    `later` assumes that running workloads end in the order of their start. `claims` has sizes in bytes of
    PersistentVolumeClaims of deleted namespaces, by namespace.
    """

    preempted: tuple[Affected, ...] = ()  # most GPUs first
    deleted: tuple[Affected, ...] = ()  # workloads of deleted namespaces
    restarted: tuple[Affected, ...] = ()  # owners of pods with GPUs on nodes that restart, with the GPUs there
    idle: tuple[Affected, ...] = ()  # with idle GPUs, by their annotation, that the stack stops
    admitted: tuple[Affected, ...] = ()  # pending now, admitted after the change
    delayed: tuple[Affected, ...] = ()  # pending; only the change keeps them from admission now
    never: tuple[Affected, ...] = ()  # pending, and beyond the limit of their queue only because of the change
    later: tuple[Affected, ...] = ()  # pending, and wait for more ends of running workloads than without the change
    refused: tuple[Refused, ...] = ()  # pods that are refused if they are created again
    exceeded: tuple[Exceeded, ...] = ()  # bounds below current usage
    pods_on_removed_flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    smaller_pools: tuple[SmallerPool, ...] = ()  # pools with fewer nodes than pods with GPUs use
    not_simulated: tuple[str, ...] = ()  # one sentence for each reason
    running: int = 0  # number of workloads with quota now
    claims: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    claims_unread: bool = False  # claims of deleted namespaces are not readable


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change to apply; queues that the stack created and no longer declares are deleted."""

    objects: Sequence[Mapping[str, Json]]  # all objects of the stack
    stack: str  # never empty
    strategies: tuple[FairStrategy, ...] | None = None  # of fair sharing, empty if it is off; None as in the cluster
    grace: Grace | None = None  # longest of guards that deny; None if guards do not deny
    nodes: Mapping[str, int] | None = None  # maximum of each pool; None if unknown
    restarted: Collection[str] = ()  # pools whose nodes restart
    idle: Mapping[str, Idle] = field(default_factory=dict[str, Idle])  # by team


def effect(state: State, proposal: Proposal, *, at: datetime | None = None) -> Effect:
    """Effects of a proposal that is applied at a time, now by default, to a state with `KINDS`."""
    at = at or datetime.now(UTC)
    now = Queues(state)
    after = Queues(proposed(state, proposal.objects, proposal.stack))
    gone = {name_of(one) for one in state.of("Namespace")} - {name_of(one) for one in after.state.of("Namespace")}
    was, will = _play(now, None), _play(after, proposal.strategies)
    known = {workload.label: workload for workload in now.workloads}
    running = {label for label, workload in known.items() if workload.assigned}
    ends = [known[label] for label in sorted(known) if known[label].namespace in gone]
    kept = {label for label, workload in known.items() if workload.namespace not in gone}
    judged = kept & was.seen & will.seen
    given_way = {label: by for label, by in will.evicted.items() if label in judged and label in running}
    sizes = {workload.label: workload for workload in after.workloads}
    resized = {label for label in judged if sizes[label].sets != known[label].sets}
    waits = judged & (was.admitted - running | resized & running) - will.admitted
    never = {label: _never(after, sizes[label]) for label in judged - will.admitted}
    never = {label: why for label, why in never.items() if why and not _never(now, known[label])}
    missed = (*was.missed, *will.missed, *_gangs_waiting(state, proposal.objects))
    affected = partial(_affected, at=at)
    return Effect(
        preempted=_sorted(affected(known[one], by=by, again=one in will.admitted) for one, by in given_way.items()),
        deleted=_sorted(affected(workload, why=f"namespace {workload.namespace} is deleted") for workload in ends),
        restarted=_sorted(_restarted(now, proposal.restarted, at)),
        idle=_sorted(_idle(now, proposal.idle, at)),
        admitted=_sorted(affected(known[one]) for one in judged & will.admitted - running),
        delayed=_sorted(affected(sizes[one], why=will.why.get(one, "")) for one in waits - never.keys()),
        never=_sorted(affected(sizes[one], why=why) for one, why in never.items()),
        later=_sorted(_later(sizes, judged - running - waits - never.keys(), was, will, at)),
        refused=refused(state, proposal.objects, proposal.grace),
        exceeded=tuple(_exceeded(state, after, proposal.objects)),
        pods_on_removed_flavors=on_removed_flavors(now, after),
        smaller_pools=() if proposal.nodes is None else smaller_pools(state, proposal.nodes),
        not_simulated=tuple(dict.fromkeys(missed)),
        running=len(running),
        claims=_claims(state, gone),
        claims_unread=bool(gone) and "PersistentVolumeClaim" in state.missing,
    )


@dataclass(slots=True)
class _Played:
    """All cohort trees at rest, by labels of workloads, and reasons for trees that cannot be simulated."""

    missed: list[str] = field(default_factory=list[str])
    seen: set[str] = field(default_factory=set[str])
    admitted: set[str] = field(default_factory=set[str])
    evicted: dict[str, str] = field(default_factory=dict[str, str])
    why: dict[str, str] = field(default_factory=dict[str, str])
    ends: dict[str, int] = field(default_factory=dict[str, int])


def _play(queues: Queues, strategies: tuple[FairStrategy, ...] | None) -> _Played:
    found, left = _Played(), dict.fromkeys(queues.cluster_queues)
    while left:
        target = next(iter(left))
        for name in (target, *queues.quotas.related(target)[0]):
            left.pop(name, None)
        try:
            snapshot, simulation = settled(queues, target, strategies)
        except NotSimulatedError as error:
            found.missed.append(f"queues of the tree of {target}: {error}")
            continue
        if snapshot.left_out:
            found.missed.append(f"not simulated in the tree of {target}: {'; '.join(snapshot.left_out)}")
        rest = simulation.settled()
        found.seen |= {one.workload.name for one in snapshot.participants}
        found.admitted |= {one.name for one in rest.admitted}
        found.evicted |= {one.name: one.by for one in rest.evicted}
        found.why |= {one.name: one.why for one in rest.pending}
        found.ends |= ends_needed(simulation, snapshot)
    return found


def _later(
    known: Mapping[str, Workload], waiting: Collection[str], before: _Played, after: _Played, at: datetime
) -> Iterator[Affected]:
    for name in waiting:
        was, ends = before.ends.get(name), after.ends.get(name)
        if was is not None and name not in after.admitted and (ends is None or ends > was):
            count = f"{ends} running workloads" if ends else f"more than {MOST} running workloads, or all of them,"
            yield _affected(known[name], at, why=f"{count} must end before it is admitted, {was} without the change")


def _never(queues: Queues, workload: Workload) -> str:
    """Why a queue can never admit a pending workload, and the fix; empty if it can."""
    queue = queues.cluster_queues.get(queues.holder_of(workload))
    if queue is None or workload.assigned:
        return ""
    offers = judge_queue(queues.quotas, queue.spec, queues.state.of("ResourceFlavor"), workload.sets)
    never = any(offer.source is Source.NEVER for offer in offers)
    return "; ".join(diagnose(queues, queue.spec, offers, None, is_head=True)) if never else ""


def _affected(workload: Workload, at: datetime, *, by: str = "", again: bool = False, why: str = "") -> Affected:
    held = add(*({flavor: amount} for (flavor, name), amount in workload.held.items() if gpus({name: amount})))
    asked = gpu_count(workload.total)
    reserved = text_at(condition(workload.manifest, "QuotaReserved"), "lastTransitionTime") if workload.assigned else ""
    since = reserved or text_at(workload.manifest, "metadata", "creationTimestamp")
    by_flavor = held or ({"": asked} if asked else {})
    return Affected(workload.label, workload.namespace, by_flavor, _hours(since, at), by, again, why)


def _idle(now: Queues, teams: Mapping[str, Idle], at: datetime) -> Iterator[Affected]:
    for workload in now.workloads:
        idle, note = teams.get(workload.namespace), workload.idle_note
        if idle is None or idle.then == "notify" or isinstance(note, str):
            continue
        names = {text_at(workload.manifest, "spec", "priorityClassRef", "name")}
        for owner in maps_at(workload.manifest, "metadata", "ownerReferences"):
            names |= {text_at(owner, "kind"), text_at(owner, "name")}
        if (at - note[0]).total_seconds() >= idle.after and not names & {*idle.spare}:
            yield _affected(workload, at, why=f"{idle.then}: {workload.idle(at).partition(',')[0]}")


def _restarted(now: Queues, pools: Collection[str], at: datetime) -> Iterator[Affected]:
    places = {name_of(node): label(node, POOL_LABEL) for node in now.state.of("Node")}
    titles = owner_titles(now.workloads)
    there = (pod for pod in now.state.of("Pod") if places.get(text_at(pod, "spec", "nodeName")) in pools)
    pods = grouped(((namespace_of(pod), owner_title(pod, titles)), pod) for pod in there if not ended(pod))
    for (team, title), own in pods.items():
        gpus = Counter[str]()
        for pod in own:
            here = places[text_at(pod, "spec", "nodeName")]
            gpus[here] += sum(accelerators(requests(map_at(pod, "spec"))).values())
        since = min(filter(None, (text_at(pod, "metadata", "creationTimestamp") for pod in own)), default="")
        if any(gpus.values()):
            yield Affected(title.partition(" ")[2], team, gpus, _hours(since, at), why=f"nodes of {', '.join(gpus)}")


def _hours(since: str, at: datetime) -> int:
    return int((at - datetime.fromisoformat(since)).total_seconds() // 3600) if since else 0


def _sorted(found: Iterable[Affected]) -> tuple[Affected, ...]:
    return tuple(sorted(found, key=lambda one: (-one.amount, one.label)))


def _exceeded(now: State, after: Queues, objects: Iterable[Mapping[str, Json]]) -> Iterator[Exceeded]:
    for place, resource, flavor, used, bound in _bounds(now, after, objects):
        if used > bound:
            texts = amount_text(resource, used), amount_text(resource, bound)
            yield Exceeded(place, f"{resource} of {flavor}" if flavor else resource, *texts)


def _bounds(
    now: State, after: Queues, objects: Iterable[Mapping[str, Json]]
) -> Iterator[tuple[str, str, str, int, int]]:
    """Each bound after the change: place, resource, flavor if any, current usage, and bound."""
    # What a queue could get even if it was alone.
    for name, queue in sorted(after.cluster_queues.items()):
        for line, used in queue.usage.items():
            bound = after.quotas.potential_available(name, line) if line in queue.spec.quotas else 0
            yield f"ClusterQueue {name}", line[1], line[0], used, bound
    # Beyond a ResourceQuota, pods that restart are refused.
    live = {key_of(one): one for one in now.of("ResourceQuota")}
    for quota in after.state.of("ResourceQuota"):
        spent = amounts(at(live.get(key_of(quota), {}), "status", "used"))
        for resource, bound in amounts(at(quota, "spec", "hard")).items():
            place = f"ResourceQuota {name_of(quota)} in {namespace_of(quota)}"
            yield place, resource, "", spent.get(resource, 0), bound
    # Beyond the capability of a queue of Volcano, no gang starts.
    gangs = {one.name: one.used for one in gang_queues(now.of("Queue"), now.of("PodGroup"), now.of("Pod"))}
    for queue in gang_queues(_declared_gangs(objects), ()):
        for resource, bound in queue.capability.items():
            yield f"Volcano queue {queue.name}", resource, "", gangs.get(queue.name, {}).get(resource, 0), bound


def _declared_gangs(objects: Iterable[Mapping[str, Json]]) -> list[Manifest]:
    return [dict(one) for one in objects if text_at(one, "kind") == "Queue" and text_at(one, "apiVersion") == VOLCANO]


def _gangs_waiting(now: State, objects: Iterable[Mapping[str, Json]]) -> Iterator[str]:
    live = {one.name: one for one in gang_queues(now.of("Queue"), now.of("PodGroup"))}
    for queue in gang_queues(_declared_gangs(objects), ()):
        was = live.get(queue.name)
        if was and was.pending and (was.capability, was.guarantee) != (queue.capability, queue.guarantee):
            yield f"{plural(len(was.pending), 'pending gang')} of Volcano queue {queue.name}, which changes"


def _claims(state: State, gone: Collection[str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for claim in state.of("PersistentVolumeClaim"):
        if namespace_of(claim) in gone:
            size = amounts(at(claim, "spec", "resources", "requests")).get("storage", 0)
            found.setdefault(namespace_of(claim), {})[name_of(claim)] = size
    return found


MOST: Final = 100  # ends in one cohort tree that are simulated


def ends_needed(simulation: kueue.Simulation, snapshot: Snapshot) -> dict[str, int]:
    """Number of running workloads that end before each pending one is admitted, the longest-running first.

    Continues the simulation of a cohort tree at rest; workloads that are admitted later end after all others.
    """
    rest = simulation.settled()
    running = {one.name for one in rest.admitted}
    held = (one for one in snapshot.participants if one.flavors is not None)
    longest = [one.workload.name for one in sorted(held, key=lambda one: one.since)]
    order = deque([name for name in longest if name in running and name not in snapshot.unseen])
    order.extend(running - set(order))
    waiting = {one.name for one in rest.pending}
    needed: dict[str, int] = {}
    for count in range(1, MOST + 1):
        while order and order[0] not in running:
            order.popleft()
        if not waiting or not order:
            break
        simulation.finish(order.popleft())
        if simulation.rest():
            break
        now = {one.name for one in simulation.settled().admitted}
        needed |= dict.fromkeys(sorted(waiting & now), count)
        order.extend(sorted(now - running))
        waiting, running = waiting - now, now
    return needed
