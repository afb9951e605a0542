"""The report of a stack with the state of the platform on which it runs."""

from pathlib import Path

from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.quantity import amount_text
from gpu_tenancy.base.texts import available
from gpu_tenancy.local.show import changes, waiting
from gpu_tenancy.local.summary import Summary
from gpu_tenancy.local.up import Outcome
from gpu_tenancy.pages.tables import Row, Table, columns, row
from gpu_tenancy.review.page import Running, page, review_of
from gpu_tenancy.review.review import Verdict


def write_report(result: Outcome, folder: Path) -> Path:
    """Writes the self-contained `report.html` and returns its path; the same stack and state give the same bytes."""
    return write_text(folder / "report.html", page(review_of(result.preview), running(result)))


def running(result: Outcome) -> Running:
    """The platform after `tenancy local up`."""
    holdings, verdict = result.summary.holdings, result.verdict
    return Running(
        Verdict(verdict.tone, verdict.title, verdict.reasons),
        f"{result.objects} objects by {result.engine} · {changes(result)}",
        {(holding.team, holding.flavor, holding.scheduler): holding.used for holding in holdings},
        result.composition.real,
        result.composition.simulated,
        result.checks,
        _tables(result.summary),
        waiting(result.summary),
    )


def _tables(summary: Summary) -> tuple[Table, ...]:
    queues = [row(*holding.cells, "yes" if holding.lends else "no", team=holding.team) for holding in summary.holdings]
    nodes: list[Row] = []
    for supply in summary.supply:
        own = [holding for holding in summary.holdings if holding.flavor == supply.flavor]
        guaranteed, limits = sum(holding.guaranteed for holding in own), sum(holding.limit for holding in own)
        amounts = supply.capacity, guaranteed, supply.capacity - guaranteed, limits, supply.used
        texts = (amount_text(supply.resource, amount) for amount in amounts)
        nodes.append(row(supply.flavor, supply.product, supply.nodes, *texts))
    budgets = [row(*budget.cells, team=budget.team) for budget in summary.budgets]
    capacity = f"{available(supply.resource for supply in summary.supply)}#"
    node_heads = columns(
        "flavor", "model", "nodes#", capacity, "guaranteed#", "unassigned#", "sum of limits#", "in use#"
    )
    queue_heads = columns("team", "flavor", "scheduler", "guaranteed#", "limit#", "used#", "lends")
    budget_heads = columns("namespace", "quota", "resource", "used#", "hard#")
    return (
        Table("read-back", "Queues", queue_heads, tuple(queues), keys=3),
        Table("nodes", "Nodes", node_heads, tuple(nodes)),
        Table("budgets", "Resource quotas", budget_heads, tuple(budgets), keys=3),
    )
