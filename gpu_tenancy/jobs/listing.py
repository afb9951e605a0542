"""Jobs of teams in their queues, with reserved or requested resources and places."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json, at, int_at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import add, gpus, leading_text
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import plural, visible
from gpu_tenancy.cluster.cluster_queues import Hold
from gpu_tenancy.cluster.estimate import Estimate, estimates
from gpu_tenancy.cluster.gangs import GROUP_NAME, gang_requests
from gpu_tenancy.cluster.nodes import all_cordoned, read_nodes
from gpu_tenancy.cluster.pods import Manifest, ended, label, name_of, named, namespace_of, requests
from gpu_tenancy.cluster.queueing import judge_queue
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, State, require_team
from gpu_tenancy.cluster.rejections import refusal, rejections
from gpu_tenancy.cluster.snapshot import NotSimulatedError, settled
from gpu_tenancy.cluster.workloads import Workload
from gpu_tenancy.explain.coverage import uncovered
from gpu_tenancy.explain.pending import borrowings
from gpu_tenancy.explain.unblock import expected_of
from gpu_tenancy.jobs.jobs import Jobs, uid_of
from gpu_tenancy.jobs.kubectl import GpuUse, gpu_use, together
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.model.names import USER

# `reserved`: it has quota, and an admission check is not ready. `held back`: pending, but Kueue does not consider it.
# `stopped`: `spec.active` of its Workload is false, or its object is scaled to 0.
JobState: TypeAlias = Literal["admitted", "reserved", "pending", "held back", "stopped"]

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "Job", "LocalQueue", "Namespace", "Node", "Pod", "PodGroup", "PriorityClass", "Queue",
    "ResourceFlavor", "Workload",
)  # fmt: skip
_STAGES: Final[Mapping[str, JobState]] = {"admitted": "admitted", "checked": "reserved", "switched off": "stopped"}
# The condition of a Workload whose last transition began a state.
_SINCE: Final[Mapping[JobState, str]] = {"admitted": "Admitted", "reserved": "QuotaReserved"}
_STYLES: Final[Mapping[JobState, str]] = {"admitted": "green", "pending": "yellow"}

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"))


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One workload that is not finished."""

    namespace: str
    name: str
    kind: str  # of its owner, such as `Job`
    requests: Mapping[str, int]  # of all its pods, in base units; reserved once it has quota
    flavors: tuple[str, ...]  # of its GPUs, or of all resources without GPUs; empty while pending
    priority: int
    state: JobState
    since: str  # begin of its state, or time for its place while pending; RFC 3339
    user: str = ""  # owner by its label; empty without
    place: int | None = None  # among the pending workloads of its queue, from 1; None if not pending
    at_least: bool = False  # the place counts only readable workloads
    wait: Estimate | None = None  # None if not pending, or without a simulation
    idle: str = ""  # how long its GPUs are idle, and when it is stopped; empty for others
    uncovered: str = ""  # why its queue reclaims no GPUs for it although they are guaranteed, and the fix
    gpus: GpuUse | None = None  # utilization; None if not requested, or not reported

    @property
    def holds_gpus(self) -> bool:
        """Whether it has GPUs now."""
        return self.state == "admitted" and bool(gpus(self.requests))

    @property
    def stands(self) -> str:
        """Its state, with its place if it is pending: `pending, place 2`."""
        return self.state + (f", place {self.place}{' or later' if self.at_least else ''}" if self.place else "")


@dataclass(frozen=True, slots=True)
class Listing:
    """Jobs of one team or of all: admitted ones, the longest-running first, then pending ones in queue order."""

    jobs: tuple[QueuedJob, ...]
    notes: tuple[str, ...] = ()  # borrowed quota and queues that can preempt it; kinds that are not readable
    blocked: tuple[str, ...] = ()  # what keeps all jobs of a queue or flavor from starting, and the fix
    partial: bool = False  # it lacks teams that the user may not read


def listing(state: State, team: str = "", queues: Queues | None = None) -> Listing:
    """Lists the jobs of a namespace, or of all; `queues` avoids a second read of the state, which has `KINDS`.

    Events of the state tell what the API server refuses. Raises ConsoleError if the namespace does not exist.
    """
    require_team(state, team, "jobs")
    queues = queues or Queues(state)
    workloads = [workload for workload in queues.workloads if team in {"", workload.namespace}]
    expected, places, reasons = _waits(queues, workloads), _places(queues), dict[str, str]()
    users = _users(state.of("Pod"))
    jobs = [
        replace(_job(one, places, users), wait=expected.get(one.label), uncovered=_uncovered(queues, one, reasons))
        for one in workloads
    ]
    pending = (job for job in jobs if job.state == "pending" and job.uncovered)
    bound = grouped((job.uncovered, job.name if team else f"{job.namespace}/{job.name}") for job in pending)
    jobs += _gangs(state, team, {owner for workload in workloads for owner in workload.owners})
    jobs.sort(key=lambda job: (job.state != "admitted", job.state != "reserved", job.place or 0, job.since, job.name))
    held = {(workload.holder, line): None for workload in workloads for line, held in workload.held.items() if held}
    notes = chain.from_iterable(borrowings(queues, name, [line]) for name, line in held)
    lacking = (f"{named(names)} pending: {text}" for text, names in bound.items())
    breaches = (breach.text for breach in state.breaches)
    refused = _refused(state, workloads, team)
    unread = state.unread(team, "LocalQueue", "Workload", "ClusterQueue")
    every = (*breaches, *refused, *lacking, *notes, *(missing.text for missing in unread if not missing.partly))
    blocked = tuple(dict.fromkeys(_blocked(queues, team)))
    return Listing(tuple(jobs), tuple(dict.fromkeys(every)), blocked, any(missing.partly for missing in unread))


def _blocked(queues: Queues, team: str) -> Iterator[str]:
    """Stopped queues of a team or of all, held flavors, and flavors whose nodes are all cordoned."""
    nodes, flavors = read_nodes(queues.state.of("Node"), ()), set[str]()
    for namespace, homes in queues.homes.items():
        for local, target in homes.items() if team in {"", namespace} else ():
            if queue := queues.cluster_queues.get(target):
                flavors |= {flavor for flavor, _ in queue.spec.quotas}
                yield from ["; ".join(reason)] if (reason := queues.closed(namespace, local, queue)) else []
    for flavor in queues.state.of("ResourceFlavor"):
        if name_of(flavor) in flavors:
            if hold := Hold.of({**flavor, "kind": "ResourceFlavor"}):
                yield f"{hold.sentence}; {hold.fix}"
            own: Manifest = {"nodeSelector": at(flavor, "spec", "nodeLabels"), "tolerations": [{"operator": "Exists"}]}
            if cordoned := all_cordoned(own, nodes):
                yield f"flavor {name_of(flavor)}: {'; '.join(cordoned)}"


def _refused(state: State, workloads: Sequence[Workload], team: str) -> Iterator[str]:
    """Jobs whose pods or children the API server refuses; a state without events has none."""
    found = rejections(state.of("Event", team), workloads, {})
    for workload in workloads:
        if message := found.get(workload.label, ())[:1]:
            reason = refusal(message[0], admitted=workload.stage == "admitted")
            yield f"{workload.label.removeprefix(f'{team}/')}: {'; '.join(reason)}"


def with_gpu_use(listing: Listing, jobs: Jobs, run: Callable[[str], str]) -> Listing:
    """Adds the utilization of GPUs of admitted jobs of one namespace; see `gpu_use` for `run`."""
    holding = {job.name for job in listing.jobs if job.holds_gpus}
    pods = {
        name: jobs.pods_of(workload)
        for workload in jobs.workloads
        if (name := workload.label.partition("/")[2]) in holding and workload.stage == "admitted"
    }
    answers = gpu_use(chain.from_iterable(pods.values()), run)
    found = {name: together(answers.use, map(name_of, own)) for name, own in pods.items()}
    idle = len([name for name in holding if not pods.get(name)])
    notes = (*answers.notes, *([f"GPU use of {plural(idle, 'job')} unknown: no running pods found"] if idle else ()))
    listed = tuple(replace(job, gpus=found.get(job.name)) for job in listing.jobs)
    return replace(listing, jobs=listed, notes=(*listing.notes, *notes))


def _users(pods: Iterable[Manifest]) -> dict[str, str]:
    """Users by the uids of their pods and of the pods' owners: Kueue copies no label of a StatefulSet."""
    return {
        uid: user
        for pod in pods
        if (user := label(pod, USER))
        for uid in (uid_of(pod), *(text_at(owner, "uid") for owner in maps_at(pod, "metadata", "ownerReferences")))
    }


def _job(workload: Workload, places: Mapping[str, tuple[int, bool]], users: Mapping[str, str]) -> QueuedJob:
    waits: JobState = "stopped" if workload.on_hold else "held back" if workload.held_back else "pending"
    state = _STAGES.get(workload.stage) or waits
    place, at_least = places.get(workload.label, (None, False)) if state == "pending" else (None, False)
    held = workload.held
    resources = gpus({resource: amount for (_, resource), amount in held.items() if amount}) or workload.total
    kinds = {text_at(owner, "kind") for owner in maps_at(workload.manifest, "metadata", "ownerReferences")}
    return QueuedJob(
        workload.namespace,
        workload.label.partition("/")[2],
        ", ".join(sorted(kinds)) or "Workload",  # The pods of a group can have several kinds.
        workload.total,
        tuple(dict.fromkeys(flavor for (flavor, resource), amount in held.items() if amount and resource in resources)),
        workload.priority,
        state,
        text_at(condition(workload.manifest, _SINCE.get(state, "")), "lastTransitionTime") or workload.since,
        label(workload.manifest, USER) or next((users[uid] for uid in workload.owners if uid in users), ""),
        place,
        at_least,
        idle=workload.idle(),
    )


def _uncovered(queues: Queues, workload: Workload, known: dict[str, str]) -> str:
    """The answer for a workload; equal ones are judged once, in `known`."""
    queue = queues.cluster_queues.get(queues.queue_of(workload))
    if queue is None or workload.stage != "waiting":
        return ""
    demand = repr((queue.name, [(pods.count, pods.pod, pods.placed, pods.spec) for pods in workload.sets]))
    if demand not in known:
        offers = judge_queue(queues.quotas, queue.spec, queues.state.of("ResourceFlavor"), workload.sets)
        known[demand] = "; ".join(uncovered(queues, queue.spec, offers) or ())
    return known[demand]


def _waits(queues: Queues, workloads: Iterable[Workload]) -> dict[str, Estimate]:
    """Estimates waits with one simulation for each cohort tree."""
    pending = {workload.label: queues.queue_of(workload) for workload in workloads if workload.stage == "waiting"}
    found: dict[str, Estimate] = {}
    seen: set[str] = set()
    for target in pending.values():
        if target in seen or target not in queues.cluster_queues:
            continue
        tree = set(queues.quotas.related(target)[0])
        seen |= tree
        try:
            _, simulation = settled(queues, target)
        except NotSimulatedError:
            continue
        waiting = {one.name for one in simulation.settled().pending}
        names = [label for label, queue in pending.items() if queue in tree and label in waiting]
        found |= estimates(simulation.fork(), names, expected_of(queues))
    return found


def _places(queues: Queues) -> dict[str, tuple[int, bool]]:
    """Places of pending workloads, and whether unreadable workloads may be ahead."""
    found: dict[str, tuple[int, bool]] = {}
    for name in filter(None, queues.members):
        unseen = name not in queues.cluster_queues or bool(queues.unseen(name))
        pending = (workload.label for workload in queues.waiting_in(name) if not workload.held_back)
        found |= {label: (place, unseen) for place, label in enumerate(pending, 1)}
    return found


def _gangs(state: State, team: str, queued: Collection[str]) -> Iterator[QueuedJob]:
    """Gangs that Volcano admits, except gangs whose owner (by uid) Kueue admits."""
    classes = {name_of(one): int_at(one, "value") for one in state.of("PriorityClass")}
    pods: dict[tuple[str, str], list[dict[str, int]]] = {}
    for pod in state.of("Pod", team):
        if not ended(pod) and (name := text_at(pod, "metadata", "annotations", GROUP_NAME)):
            pods.setdefault((namespace_of(pod), name), []).append(requests(map_at(pod, "spec")))
    for group in state.of("PodGroup", team):
        owner = next(iter(maps_at(group, "metadata", "ownerReferences")), dict[str, Json]())
        if text_at(owner, "uid") in queued:
            continue
        namespace, queue = namespace_of(group), text_at(group, "spec", "queue")
        yield QueuedJob(
            namespace,
            text_at(owner, "name") or name_of(group),
            f"Volcano {text_at(owner, 'kind') or 'pods'}",
            add(*pods.get((namespace, name_of(group)), [gang_requests(group)])),
            (queue.removeprefix(f"{namespace}-"),) if queue.startswith(f"{namespace}-") else (),
            classes.get(text_at(group, "spec", "priorityClassName"), 0),
            "admitted" if text_at(group, "status", "phase") == "Running" else "pending",
            text_at(group, "metadata", "creationTimestamp"),
        )


def shown(listing: Listing, *, every_team: bool, busy: bool = False, now: datetime | None = None) -> Group:
    """Table of `tenancy queue`, numbers of jobs by state, and notes.

    With `every_team`, names have their namespace; with `busy`, a column has the utilization of GPUs.
    """
    now = now or datetime.now(UTC)
    waits = ("wait",) if any(job.wait for job in listing.jobs) else ()
    of_gpus = ("GPU use#",) if busy else ()
    heads = ("job…", "kind", "requests", "flavor…", "state", "for#", *of_gpus, "user…", "priority#", *waits)
    jobs = table(*heads, drop=("priority", "kind", "user", *waits, "for"))
    idle: list[str] = []
    for job in listing.jobs:
        name = f"{job.namespace}/{job.name}" if every_team else job.name
        stands = f"{job.stands}, idle" if job.idle.startswith("idle ") else job.stands  # not after a stop
        state = Text(stands, style=_STYLES.get(job.state, ""))
        wait = [job.wait.short if job.wait else ""] if waits else []
        use = [job.gpus.busy if job.gpus else "?" if job.holds_gpus else ""] if busy else []
        cells = (name, job.kind, leading_text(job.requests), ", ".join(job.flavors), state)
        jobs.add_row(*cells, age(job.since, now), *use, job.user, str(job.priority), *wait)
        idle += [f"{name}: {job.idle}"] if job.idle else []
    states = Counter(job.state for job in listing.jobs)
    total = f"{plural(len(listing.jobs), 'job')}: " + ", ".join(f"{count} {state}" for state, count in states.items())
    if listing.partial:
        total = f"{total} (only teams that you may read)"
    parts: list[RenderableType] = [Text(visible(text), style="bold yellow") for text in listing.blocked]
    parts += [jobs, Text("")] if listing.jobs else []
    parts.append(Text(total if listing.jobs else "no jobs", style="bold"))
    parts += [Text(visible(note), style="dim") for note in (*idle, *listing.notes)]
    return Group(*parts)


def data(listing: Listing) -> dict[str, Any]:
    """The listing for JSON, amounts in base units."""
    return asdict(listing)


def age(since: str, now: datetime) -> str:
    """Age in the largest unit of which there are at least two, as kubectl shows ages: `90s`, `3h`."""
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds())) if since else 0
    length, unit = next(((length, unit) for length, unit in _UNITS if seconds >= 2 * length), (1, "s"))
    return f"{seconds // length}{unit}"
