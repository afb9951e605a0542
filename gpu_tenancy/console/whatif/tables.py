"""The tables of the page, with the same numbers as the pictures."""

from collections import Counter

from gpu_tenancy.console.review.figures import DASH, Row, Table, columns, row
from gpu_tenancy.console.whatif.narrative import Played, number
from gpu_tenancy.console.whatif.timeline import jobs_of, state
from gpu_tenancy.model.whatif import meaning, supply


def tables(played: Played) -> dict[str, Table]:
    """All tables by name."""
    found = [_teams(played), _supply(played), _waiting(played)]
    found += [_gone(played), _jobs(played), _over_time(played)] if played.story else [_taken(played)]
    return {each.name: each for each in found}


def _teams(played: Played) -> Table:
    rows = [
        row(
            each.team,
            each.flavor,
            played.tree.cohort_of(each.team),
            each.guaranteed,
            each.limit,
            each.runs,
            each.own,
            each.borrowed,
            each.unused,
            each.waits,
            team=each.team,
        )
        for each in played.held
        if each.flavor in played.flavors
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
    for name in played.flavors:
        used, capacity = sum(each.runs for each in played.held if each.flavor == name), supply(played.tree, name)
        flavor = played.tree.flavors[name]
        rows.append(row(name, capacity, used, capacity - used, flavor.gangs.get(flavor.resource or "", 0)))
    heads = columns("flavor", "GPUs of the queues#", "in use#", "free#", "reserved for Volcano#")
    return Table("flavors", "GPUs by flavor", heads, tuple(rows))


def _waiting(played: Played) -> Table:
    """Jobs that are pending at the end; without single jobs, by team and reason."""
    if played.story:
        heads = columns("job", "team", "flavor", "GPUs#", "reason")
        jobs = [row(each.workload, each.team, each.flavor, each.gpus, each.why) for each in played.last.waiting]
        return Table("waiting", "Pending jobs", heads, tuple(jobs))
    amounts: Counter[tuple[str, str, str]] = Counter()
    for each in played.last.waiting:
        amounts[each.team, each.flavor, each.why] += each.gpus
    rows = [row(team, flavor, gpus, why, team=team) for (team, flavor, why), gpus in amounts.items()]
    heads = columns("team", "flavor", "GPUs#", "reason for the next job of one GPU")
    return Table("waiting", "Pending jobs", heads, tuple(rows), keys=2)


def _gone(played: Played) -> Table:
    rows = [
        row(
            each.workload,
            each.team,
            f"{each.gpus} {each.flavor}",
            number(label),
            each.by,
            each.by_team,
            each.reason,
            meaning(each.reason),
        )
        for label, each in played.evicted()
    ]
    heads = columns("preempted", "team", "GPUs", "step#", "by", "team", "Kueue's reason", "meaning")
    return Table("gone", "Preempted jobs", heads, tuple(rows))


def _taken(played: Played) -> Table:
    amounts: Counter[tuple[str, str, str, str]] = Counter()
    for _, each in played.evicted():
        amounts[each.team, each.by_team, each.flavor, each.reason] += each.gpus
    rows = [row(of, to, flavor, gpus, why, meaning(why)) for (of, to, flavor, why), gpus in amounts.items()]
    heads = columns("preempted team", "by team", "flavor", "GPUs#", "Kueue's reason", "meaning")
    return Table("gone", "Preempted jobs", heads, tuple(rows), keys=3)


def _jobs(played: Played) -> Table:
    """State of each job after each step."""
    rows = [
        row(
            each.workload,
            each.team,
            f"{each.gpus} {each.flavor}" if each.gpus else each.flavor,
            *(state(moment, each.workload) or DASH for moment in played.moments),
        )
        for each in jobs_of(played.moments).values()
    ]
    heads = columns("job", "team", "requests", *(f"step {number(each.label)}" for each in played.moments))
    return Table("jobs", "Jobs by step", heads, tuple(rows))


def _over_time(played: Played) -> Table:
    """GPUs of each team and flavor after each step."""
    rows = [
        row(each.team, each.flavor, *(moment.gpus(each.team, each.flavor) for moment in played.moments))
        for each in played.held
        if each.flavor in played.flavors and any(moment.gpus(each.team, each.flavor) for moment in played.moments)
    ]
    heads = columns("team", "flavor", *(f"step {number(each.label)}#" for each in played.moments))
    return Table("over-time", "GPUs in use by step", heads, tuple(rows), keys=2)
