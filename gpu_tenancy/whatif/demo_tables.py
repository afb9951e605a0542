"""Tables of a scenario: the teams after a step, and the running jobs after each step."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.listing import PlainTable
from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import counted, plural
from gpu_tenancy.model.plan.shares import Measure, Tree
from gpu_tenancy.simulation.scenarios import Held, Job, JobStep, Moment, Running, StepResult, holdings
from gpu_tenancy.whatif.narrative import number

_ACROSS: Final = 8
"""The most teams that are columns; of more, the steps are columns."""


def teams_of(scenario: Iterable[JobStep]) -> list[str]:
    """The teams whose queues get jobs, in the order of their first job."""
    return list(dict.fromkeys(job.queue for step in scenario for job in step.submit))


def step_table(tree: Tree, teams: Sequence[str], result: StepResult) -> PlainTable:
    """What each team uses, borrows and waits for after a step, and whose jobs were preempted for whom."""
    moment = result.shown
    live = ("foreseen#",) if result.live else ()
    listed = table(
        *("team", "flavor", "guaranteed#", "limit#", "used#", "borrowed#", "pending#", "running jobs#", *live),
        "preempted~",
        drop=("limit", "guaranteed", "borrowed"),
    )
    jobs = Counter(job.team for job in moment.running)
    foreseen = Counter(job.team for job in result.foreseen.running)
    last = ""
    for held in _held(tree, teams, moment):
        first, last = held.team != last, held.team
        amounts = [held.guaranteed, held.limit, held.runs, held.borrowed, held.waits]
        counts = [jobs[held.team], *([foreseen[held.team]] if result.live else [])] if first else [""] * (1 + len(live))
        listed.add_row(
            held.team if first else "",
            held.flavor,
            *(amount_text(held.resource, amount) for amount in amounts),
            *map(str, counts),
            _gave_way(moment, held.team) if first else "",
        )
    return listed


def summary_title(scenario: Iterable[JobStep]) -> str:
    """The title of the summary, with the size of the jobs where all are alike."""
    return f"Running jobs after each step{_size(scenario)}"


def summary_table(scenario: Sequence[JobStep], results: Sequence[StepResult]) -> PlainTable:
    """The running jobs of each team after each step; beside a cluster whether they are as foreseen."""
    teams = teams_of(scenario)
    cells = {
        (number(result.step.label), team): _cell(scenario, results, at, team)
        for at, result in enumerate(results)
        for team in teams
    }
    steps = [number(result.step.label) for result in results]
    agree = {number(result.step.label): "yes" if result.agrees else "no" for result in results if result.live}
    if len(teams) <= _ACROSS:
        listed = table("step#", *(f"{team}#" for team in teams), *(("as foreseen",) if agree else ()))
        for step in steps:
            listed.add_row(step, *(cells[step, team] for team in teams), *([agree[step]] if agree else []))
        return listed
    listed = table("team", *(f"step {step}#" for step in steps))
    for team in teams:
        listed.add_row(team, *(cells[step, team] for step in steps))
    if agree:
        listed.add_row("as foreseen", *(agree[step] for step in steps))
    return listed


def _held(tree: Tree, teams: Sequence[str], moment: Moment) -> list[Held]:
    """The teams of the scenario; memory only where it is borrowed or alone decides."""
    found = [held for held in holdings(tree, moment) if held.team in teams]
    return [held for held in found if held.resource != MEMORY or held.borrowed]


def _gave_way(moment: Moment, team: str) -> str:
    """`2 jobs by namespace3 (InCohortReclamation)`."""
    gone = Counter((job.by_team, job.reason) for job in moment.evicted if job.team == team)
    return "; ".join(f"{plural(count, 'job')} by {by} ({reason})" for (by, reason), count in gone.items())


def _cell(scenario: Sequence[JobStep], results: Sequence[StepResult], at: int, team: str) -> str:
    """The number of running jobs, and that which was foreseen if it is another; empty before the team's first job."""
    if not any(job.queue == team for step in scenario[: at + 1] for job in step.submit):
        return ""
    result = results[at]
    running = [job for job in result.shown.running if job.team == team]
    text = str(len(running)) + ("" if _size(scenario) else _amounts(running))
    other = next((difference for difference in result.differences if difference.team == team), None)
    return f"{text}, foreseen {other.foreseen}" if other else text


def _amounts(running: Iterable[Running]) -> str:
    """` (32 h100, 10 CPUs)`: GPUs of jobs that have some, CPUs of the others."""
    found: Counter[Measure] = Counter()
    for job in running:
        cpus = not job.gpus and CPU in job.amounts
        found[Measure(job.flavor, CPU if cpus else "")] += job.amounts[CPU] if cpus else job.gpus
    listed = [f"{amount_text(measure.resource, amount)} {measure.label}" for measure, amount in found.items() if amount]
    return f" ({', '.join(listed)})" if listed else ""


def _size(scenario: Iterable[JobStep]) -> str:
    """`, of 5 CPUs each` where all jobs have the same size; else empty."""
    sizes = {_requested(job) for step in scenario for job in step.submit}
    return f", of {sizes.pop()} each" if len(sizes) == 1 else ""


def _requested(job: Job) -> str:
    named = [(name, amount) for name, amount in job.requests.items() if "/" in name]
    resource, amount = named[0] if named else next(iter(job.requests.items()))
    return counted(amount * job.pods, resource, job.flavor if named else "")
