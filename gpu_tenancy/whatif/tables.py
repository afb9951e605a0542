"""The tables of the page, with the same numbers as the pictures."""

from collections import Counter
from collections.abc import Iterable

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.texts import DASH, available, counted
from gpu_tenancy.model.plan.measures import Measure, supply_of
from gpu_tenancy.pages.tables import Row, Table, columns, row
from gpu_tenancy.simulation.scenarios import GaveWay, Running, Waiting, amount_of, meaning
from gpu_tenancy.whatif.narrative import Played, job_note, number
from gpu_tenancy.whatif.timeline import jobs_of, state


def tables(played: Played) -> dict[str, Table]:
    """All tables by name."""
    found = [_teams(played), _supply(played), _waiting(played)]
    found += [_gone(played), _jobs(played), _over_time(played)] if played.scenario else [_taken(played)]
    return {table.name: table for table in found}


def _teams(played: Played) -> Table:
    rows = [
        row(
            usage.team,
            usage.flavor,
            played.tree.cohort_of(usage.team),
            *(
                amount_text(usage.resource, amount)
                for amount in (
                    usage.guaranteed,
                    usage.limit,
                    usage.runs,
                    usage.own,
                    usage.borrowed,
                    usage.unused,
                    usage.waits,
                )
            ),
            team=usage.team,
        )
        for usage in played.held
        if usage.flavor in played.labels
    ]
    heads = columns(
        "team",
        "flavor",
        "cohort",
        "guaranteed#",
        "limit#",
        "used#",
        "of the guarantee#",
        "borrowed#",
        "unused guarantee#",
        "pending#",
    )
    return Table("teams", "Usage by team", heads, tuple(rows), keys=2)


def _supply(played: Played) -> Table:
    rows: list[Row] = []
    for measure in played.counted:
        used = sum(held.runs for held in played.held if held.flavor == measure.label)
        capacity = supply_of(played.tree, measure)
        gangs = played.tree.flavors[measure.flavor].gangs.get(measure.resource, 0)
        amounts = (amount_text(measure.resource, n) for n in (capacity, used, capacity - used, gangs))
        rows.append(row(measure.label, *amounts))
    nouns = available(measure.resource for measure in played.counted)
    heads = columns("flavor", f"{nouns} of the queues#", "in use#", "free#", "reserved for Volcano#")
    return Table("flavors", f"{nouns} by flavor", heads, tuple(rows))


def _waiting(played: Played) -> Table:
    """Jobs that are pending at the end; without single jobs, by team and reason."""
    if played.scenario:
        jobs = [row(job.workload, job.team, job.flavor, _requested(job), job.why) for job in played.last.waiting]
        heads = columns("job", "team", "flavor", f"{_heading(played.last.waiting)}#", "reason")
        return Table("waiting", "Pending jobs", heads, tuple(jobs))
    amounts: Counter[tuple[str, Measure, str]] = Counter()
    for job in played.last.waiting:
        for measure in played.counted:
            if amount := amount_of(job, measure):
                amounts[job.team, measure, job.why] += amount
    rows = [
        row(team, measure.label, amount_text(measure.resource, amount), why, team=team)
        for (team, measure, why), amount in amounts.items()
    ]
    with_cpus = any(job.amounts for job in played.last.waiting)
    next_job = "the next job" if with_cpus else "the next job of one GPU"
    heads = columns("team", "flavor", f"{_heading(played.last.waiting)}#", f"reason for {next_job}")
    return Table("waiting", "Pending jobs", heads, tuple(rows), keys=2)


def _requested(job: Running | Waiting | GaveWay) -> str:
    """GPUs as a number; CPU and memory with their units."""
    return ", ".join(counted(amount, name) for name, amount in job.amounts.items()) or str(job.gpus)


def _heading(jobs: Iterable[Running | Waiting | GaveWay]) -> str:
    """The heading of requests: `GPUs` where no job is without GPUs."""
    return "requests" if any(job.amounts for job in jobs) else "GPUs"


def _gone(played: Played) -> Table:
    rows = [
        row(
            job.workload,
            job.team,
            job_note(job),
            number(label),
            job.by,
            job.by_team,
            job.reason,
            meaning(job.reason),
        )
        for label, job in played.evicted()
    ]
    heads = columns(
        "preempted",
        "team",
        _heading(job for _, job in played.evicted()),
        "step#",
        "by",
        "team",
        "Kueue's reason",
        "meaning",
    )
    return Table("gone", "Preempted jobs", heads, tuple(rows))


def _taken(played: Played) -> Table:
    amounts: Counter[tuple[str, str, Measure, str]] = Counter()
    for _, job in played.evicted():
        for measure in played.counted:
            if amount := amount_of(job, measure):
                amounts[job.team, job.by_team, measure, job.reason] += amount
    rows = [
        row(of, to, measure.label, amount_text(measure.resource, amount), why, meaning(why))
        for (of, to, measure, why), amount in amounts.items()
    ]
    heading = _heading(job for _, job in played.evicted())
    heads = columns("preempted team", "by team", "flavor", f"{heading}#", "Kueue's reason", "meaning")
    return Table("gone", "Preempted jobs", heads, tuple(rows), keys=3)


def _jobs(played: Played) -> Table:
    """State of each job after each step."""
    rows = [
        row(
            job.workload,
            job.team,
            job_note(job),
            *(state(moment, job.workload) or DASH for moment in played.moments),
        )
        for job in jobs_of(played.moments).values()
    ]
    heads = columns("job", "team", "requests", *(f"step {number(moment.label)}" for moment in played.moments))
    return Table("jobs", "Jobs by step", heads, tuple(rows))


def _over_time(played: Played) -> Table:
    """GPUs, or CPU and memory, of each team and flavor after each step."""
    rows: list[Row] = []
    by_label = {measure.label: measure for measure in played.counted}
    for held in played.held:
        measure = by_label.get(held.flavor)
        amounts = [moment.amount(held.team, measure) for moment in played.moments] if measure else []
        if any(amounts):
            rows.append(row(held.team, held.flavor, *(amount_text(held.resource, amount) for amount in amounts)))
    nouns = available(measure.resource for measure in played.counted)
    heads = columns("team", "flavor", *(f"step {number(moment.label)}#" for moment in played.moments))
    return Table("over-time", f"{nouns} in use by step", heads, tuple(rows), keys=2)
