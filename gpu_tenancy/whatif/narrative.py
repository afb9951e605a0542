"""Texts about a timeline for people: its headline, its sentences, its events; programs read `timeline_data`."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpu_tenancy.base.quantity import CPU, MEMORY, amount_text, is_extended
from gpu_tenancy.base.texts import counted, plural, unit
from gpu_tenancy.model.plan.shares import Measure, Share, Tree
from gpu_tenancy.pages.tables import Tone
from gpu_tenancy.simulation.scenarios import Event, Held, Job, JobStep, PreemptedJob, Running, Waiting
from gpu_tenancy.whatif.timeline import Timeline


def tone(timeline: Timeline) -> Tone:
    """Colour of the headline: good where no job is pending or preempted."""
    if timeline.restless:
        return "bad"
    return "notice" if timeline.last.waiting or any(timeline.preempted()) else "good"


def headline(timeline: Timeline) -> str:
    """The state at the end, in one line."""
    if timeline.restless:
        return "Some queues end in a livelock"
    gpus = [measure for measure in timeline.counted if is_extended(measure.resource)]
    others = ([measure for measure in timeline.counted if measure.resource == resource] for resource in (CPU, MEMORY))
    summed = [gpus] if gpus else others
    usage = " and ".join(_sum_text(timeline, listed) for listed in summed if listed) or "0 of 0 GPUs"
    jobs, teams = len(timeline.last.waiting), len({job.team for job in timeline.last.waiting})
    pending = f"{plural(jobs, 'job')} pending" if timeline.scenario else f"{plural(teams, 'team')} with pending jobs"
    return f"{'At the end: ' if timeline.scenario else ''}{usage} in use, {pending if jobs else 'no jobs pending'}"


def _sum_text(timeline: Timeline, listed: Sequence[Measure]) -> str:
    """`8 of 32 GPUs`: what is used and what the queues share, of one resource in several flavors."""
    resource = listed[0].resource
    used, capacity = (sum(of(measure) for measure in listed) for of in (timeline.used, timeline.supply))
    return f"{amount_text(resource, used)} of {amount_text(resource, capacity)} {unit(resource)}"


def sentences(timeline: Timeline) -> Iterator[str]:
    """Usage and pending jobs of each flavor."""
    for _, queues in timeline.restless:
        yield livelock(queues)
    for measure in timeline.counted:
        parts = [_usage(held) for held in timeline.held if held.flavor == measure.label and (held.runs or held.waits)]
        used = amount_text(measure.resource, timeline.used(measure))
        total = f"{used} of {counted(timeline.supply(measure), measure.resource, measure.label)} in use"
        yield f"{total}{': ' if parts else ''}{'; '.join(parts)}."


def _usage(held: Held) -> str:
    runs, borrowed, waits = (amount_text(held.resource, n) for n in (held.runs, held.borrowed, held.waits))
    parts = [f"{borrowed} borrowed"] if held.borrowed else []
    parts += [f"{waits} pending"] if held.waits else []
    detail = f" ({', '.join(parts)})" if parts else ""
    return f"{held.team} uses {runs}{detail}"


def noun(measure: Measure) -> str:
    """`a100 GPUs`, `general CPUs`."""
    return f"{measure.label} GPUs" if is_extended(measure.resource) else measure.label


def request_text(job: Running | Waiting | PreemptedJob) -> str:
    """What a job uses or requests: `8 a100`, `40 CPUs, 64Gi memory of general`."""
    if job.amounts:
        text = ", ".join(counted(amount, name) for name, amount in job.amounts.items())
        return f"{text} of {job.flavor}" if job.flavor else text
    return f"{job.gpus} {job.flavor}" if job.gpus else job.flavor


def livelock(queues: tuple[str, ...]) -> str:
    """Queues whose jobs preempt one another endlessly."""
    return f"Jobs of {', '.join(queues)} preempt one another endlessly, as in Kueue; this is one of several states."


def step_lines(timeline: Timeline) -> Iterator[tuple[str, str, list[str]]]:
    """The label of each step, its numbers of jobs, and its events."""
    texts = EventTexts(timeline.tree)
    for step in timeline.steps:
        texts.know(step.result.step)
        now = step.moment
        counts = f"{len(now.running)} running, {len(now.waiting)} pending"
        yield step.label, counts, [texts.text(event) for event in step.events]


class EventTexts:
    """Texts of events; it follows what each team uses.

    Args:
        tree: of the stack.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._jobs: dict[str, Job] = {}
        self._used: Counter[tuple[str, Measure]] = Counter()
        self._running: set[str] = set()
        self._pending: dict[str, str] = {}

    def know(self, step: JobStep) -> None:
        """Takes the jobs that a step submits."""
        self._jobs |= {job.name: job for job in step.submit}
        self._pending = {}

    def text(self, event: Event) -> str:
        """`n1-3 admitted: namespace1 uses 15 CPUs, 5 borrowed`."""
        job = self._jobs.get(event.job)
        if event.kind == "admitted":
            self._count(job, 1)
            usage = self._usage(job)
            return f"{event.job} admitted{f': {usage}' if usage else f' ({event.team})'}"
        if event.kind != "pending":
            self._count(job, -1)
        reason = ": ".join(part for part in (event.reason, event.message) if part)
        if event.kind == "preempted":
            by = f"{event.by} ({event.by_team})" if event.by_team else event.by
            return f"{event.job} ({event.team}) preempted by {by}, {reason}"
        return f"{event.job} ({event.team}) {event.kind}{self._because(event, reason)}"

    def _because(self, event: Event, reason: str) -> str:
        """`: insufficient unused quota …`; `, as n1-3` for the same reason as another job of this step."""
        if event.kind != "pending":
            return f": {reason}" if reason else ""
        if (same := self._pending.setdefault(reason, event.job)) != event.job:
            return f", as {same}"
        return f": {reason}" if reason else ""

    def _count(self, job: Job | None, sign: int) -> None:
        if job is None or (job.name in self._running) == (sign > 0):
            return
        (self._running.add if sign > 0 else self._running.discard)(job.name)
        self._used[job.queue, measure_of(self._tree, job)] += sign * amount_of_job(self._tree, job)

    def _usage(self, job: Job | None) -> str:
        if job is None:
            return ""
        measure = measure_of(self._tree, job)
        used = self._used[job.queue, measure]
        share = self._tree.team_shares[job.queue].get(measure.flavor, {}).get(measure.resource, Share())
        borrowed = used - share.guaranteed
        label = "" if not is_extended(measure.resource) and measure.flavor == CPU else measure.label
        text = f"{job.queue} uses {counted(used, measure.resource, label)}"
        if borrowed <= 0:
            return text
        return f"{text}, {counted(borrowed, measure.resource).partition(' ')[0]} borrowed"


def measure_of(tree: Tree, job: Job) -> Measure:
    """What is counted of a job: its GPUs, or its CPUs if it has none."""
    resource = tree.flavors[job.flavor].resource
    return Measure(job.flavor, resource if resource and job.requests.get(resource) else CPU)


def amount_of_job(tree: Tree, job: Job) -> int:
    """The amount of it for all pods of a job, in base units."""
    return job.pods * job.requests.get(measure_of(tree, job).resource, 0)
