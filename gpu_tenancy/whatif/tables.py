"""The tables of a timeline, for the terminal and the page."""

from collections import Counter
from collections.abc import Iterable, Sequence

from gpu_tenancy.base.quantity import MEMORY, amount_text
from gpu_tenancy.base.texts import DASH, available, plural
from gpu_tenancy.model.plan.shares import Measure
from gpu_tenancy.pages.tables import Row, Table, columns, row
from gpu_tenancy.simulation.scenarios import (
    Held,
    JobStep,
    Moment,
    StepResult,
    amount_of,
    meaning,
)
from gpu_tenancy.whatif.narrative import request_text
from gpu_tenancy.whatif.timeline import Timeline, state


def usage_table(held: Sequence[Held], result: StepResult, *, scenario: bool) -> Table:
    """What each team uses, borrows and waits for after a step, and whose jobs were preempted for whom."""
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
        rows.append(
            row(
                usage.team,
                usage.flavor,
                *(amount_text(usage.resource, amount) for amount in amounts),
                *(counts if first else [""] * len(counts)),
                *([_preempted(moment, usage.team) if first else ""] if moment.evicted else []),
                team=usage.team,
            )
        )
    heads = ["team", "flavor", "guaranteed#", "limit#", "used#", "borrowed#", "pending#"]
    heads += ["running jobs#"] if scenario else []
    heads += ["foreseen#"] if result.live else []
    heads += ["preempted"] if moment.evicted else []
    return Table("teams", "Usage by team", columns(*heads), tuple(rows), keys=2)


def _preempted(moment: Moment, team: str) -> str:
    """`2 jobs by namespace3 (InCohortReclamation)`."""
    gone = Counter((job.by_team, job.reason) for job in moment.evicted if job.team == team)
    return "; ".join(f"{plural(count, 'job')} by {by} ({reason})" for (by, reason), count in gone.items())


def teams_of(scenario: Iterable[JobStep]) -> list[str]:
    """The teams whose queues get jobs, in the order of their first job."""
    return list(dict.fromkeys(job.queue for step in scenario for job in step.submit))


def of_scenario(held: Iterable[Held], teams: Sequence[str]) -> list[Held]:
    """The teams of a scenario; memory only where it is borrowed."""
    return [usage for usage in held if usage.team in teams and (usage.resource != MEMORY or usage.borrowed)]


def steps_table(scenario: Sequence[JobStep], results: Sequence[StepResult]) -> Table:
    """The running jobs of each team after each step; beside a cluster whether they are as foreseen."""
    rows = [row(team, *(_running(result, team) for result in results)) for team in teams_of(scenario)]
    if any(result.live for result in results):
        rows.append(row("as foreseen", *("yes" if result.agrees else "no" for result in results)))
    heads = columns("team", *(f"step {result.step.number}#" for result in results))
    return Table("steps", "Running jobs after each step", heads, tuple(rows))


def _running(result: StepResult, team: str) -> str:
    """The number of running jobs, and that which was foreseen if it is another."""
    running = sum(1 for job in result.shown.running if job.team == team)
    other = next((difference for difference in result.differences if difference.team == team), None)
    return f"{running}, foreseen {other.foreseen}" if other else str(running)


def pending_table(timeline: Timeline) -> Table:
    """Jobs that are pending at the end; of a load on all queues their amounts, by team and reason."""
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
            step.result.step.number,
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
    heads = columns("job", "team", "requests", *(f"step {step.result.step.number}" for step in timeline.steps))
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
    heads = columns("team", "flavor", *(f"step {step.result.step.number}#" for step in timeline.steps))
    return Table("over-time", f"{nouns} in use by step", heads, tuple(rows), keys=2)
