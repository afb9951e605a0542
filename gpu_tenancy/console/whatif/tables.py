"""The tables beside the pictures, which say the same."""

from collections import Counter

from gpu_tenancy.console.review.figures import DASH, Row, Table, columns, row
from gpu_tenancy.console.whatif.telling import Played, number
from gpu_tenancy.console.whatif.timeline import jobs_of, state
from gpu_tenancy.model.whatif import meaning, supply


def tables(played: Played) -> dict[str, Table]:
    """All tables by their names."""
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
        "team", "flavor", "group", "guaranteed#", "limit#", "runs#", "its own#", "borrowed#", "unused#", "waits for#"
    )
    return Table("teams", "Who has what", heads, tuple(rows), keys=2)


def _supply(played: Played) -> Table:
    rows: list[Row] = []
    for name in played.flavors:
        used, most = sum(each.runs for each in played.held if each.flavor == name), supply(played.tree, name)
        flavor = played.tree.flavors[name]
        rows.append(row(name, most, used, most - used, flavor.gangs.get(flavor.resource or "", 0)))
    heads = columns("flavor", "GPUs of the queues#", "in use#", "free#", "Volcano's, beside them#")
    return Table("flavors", "GPUs by flavor", heads, tuple(rows))


def _waiting(played: Played) -> Table:
    """Jobs that wait at the end; in a scene those of a team that wait for the same reason together."""
    if played.story:
        heads = columns("job", "team", "flavor", "GPUs#", "why it waits")
        jobs = [row(each.workload, each.team, each.flavor, each.gpus, each.why) for each in played.last.waiting]
        return Table("waiting", "Who waits, and why", heads, tuple(jobs))
    amounts: Counter[tuple[str, str, str]] = Counter()
    for each in played.last.waiting:
        amounts[each.team, each.flavor, each.why] += each.gpus
    rows = [row(team, flavor, gpus, why, team=team) for (team, flavor, why), gpus in amounts.items()]
    heads = columns("team", "flavor", "GPUs#", "why the next job of one GPU waits")
    return Table("waiting", "Who waits, and why", heads, tuple(rows), keys=2)


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
    heads = columns("gave way", "of", "with", "step#", "to", "of", "Kueue's reason", "which means")
    return Table("gone", "Who gave way to whom", heads, tuple(rows))


def _taken(played: Played) -> Table:
    amounts: Counter[tuple[str, str, str, str]] = Counter()
    for _, each in played.evicted():
        amounts[each.team, each.by_team, each.flavor, each.reason] += each.gpus
    rows = [row(of, to, flavor, gpus, why, meaning(why)) for (of, to, flavor, why), gpus in amounts.items()]
    heads = columns("gave way", "to", "flavor", "GPUs#", "Kueue's reason", "which means")
    return Table("gone", "Who gave way to whom", heads, tuple(rows), keys=3)


def _jobs(played: Played) -> Table:
    """Each job's state after each step."""
    rows = [
        row(
            each.workload,
            each.team,
            f"{each.gpus} {each.flavor}" if each.gpus else each.flavor,
            *(state(moment, each.workload) or DASH for moment in played.moments),
        )
        for each in jobs_of(played.moments).values()
    ]
    heads = columns("job", "team", "asks for", *(f"step {number(each.label)}" for each in played.moments))
    return Table("jobs", "Jobs, step by step", heads, tuple(rows))


def _over_time(played: Played) -> Table:
    """What each team has of each flavor after each step."""
    rows = [
        row(each.team, each.flavor, *(moment.gpus(each.team, each.flavor) for moment in played.moments))
        for each in played.held
        if each.flavor in played.flavors and any(moment.gpus(each.team, each.flavor) for moment in played.moments)
    ]
    heads = columns("team", "flavor", *(f"step {number(each.label)}#" for each in played.moments))
    return Table("over-time", "GPUs in use, step by step", heads, tuple(rows), keys=2)
