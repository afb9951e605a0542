"""The command `cost`: what was used of what was guaranteed, in GPU-hours and US dollars."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, for_programs, is_for_programs
from gpu_tenancy.base.errors import ConsoleError, UsageError
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.cost import idle as cost_idle
    from gpu_tenancy.cost import prometheus as cost_prometheus
    from gpu_tenancy.cost import statement as statements
    from gpu_tenancy.cost import tables
    from gpu_tenancy.cost import workloads as cost_workloads
    from gpu_tenancy.model import outlook
    from gpu_tenancy.simulation import records


def cost(
    stack: StackName,
    *,
    month: Annotated[str | None, typer.Option(metavar="YYYY-MM", help="Month in UTC. Default: last month.")] = None,
    team: Annotated[str | None, typer.Option(help="Only this team. Default: all teams.")] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Address of Prometheus, such as http://127.0.0.1:9090.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--used", metavar="FILE", help="Instead of Prometheus: the output of `kubectl get workloads -A -o json`."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for `cost.html` and `cost.csv`.")] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Show a month's GPU-hours: guaranteed, used, idle, borrowed, lent, lost; by team, cost center, user and job.

    Costs are by the stack's prices. No job is stopped because of its cost. From Prometheus, also the GPU-hours that
    `idle` of the stack would have freed, by threshold, and the jobs that were busy again.

    [dim]tenancy cost prod-aws --month 2026-10 --prometheus http://127.0.0.1:9090[/dim]
    """
    with terminal.errors(stack):
        terms = statements.Terms.of(options.tree_of(stack, project))
        statement = _read(stack, terms, statements.Period.of(month, datetime.now(UTC)), prometheus, source)
        bill = outlook.outlook(terms.tree.stack).bill
        figures = (f"{stack} now: {figure.line}" for figure in bill.figures)
        statement = replace(statement, notes=(*statement.notes, *figures, *bill.notes))
        if team is not None:
            known = list(dict.fromkeys(line.team for line in statement.lines))
            if team not in known:
                raise ConsoleError(f"--team {team}: has no GPU-hours", nearest(team, known))
            statement = statements.of_only(statement, team)
        if is_for_programs(output):
            for_programs(output, tables.data(statement), dict.fromkeys(line.team for line in statement.lines))
        else:
            tables.show(terminal.out, statement)
        if out:
            write_text(out / "cost.html", tables.page(statement))
            write_text(out / "cost.csv", tables.csv_text(statement))
            if not is_for_programs(output):
                terminal.out.print(f"page {escape(str(out / 'cost.html'))}, table cost.csv", highlight=False)


def _read(
    stack: str, terms: "statements.Terms", period: "statements.Period", prometheus: str | None, source: Path | None
) -> "statements.Statement":
    if (prometheus is None) == (source is None):
        forward = "kubectl port-forward -n monitoring svc/kube-prometheus-stack-prometheus 9090"
        fix = f"run `{forward}` and set --prometheus http://127.0.0.1:9090, or set --used to a file of Workloads"
        raise UsageError("specify one of --prometheus and --used", fix)
    if prometheus is not None:
        terminal.progress(f"asking {prometheus}")
        server = cost_prometheus.Prometheus(prometheus)
        statement = cost_prometheus.of_prometheus(stack, terms, server, period)
        return replace(statement, freed=tuple(cost_idle.freed(terms, server, period)))
    assert source is not None  # noqa: S101 - see above
    terminal.progress(f"reading {source.name}")
    statement = cost_workloads.of_workloads(stack, terms, records.Trace(source), period)
    if not statement.jobs:
        reasons = "; ".join(statement.notes[-2:])
        raise ConsoleError(f"--used: {source}: no GPU-hours in {period.month}: {reasons}", "use another file or month")
    return statement
