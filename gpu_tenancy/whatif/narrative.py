"""Texts and tables of a timeline for people; programs read `timeline_data`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gpu_tenancy.base.quantity import CPU, MEMORY, amount_text, is_extended
from gpu_tenancy.base.texts import DASH, available, counted, plural, unit
from gpu_tenancy.model.plan.shares import Measure, Share, Tree
from gpu_tenancy.pages.tables import Row, Table, Tone, columns, row
from gpu_tenancy.simulation.player import Event, StepResult
from gpu_tenancy.simulation.stage import Held, Job, JobStep, Running, amount_of, meaning
from gpu_tenancy.whatif.timeline import Timeline, state


def tone(timeline: Timeline) -> Tone:
    """Colour of the headline: good if no job is pending or preempted."""
    if timeline.restless:
        return "bad"
    return "notice" if timeline.last.waiting or any(timeline.preempted()) else "good"


def headline(timeline: Timeline) -> str:
    """The final state in one line."""
    if timeline.restless:
        return "Some queues end in a livelock"
    gpus = [measure for measure in timeline.counted if is_extended(measure.resource)]
    others = ([measure for measure in timeline.counted if measure.resource == resource] for resource in (CPU, MEMORY))
    sums: list[str] = []  # What is used and what the queues share, of one resource in several flavors.
    for listed in filter(None, [gpus] if gpus else others):
        resource = listed[0].resource
        used, capacity = (sum(of(measure) for measure in listed) for of in (timeline.used, timeline.supply))
        sums.append(f"{amount_text(resource, used)} of {amount_text(resource, capacity)} {unit(resource)}")
    usage = " and ".join(sums) or "0 of 0 GPUs"
    jobs, teams = len(timeline.last.waiting), len({job.team for job in timeline.last.waiting})
    pending = f"{plural(jobs, 'job')} pending" if timeline.scenario else f"{plural(teams, 'team')} with pending jobs"
    return f"{'At the end: ' if timeline.scenario else ''}{usage} in use, {pending if jobs else 'no jobs pending'}"


def sentences(timeline: Timeline) -> Iterator[str]:
    """Usage and pending jobs of each flavor."""
    yield from (livelock(queues) for _, queues in timeline.restless)
    for measure in timeline.counted:
        parts: list[str] = []
        for held in timeline.held:
            if held.flavor == measure.label and (held.runs or held.waits):
                runs, borrowed, waits = (amount_text(held.resource, n) for n in (held.runs, held.borrowed, held.waits))
                details = [f"{borrowed} borrowed"] if held.borrowed else []
                details += [f"{waits} pending"] if held.waits else []
                detail = f" ({', '.join(details)})" if details else ""
                parts.append(f"{held.team} uses {runs}{detail}")
        used = amount_text(measure.resource, timeline.used(measure))
        total = f"{used} of {counted(timeline.supply(measure), measure.resource, measure.label)} in use"
        yield f"{total}{': ' if parts else ''}{'; '.join(parts)}."


def noun(measure: Measure) -> str:
    """`a100 GPUs`, `general CPUs`."""
    return f"{measure.label} GPUs" if is_extended(measure.resource) else measure.label


def request_text(job: Running) -> str:
    """Usage or request of a job: `8 a100`, `40 CPUs, 64Gi memory of general`."""
    if job.amounts:
        text = ", ".join(counted(amount, name) for name, amount in job.amounts.items())
        return f"{text} of {job.flavor}" if job.flavor else text
    return f"{job.gpus} {job.flavor}" if job.gpus else job.flavor


def livelock(queues: tuple[str, ...]) -> str:
    """The sentence about queues whose jobs preempt one another endlessly."""
    return f"Jobs of {', '.join(queues)} preempt one another endlessly, as in Kueue; this is one of several states."


def step_lines(timeline: Timeline) -> Iterator[tuple[str, str, list[str]]]:
    """The label of each step, its numbers of jobs, and its events."""
    texts = EventTexts(timeline.tree)
    for step in timeline.steps:
        texts.know(step.step)
        counts = f"{len(step.shown.running)} running, {len(step.shown.waiting)} pending"
        yield step.label, counts, [texts.text(event) for event in step.events]


class EventTexts:
    """Texts of events, with the usage of each team."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._jobs: dict[str, Job] = {}
        self._used: Counter[tuple[str, Measure]] = Counter()
        self._running: set[str] = set()
        self._pending: dict[str, str] = {}

    def know(self, step: JobStep) -> None:
        """Registers the jobs that a step submits."""
        self._jobs |= {job.name: job for job in step.submit}
        self._pending = {}

    def text(self, event: Event) -> str:
        """`n1-3 admitted: namespace1 uses 15 CPUs, 5 borrowed`."""
        job = self._jobs.get(event.job)
        if event.kind == "admitted":
            self._count(job, 1)
            return f"{event.job} admitted{f': {self._usage(job)}' if job else f' ({event.team})'}"
        if event.kind != "pending":
            self._count(job, -1)
        reason = ": ".join(part for part in (event.reason, event.message) if part)
        if event.kind == "preempted":
            by = f"{event.by} ({event.by_team})" if event.by_team else event.by
            return f"{event.job} ({event.team}) preempted by {by}, {reason}"
        because = f": {reason}" if reason else ""
        if event.kind == "pending" and (same := self._pending.setdefault(reason, event.job)) != event.job:
            because = f", as {same}"  # The same reason as another job of this step.
        return f"{event.job} ({event.team}) {event.kind}{because}"

    def _count(self, job: Job | None, sign: int) -> None:
        if job is None or (job.name in self._running) == (sign > 0):
            return
        (self._running.add if sign > 0 else self._running.discard)(job.name)
        measure = measure_of(self._tree, job)
        self._used[job.queue, measure] += sign * job.pods * job.requests.get(measure.resource, 0)

    def _usage(self, job: Job) -> str:
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
    """The counted resource of a job: its GPUs, or its CPUs if it has none."""
    resource = tree.flavors[job.flavor].resource
    return Measure(job.flavor, resource if resource and job.requests.get(resource) else CPU)


def usage_table(held: Sequence[Held], result: StepResult, *, scenario: bool) -> Table:
    """Usage, borrowing, pending requests and preemptions of each team after a step."""
    moment, foreseen = result.shown, Counter(job.team for job in result.foreseen.running)
    jobs = Counter(job.team for job in moment.running)
    rows: list[Row] = []
    named: set[str] = set()
    for usage in held:
        amounts = (usage.guaranteed, usage.limit, usage.runs, usage.borrowed, usage.waits)
        counts = [jobs[usage.team]] if scenario else []
        counts += [foreseen[usage.team]] if result.live else []
        first = usage.team not in named
        named.add(usage.team)
        gone = Counter((job.by_team, job.reason) for job in moment.evicted if job.team == usage.team)
        preempted = [f"{plural(count, 'job')} by {by} ({reason})" for (by, reason), count in gone.items()]
        rows.append(
            row(
                usage.team,
                usage.flavor,
                *(amount_text(usage.resource, amount) for amount in amounts),
                *(counts if first else [""] * len(counts)),
                *(["; ".join(preempted) if first else ""] if moment.evicted else []),
                team=usage.team,
            )
        )
    heads = ["team", "flavor", "guaranteed#", "limit#", "used#", "borrowed#", "pending#"]
    heads += ["running jobs#"] if scenario else []
    heads += ["foreseen#"] if result.live else []
    heads += ["preempted"] if moment.evicted else []
    return Table("teams", "Usage by team", columns(*heads), tuple(rows), keys=2)


def teams_of(scenario: Iterable[JobStep]) -> list[str]:
    """The teams whose queues get jobs, in the order of their first job."""
    return list(dict.fromkeys(job.queue for step in scenario for job in step.submit))


def of_scenario(held: Iterable[Held], teams: Sequence[str]) -> list[Held]:
    """The usage of a scenario's teams; memory only if it is borrowed."""
    return [usage for usage in held if usage.team in teams and (usage.resource != MEMORY or usage.borrowed)]


def steps_table(scenario: Sequence[JobStep], results: Sequence[StepResult]) -> Table:
    """The running jobs of each team after each step, and with a cluster whether they match the simulation."""
    rows: list[Row] = []
    for team in teams_of(scenario):
        cells: list[str] = []  # The number of running jobs, and the foreseen number if it is another.
        for result in results:
            running = sum(1 for job in result.shown.running if job.team == team)
            foreseen = result.differences.get(team)
            cells.append(str(running) if foreseen is None else f"{running}, foreseen {foreseen}")
        rows.append(row(team, *cells))
    if any(result.live for result in results):
        rows.append(row("as foreseen", *("yes" if result.agrees else "no" for result in results)))
    heads = columns("team", *(f"step {result.step.number}#" for result in results))
    return Table("steps", "Running jobs after each step", heads, tuple(rows))


def pending_table(timeline: Timeline) -> Table:
    """Jobs that are pending at the end; for a load on all queues amounts by team and reason."""
    waiting = timeline.last.waiting
    if timeline.scenario:
        jobs = [row(job.workload, job.team, request_text(job), job.why) for job in waiting]
        return Table("waiting", "Pending jobs", columns("job", "team", "requests", "reason"), tuple(jobs))
    amounts: Counter[tuple[str, Measure, str]] = Counter()
    for job in waiting:
        for measure in timeline.counted:
            amounts[job.team, measure, job.why] += amount_of(job, measure)
    rows = [
        row(team, measure.label, amount_text(measure.resource, amount), why, team=team)
        for (team, measure, why), amount in amounts.items()
        if amount
    ]
    heads = columns("team", "flavor", "requested#", "reason for the next job")
    return Table("waiting", "Pending jobs", heads, tuple(rows), keys=2)


def preempted_table(timeline: Timeline) -> Table:
    """The preempted jobs of a scenario."""
    rows = [
        row(
            job.workload,
            job.team,
            request_text(job),
            step.step.number,
            job.by,
            job.by_team,
            job.reason,
            meaning(job.reason),
        )
        for step, job in timeline.preempted()
    ]
    heads = columns("preempted", "team", "requests", "step#", "by", "team", "Kueue's reason", "meaning")
    return Table("gone", "Preempted jobs", heads, tuple(rows))


def jobs_table(timeline: Timeline) -> Table:
    """State of each job after each step."""
    rows = [
        row(job.workload, job.team, request_text(job), *(state(now, job.workload) or DASH for now in timeline.moments))
        for job in timeline.jobs.values()
    ]
    heads = columns("job", "team", "requests", *(f"step {step.step.number}" for step in timeline.steps))
    return Table("jobs", "Jobs by step", heads, tuple(rows))


def amounts_table(timeline: Timeline) -> Table:
    """GPUs, or CPU and memory, of each team and flavor after each step."""
    rows: list[Row] = []
    by_label = {measure.label: measure for measure in timeline.counted}
    for held in timeline.held_of_counted:
        amounts = [moment.amount(held.team, by_label[held.flavor]) for moment in timeline.moments]
        if any(amounts):
            rows.append(row(held.team, held.flavor, *(amount_text(held.resource, amount) for amount in amounts)))
    nouns = available(measure.resource for measure in timeline.counted)
    heads = columns("team", "flavor", *(f"step {step.step.number}#" for step in timeline.steps))
    return Table("over-time", f"{nouns} in use by step", heads, tuple(rows), keys=2)
