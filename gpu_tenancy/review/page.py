"""The report: one self-contained HTML page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.quantity import CPU, is_extended
from gpu_tenancy.base.texts import available
from gpu_tenancy.base.writing import write_text
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.local.show import changes, price_note, waiting
from gpu_tenancy.local.up import Outcome
from gpu_tenancy.model.outlook import StackOutlook, outlook
from gpu_tenancy.pages.bars import Branch
from gpu_tenancy.pages.tables import Row, Tone, columns, row
from gpu_tenancy.pages.tables import Table as Figures
from gpu_tenancy.pages.templating import FOLD, environment, policy
from gpu_tenancy.review.changes import resources
from gpu_tenancy.review.charts import Drawing, tanks
from gpu_tenancy.review.figures import DONE, change_groups, differences, key_figures, shown, tally
from gpu_tenancy.review.figures_tables import tables
from gpu_tenancy.review.review import Review
from gpu_tenancy.review.verdict import NOT_EVALUATED, verdict

SEARCH: Final = 12
"""Teams beyond which the page has a search box; a smaller page has no script."""


@dataclass(frozen=True, slots=True)
class Top:
    """The top of the page: the verdict, or the result of the checks on a running platform."""

    tone: Tone
    title: str
    sentences: tuple[str, ...]


def page(review: Review, outcome: Outcome | None = None) -> str:
    """The report as HTML. It loads no external content; the same input gives the same bytes.

    Args:
        review: the review.
        outcome: result of `tenancy local up`; its checks are shown first.
    """
    templates = environment("gpu_tenancy.review")
    used = None
    if outcome:
        holdings = outcome.summary.holdings
        used = {(holding.team, holding.flavor, holding.scheduler): holding.used for holding in holdings}
    drawing = Drawing(review.now, review.comparison.before if review.comparison else None, used)
    all_ = tables(review)
    search = len(review.now.teams) > SEARCH
    return templates.get_template("page.html.j2").render(
        review=review,
        now=review.now,
        outcome=outcome,
        top=_top(review, outcome),
        figures=key_figures(review),
        available=available(review.now.resources.values()),
        paid=_paid(review.now),
        tree=drawing.tree,
        tanks=list(tanks(review.now)),
        common_scale=drawing.scale.common,
        cut=drawing.cut,
        tables=all_,
        differences=list(differences(all_.values())),
        groups=change_groups(review),
        tally=tally(shown(review)),
        searchable={team.name: _words(review.now, team.name) for team in review.now.teams},
        search=search,
        policy=policy(templates.get_template("filter.js").render() if search else ""),
        price_note=f"{review.price_note[:1].upper()}{review.price_note[1:]}" or "No prices available",
        unpriced=[pool.name for pool in review.now.pools if pool.node_price is None],
        unpriced_storage=sorted(
            {access.place for access in review.now.data if access.kind == "storage" and access.cost is None}
        ),
        folded=_folded,
        fold=FOLD,
        few=SEARCH,
        running=_running(outcome) if outcome else (),
        applied=changes(outcome) if outcome else "",
        waiting=waiting(outcome.summary) if outcome else "",
        sections=_sections(review, outcome),
        done=DONE,
    )


def _paid(outlook: StackOutlook) -> str:
    """What has a price: a GPU, a CPU of a node without GPUs, or both."""
    resources = outlook.resources.values()
    cpu = "CPU of a node without GPUs"
    if not any(is_extended(resource) for resource in resources):
        return cpu if resources else "GPU"
    return f"GPU, and each {cpu}," if CPU in resources else "GPU"


def _top(review: Review, outcome: Outcome | None) -> Top:
    verdict = review.verdict
    if outcome is None:
        return Top(verdict.tone, verdict.title, verdict.sentences)
    found = outcome.verdict
    rest = (sentence for sentence in verdict.sentences if sentence != NOT_EVALUATED)
    return Top(found.tone, found.title, (*found.reasons, *rest))


def _words(outlook: StackOutlook, name: str) -> str:
    """Text in which the search box looks for a team."""
    team = next(team for team in outlook.teams if team.name == name)
    flavors = " ".join(dict.fromkeys(holding.flavor for holding in team.holdings))
    return f"{team.name} {team.owner} {team.cost_center} {team.cohort} {team.tier} {flavors}".lower()


def _sections(review: Review, outcome: Outcome | None) -> list[tuple[str, str]]:
    """Ids and titles of the page's sections, in order."""
    return [
        ("promises", "Guarantees"),
        ("supply", "Capacity"),
        *([("running", "Running platform")] if outcome else []),
        *([("work", "Workloads")] if review.effect else []),
        ("teams", "Teams"),
        ("cost-by-team", "Cost"),
        ("serving", "Serving"),
        *([("ways-in", "Hosts")] if review.now.ways_in else []),
        ("access", "Access"),
        ("rules", "Policies"),
        *([("changes", "Changes")] if review.comparison or review.real else []),
    ]


def _folded(branch: Branch, whole: int) -> bool:
    """Whether a cohort starts collapsed: one with many teams in a large stack."""
    return whole > FOLD and len(branch.teams) > SEARCH


def _running(outcome: Outcome) -> tuple[Figures, ...]:
    """Tables of the state read from the API server."""
    summary = outcome.summary
    queues = [
        row(
            holding.team,
            holding.flavor,
            holding.scheduler,
            *(amount_text(holding.resource, amount) for amount in (holding.guaranteed, holding.limit, holding.used)),
            "yes" if holding.lends else "no",
            team=holding.team,
        )
        for holding in summary.holdings
    ]
    nodes: list[Row] = []
    for supply in summary.supply:
        own = [holding for holding in summary.holdings if holding.flavor == supply.flavor]
        guaranteed, limits = sum(holding.guaranteed for holding in own), sum(holding.limit for holding in own)
        amounts = supply.capacity, guaranteed, supply.capacity - guaranteed, limits, supply.used
        texts = (amount_text(supply.resource, amount) for amount in amounts)
        nodes.append(row(supply.flavor, supply.product, supply.nodes, *texts))
    budgets = [
        row(budget.team, budget.quota, budget.resource, budget.used, budget.hard, team=budget.team)
        for budget in summary.budgets
    ]
    capacity = f"{available(supply.resource for supply in summary.supply)}#"
    node_heads = columns(
        "flavor", "model", "nodes#", capacity, "guaranteed#", "unassigned#", "sum of limits#", "in use#"
    )
    queue_heads = columns("team", "flavor", "scheduler", "guaranteed#", "limit#", "used#", "lends")
    budget_heads = columns("namespace", "quota", "resource", "used#", "hard#")
    return (
        Figures("read-back", "Queues", queue_heads, tuple(queues), keys=3),
        Figures("nodes", "Nodes", node_heads, tuple(nodes)),
        Figures("budgets", "Resource quotas", budget_heads, tuple(budgets), keys=3),
    )


def write_report(result: Outcome, folder: Path) -> Path:
    """Writes the self-contained page `report.html` and returns its path.

    The same stack in the same state gives the same bytes.
    """
    file = folder / "report.html"
    write_text(file, page(_review(result.preview), result))
    return file


def write_forecast(preview: Preview, folder: Path) -> Path:
    """Writes the same page from the stack's file alone, before a platform runs, and returns its path."""
    file = folder / "report.html"
    write_text(file, page(_review(preview)))
    return file


def _review(preview: Preview) -> Review:
    now = outlook(preview.stack)
    return Review(
        stack=preview.name,
        resources=len(resources(preview.rendered)),
        now=now,
        comparison=None,
        changes=(),
        rules=None,
        real=None,
        price_note=price_note(preview.stack),
        where={},
        verdict=verdict(now, None, (), None),
    )
