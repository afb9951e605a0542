"""Jobs and queues of a stack as input of the simulation of Kueue, and its results by team."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.base.quantity import CPU, MEMORY, add, format_amount, is_extended, times
from gpu_tenancy.kueue import PodSet, Settled, Step, Workload, run
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Measure, Share, Tree, measures_of


@dataclass(frozen=True, slots=True)
class Job:
    """A job to submit, with all defaults resolved."""

    name: str  # valid for a Kubernetes Job
    team: str  # the submitting team; its namespace
    queue: str  # the team whose ClusterQueue gets the job, usually the same
    flavor: str
    requests: Mapping[str, int]  # of one pod, in base units; the same as limits
    pods: int = 1  # are admitted together
    priority: str | None = None  # class; None for the default
    priority_value: int = 0

    @property
    def workload(self) -> Workload:
        """The job as input of the simulation."""
        part = PodSet(self.requests, self.pods, frozenset({self.flavor}))
        return Workload(self.name, self.queue, (part,), self.priority_value)


@dataclass(frozen=True, slots=True)
class JobStep:
    """One step of a scenario, such as `2. submit big`: jobs end, then jobs are submitted, in the order given."""

    label: str
    finish: tuple[str, ...] = ()
    submit: tuple[Job, ...] = ()

    @property
    def number(self) -> str:
        """The number at the start of the label."""
        return self.label.partition(".")[0]

    @property
    def step(self) -> Step:
        """The step as input of the simulation."""
        return Step(tuple(job.workload for job in self.submit), self.finish)


@dataclass(frozen=True, slots=True)
class Running:
    """A running workload with its GPUs (or partitions, time slices) of one flavor; without GPUs its CPU and memory."""

    workload: str
    team: str
    flavor: str
    gpus: int
    amounts: Mapping[str, int] = field(default_factory=dict[str, int], kw_only=True)


@dataclass(frozen=True, slots=True)
class Waiting(Running):
    """A pending workload, with the reason as text."""

    why: str


@dataclass(frozen=True, slots=True)
class PreemptedJob(Running):
    """A preempted workload, and Kueue's reason, such as `InCohortReclamation`."""

    by: str
    by_team: str
    reason: str


@dataclass(frozen=True, slots=True)
class Moment:
    """The state after a step, when no more workloads are admitted or preempted; a job's team is its queue's."""

    label: str
    running: tuple[Running, ...]
    waiting: tuple[Waiting, ...]
    evicted: tuple[PreemptedJob, ...]  # preempted since the previous moment, in order; some may be running again
    restless: tuple[str, ...]  # queues whose workloads preempt one another endlessly: one of several states

    def amount(self, team: str, measure: Measure) -> int:
        """Usage of a team, in base units."""
        return sum(amount_of(job, measure) for job in self.running if job.team == team)

    def requested(self, team: str, measure: Measure) -> int:
        """Requests of a team's pending jobs, in base units."""
        return sum(amount_of(job, measure) for job in self.waiting if job.team == team)


def amount_of(job: Running, measure: Measure) -> int:
    """Usage or request of a job, in base units."""
    if job.flavor != measure.flavor:
        return 0
    return job.gpus if is_extended(measure.resource) else job.amounts.get(measure.resource, 0)


def play(tree: Tree, steps: Iterable[tuple[str, Step]]) -> tuple[Moment, ...]:
    """Simulates labelled steps. Raises ValueError if they contradict themselves or a queue does not exist."""
    labelled = list(steps)
    states = run(tenancy(tree), (step for _, step in labelled), format_amount)
    known: dict[str, Workload] = {}
    found: list[Moment] = []
    for (label, step), state in zip(labelled, states, strict=True):
        known |= {workload.name: workload for workload in step.submit}
        found.append(moment_of(tree, label, state, known))
    return tuple(found)


def moment_of(tree: Tree, label: str, settled: Settled, known: Mapping[str, Workload]) -> Moment:
    """A state of the simulation or of a live Kueue, by team; `known` are all workloads submitted so far."""
    running: list[Running] = []
    for admitted in settled.admitted:
        workload = known[admitted.name]
        for flavor, gpus in _by_flavor(tree, workload, admitted.flavors).items():
            amounts = {} if gpus else _amounts(tree, workload)
            running.append(Running(admitted.name, admitted.queue, flavor, gpus, amounts=amounts))
    waiting: list[Waiting] = []
    for pending in settled.pending:
        asks, amounts = _asks(tree, known[pending.name]), _amounts(tree, known[pending.name])
        waiting.append(Waiting(pending.name, pending.queue, *asks, pending.why, amounts=amounts))
    evicted: list[PreemptedJob] = []
    for eviction in settled.evicted:
        workload, by, reason = known[eviction.name], known[eviction.by], str(eviction.reason)
        asks, amounts = _asks(tree, workload), _amounts(tree, workload)
        evicted.append(PreemptedJob(eviction.name, workload.queue, *asks, by.name, by.queue, reason, amounts=amounts))
    restless = sorted({name for queues in settled.livelock for name in queues})
    return Moment(label, tuple(running), tuple(waiting), tuple(evicted), tuple(restless))


def _asks(tree: Tree, workload: Workload) -> tuple[str, int]:
    flavors = {name for part in workload.pod_sets for name in part.flavors or ("",)}
    gpus = sum(_gpus(tree, part) * part.count for part in workload.pod_sets)
    return flavors.pop() if len(flavors) == 1 else "", gpus


def _amounts(tree: Tree, workload: Workload) -> dict[str, int]:
    if any(_gpus(tree, part) for part in workload.pod_sets):
        return {}
    total = add(*(times(part.requests, part.count) for part in workload.pod_sets))
    return {resource: total[resource] for resource in (CPU, MEMORY) if total.get(resource)}


def _by_flavor(tree: Tree, workload: Workload, flavors: tuple[Mapping[str, str], ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part, chosen in zip(workload.pod_sets, flavors, strict=True):
        names = dict.fromkeys(chosen.values())
        gpus = _gpus(tree, part) * part.count
        flavor = next((chosen[name] for name in part.requests if name in gpu_names(tree)), next(iter(names), ""))
        found[flavor] = found.get(flavor, 0) + gpus
    return found


def _gpus(tree: Tree, part: PodSet) -> int:
    return sum(amount for name, amount in part.requests.items() if name in gpu_names(tree))


def gpu_names(tree: Tree) -> set[str]:
    """Resource names of the stack's GPUs."""
    return {flavor.resource for flavor in tree.flavors.values() if flavor.resource}


_REASONS: Final = {
    "InClusterQueue": (
        "prioritization in the ClusterQueue",
        "a job of the same queue has a higher priority or, if the queue allows it, is older",
    ),
    "InCohortReclamation": (
        "reclamation within the cohort",
        "its quota was borrowed, and the team or group to which it is guaranteed reclaimed it",
    ),
    "InCohortFairSharing": (
        "Fair Sharing within the cohort",
        "its team used more than its fair share by weight, and the other team less",
    ),
    "InCohortReclaimWhileBorrowing": (
        "reclamation within the cohort while borrowing",
        "its quota was borrowed, and a job of higher priority may preempt it to borrow",
    ),
}
"""Kueue's text and the meaning for the preempted job, by the reason of condition `Preempted` in Kueue 0.19
(apis/kueue/v1beta2/workload_types.go; `HumanReadablePreemptionReasons` in pkg/scheduler/preemption/preemption.go).
"""


def words(reason: str) -> str:
    """Kueue's text for a reason; an unknown reason unchanged."""
    return _REASONS.get(reason, (reason, reason))[0]


def meaning(reason: str) -> str:
    """The meaning of a reason for the preempted workload; an unknown reason unchanged."""
    return _REASONS.get(reason, (reason, reason))[1]


@dataclass(frozen=True, slots=True)
class Held:
    """A team's GPUs of one flavor (partitions or turns, if shared); CPU or memory without GPUs; in base units."""

    team: str
    flavor: str  # `Measure.label`
    guaranteed: int
    limit: int
    runs: int  # usage
    waits: int  # request of pending jobs
    resource: str

    @property
    def own(self) -> int:
        """Usage within the guarantee."""
        return min(self.runs, self.guaranteed)

    @property
    def borrowed(self) -> int:
        """Usage beyond the guarantee."""
        return self.runs - self.own

    @property
    def unused(self) -> int:
        """Guarantee that the team does not use: idle or lent."""
        return self.guaranteed - self.own


def holdings(tree: Tree, moment: Moment) -> Iterator[Held]:
    """Usage and share of every team with a queue, by measure."""
    for team, shares in tree.team_shares.items():
        own = set(measures_of(tree, team))
        for measure in every_measure(tree):
            runs, waits = moment.amount(team, measure), moment.requested(team, measure)
            if measure in own or runs or waits:
                share = shares.get(measure.flavor, {}).get(measure.resource, Share())
                yield Held(team, measure.label, share.guaranteed, share.effective_limit, runs, waits, measure.resource)


def every_measure(tree: Tree) -> Iterator[Measure]:
    """Everything that a stack counts: the GPUs of each flavor, or its CPU and memory; GPUs first."""
    for name, flavor in sorted(tree.flavors.items(), key=lambda item: item[1].resource is None):
        yield from (Measure(name, resource) for resource in ((flavor.resource,) if flavor.resource else (CPU, MEMORY)))
