"""Tables of a month for terminal, page, CSV and programs."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple
from functools import partial
from typing import Final

from rich.console import Console
from rich.markup import escape

from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.base.texts import DASH, UNKNOWN, first_names, hours_text, share
from gpu_tenancy.base.usd import NONE, Usd
from gpu_tenancy.cost.statement import Hours, JobUse, Line, Statement
from gpu_tenancy.pages.tables import FOLD, Row, Table, columns, environment, policy, printed, row


def headline(statement: Statement) -> str:
    """The month in one line."""
    total = _sum(statement.lines)
    paid = str(spent(statement.lines))
    used = f"{hours_text(total.used)} GPU-hours used{'' if paid == UNKNOWN else f', {paid}'}"
    own = total.used - total.borrowed
    kept = f"; of {hours_text(total.guaranteed)} guaranteed, {share(round(own), round(total.guaranteed))} used"
    return f"{statement.period.month}: {used}{kept if total.guaranteed else ''}"


def spent(lines: Iterable[Line], amount: str = "used") -> Usd:
    """US dollars of the GPU-hours of lines."""
    return sum((Usd.of(getattr(line.hours, amount), line.price, line.flavor) for line in lines), NONE)


def notes(statement: Statement) -> Iterator[str]:
    """Remarks about the numbers for readers."""
    period = statement.period
    if statement.covered < period.hours * 0.99:
        yield (
            f"{statement.source} has {statement.covered:,.0f} of {period.hours:,.0f} hours: all figures are of these;"
            " for more, raise metrics.storage.retention in the stack"
        )
    if unpriced := dict.fromkeys(line.flavor for line in statement.lines if line.price is None):
        yield f"{', '.join(unpriced)}: no price of the machine, so costs are lower bounds; set `prices` in the stack"
    yield from statement.notes


_MOST: Final = 5  # users and jobs on the screen
_HOURS: Final = ("guaranteed#", "used#", "idle#", "borrowed#", "lent#")


def teams_table(statement: Statement) -> Table:
    """GPU-hours by team and flavor."""
    rows = [row(line.team, line.flavor, *_hours(line.hours), team=line.team) for line in statement.lines]
    if len(rows) > 1:
        rows.append(row("total", "", *_hours(_sum(statement.lines)), sums=True))
    return Table("teams", "GPU-hours by team", columns("team", "flavor", *_HOURS), tuple(rows), keys=2)


def costs_table(statement: Statement) -> Table:
    """US dollars by cost center and team, beside the budgets if a team has one."""
    budgeted = any(line.budget for line in statement.lines)
    costs_of = partial(_costs, budgeted=budgeted)
    rows: list[Row] = []
    for center in dict.fromkeys(line.center for line in sorted(statement.lines, key=lambda line: line.center)):
        own = [line for line in statement.lines if line.center == center]
        teams = dict.fromkeys(line.team for line in own)
        for team in teams:
            rows += [row(center or DASH, team, *costs_of(line for line in own if line.team == team), team=team)]
        if len(teams) > 1:
            rows.append(row(center or DASH, "all its teams", *costs_of(own), sums=True))
    rows += [row("total", "", *costs_of(statement.lines), sums=True)] if len(rows) > 1 else []
    more = ("budget of 30 days#", "used of it#") if budgeted else ()
    heads = columns("cost center", "team", "guaranteed#", "used#", "idle#", "borrowed#", *more)
    return Table("costs", "US dollars by cost center", heads, tuple(rows), keys=2)


def _costs(lines: Iterable[Line], *, budgeted: bool) -> Iterator[str]:
    """Costs of lines; with budgets their sum and its used part, if every team of the lines has one."""
    own = list(lines)
    yield from (str(spent(own, amount)) for amount in ("guaranteed", "used", "idle", "borrowed"))
    if budgeted:
        budgets = {line.team: line.budget for line in own}
        used = spent(own)
        known = [budget for budget in budgets.values() if budget is not None]
        whole = sum(known) if len(known) == len(budgets) else None
        yield DASH if whole is None else str(Usd(whole))
        yield DASH if whole is None else f"{used.bound}{share(round(used.known), round(whole))}"


def losses_table(statement: Statement) -> Table:
    """GPU-hours without a result."""
    rows = [
        row(loss.team, *(hours_text(lost) for lost in (loss.unused, loss.preempted, loss.failed)), team=loss.team)
        for loss in statement.losses
        if any((loss.unused, loss.preempted, loss.failed))
    ]
    heads = columns("team", "busy below 5 %#", "before preemptions#", "failed#")
    return Table("losses", "GPU-hours without a result, at most", heads, tuple(rows))


def idle_table(statement: Statement) -> Table:
    """GPU-hours that `idle` would have freed, by threshold; and jobs that were busy again."""
    rows = [
        row(
            one.team,
            f"{one.below:g} %",
            format_duration(one.after),
            hours_text(one.gpu_hours),
            str(Usd.of(one.gpu_hours, one.price, one.team)),
            one.stops,
            first_names(one.again, _MOST) or DASH,
            team=one.team,
        )
        for one in statement.freed
    ]
    heads = columns("team", "below", "for", "GPU-hours freed#", "US dollars#", "stops#", "stopped wrongly (busy again)")
    return Table("idle", "GPU-hours that idle of the stack would have freed", heads, tuple(rows), keys=3)


def users_table(statement: Statement, most: int | None = None) -> Table:
    """The users with the most GPU-hours, if jobs have the label."""
    users: dict[tuple[str, str], list[JobUse]] = {}
    for job in statement.jobs if any(job.user for job in statement.jobs) else ():
        users.setdefault((job.user, job.team), []).append(job)
    ranked = sorted(users.items(), key=lambda one: -sum(job.gpu_hours for job in one[1]))[:most]
    rows = tuple(row(user or DASH, team, *_job_sums(jobs), team=team) for (user, team), jobs in ranked)
    return Table("users", "GPU-hours by user", columns("user", "team", "GPU-hours#", "US dollars#"), rows, keys=2)


def jobs_table(statement: Statement, most: int | None = None) -> Table:
    """The jobs with the most GPU-hours."""
    jobs = sorted(statement.jobs, key=lambda job: -job.gpu_hours)[:most]
    rows = (row(job.job, job.team, job.flavor or DASH, *_job_sums([job]), team=job.team) for job in jobs)
    heads = columns("job", "team", "flavor", "GPU-hours#", "US dollars#")
    return Table("jobs", "GPU-hours by job", heads, tuple(rows), keys=3)


def _job_sums(jobs: Iterable[JobUse]) -> tuple[str, str]:
    own = list(jobs)
    usd = sum((Usd.of(job.gpu_hours, job.price, job.flavor or job.job) for job in own), NONE)
    return hours_text(sum(job.gpu_hours for job in own)), str(usd)


def supply_table(statement: Statement) -> Table:
    """Existing, reserved, guaranteed, used and unused GPU-hours."""
    rows = [
        row(one.flavor or "all", *map(hours_text, (one.existed, one.reserved, one.guaranteed, one.used, one.unused)))
        for one in statement.supply
    ]
    existed = "existed at most#" if statement.at_most else "existed#"
    heads = columns("flavor", existed, "for Volcano#", "guaranteed#", "used#", "not used#")
    return Table("supply", "GPU-hours of the nodes", heads, tuple(rows))


def _hours(hours: Hours) -> tuple[str, ...]:
    return tuple(map(hours_text, astuple(hours)))


def _sum(lines: Iterable[Line]) -> Hours:
    return sum((line.hours for line in lines), Hours())


def csv_text(statement: Statement) -> str:
    """A row for each team and flavor, then for each job, with unrounded numbers; unknown ones are empty."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(
        (
            "month", "costCenter", "team", "flavor", "job", "user", "guaranteedGpuHours", "usedGpuHours",
            "idleGpuHours", "borrowedGpuHours", "lentGpuHours", "usdPerGpuHour",
        )
    )  # fmt: skip
    month = statement.period.month
    for line in statement.lines:
        amounts = (*astuple(line.hours), line.price)
        writer.writerow((month, line.center, line.team, line.flavor, "", "", *map(_number, amounts)))
    for job in statement.jobs:
        amounts = (None, job.gpu_hours, None, None, None, job.price)
        writer.writerow((month, "", job.team, job.flavor, job.job, job.user, *map(_number, amounts)))
    return written.getvalue()


def _number(amount: float | None) -> str:
    return "" if amount is None else f"{amount:.4f}".rstrip("0").rstrip(".")


def data(statement: Statement) -> dict[str, object]:
    """The statement for programs; GPU-hours and US dollars, null if unknown."""
    period = statement.period
    return {
        "stack": statement.stack,
        "month": period.month,
        "source": statement.source,
        "hours": period.hours,
        "covered": statement.covered,
        "teams": [
            {
                "team": line.team,
                "costCenter": line.center or None,
                "flavor": line.flavor,
                **asdict(line.hours),
                "usdPerGpuHour": line.price,
                "usdMonthlyBudget": line.budget,
            }
            for line in statement.lines
        ],
        "losses": [asdict(loss) for loss in statement.losses],
        "supply": [asdict(supply) | {"flavor": supply.flavor or None} for supply in statement.supply],
        "jobs": [
            {
                "team": job.team,
                "job": job.job,
                "user": job.user or None,
                "flavor": job.flavor or None,
                "gpuHours": job.gpu_hours,
                "usdPerGpuHour": job.price,
            }
            for job in statement.jobs
        ],
        "idle": [asdict(one) for one in statement.freed],
        "notes": list(notes(statement)),
    }


def show(console: Console, statement: Statement) -> None:
    """Prints the tables that have rows."""
    console.print(f"[bold]{escape(headline(statement))}[/]", highlight=False)
    found = [make(statement) for make in (teams_table, costs_table, losses_table, idle_table, supply_table)]
    for shown in (*found, users_table(statement, _MOST), jobs_table(statement, _MOST)):
        if shown.rows:
            titles = {column.title for column in shown.columns}
            console.print()
            drop = [title for title in ("for Volcano", "lent") if title in titles]
            console.print(printed(shown, drop=drop), highlight=False)
    if len(statement.jobs) > _MOST:
        console.print(f"[dim]{_MOST} of {len(statement.jobs)} jobs; --out has all[/dim]", highlight=False)
    console.print()
    for note in notes(statement):
        console.print(f"[dim]{escape(note)}[/dim]", highlight=False)


def page(statement: Statement) -> str:
    """The whole page: no external resources, no scripts, light and dark; deterministic."""
    makers = (teams_table, costs_table, losses_table, idle_table, users_table, jobs_table, supply_table)
    template = environment("gpu_tenancy.cost").get_template("cost.html.j2")
    return template.render(
        statement=statement,
        headline=headline(statement),
        notes=list(notes(statement)),
        tables=[table for table in (make(statement) for make in makers) if table.rows],
        fold=FOLD,
        policy=policy(),
    )
