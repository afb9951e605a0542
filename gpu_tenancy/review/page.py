"""The report: one self-contained HTML page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.quantity import CPU, is_extended
from gpu_tenancy.base.texts import available, plural
from gpu_tenancy.local.show import changes, waiting
from gpu_tenancy.local.up import Outcome
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.review.drawing import Branch, Drawing
from gpu_tenancy.review.drawing_supply import tanks
from gpu_tenancy.review.figures import Table as Figures
from gpu_tenancy.review.figures import columns, differences, key_figures, row
from gpu_tenancy.review.figures_changes import DONE, change_groups, shown, tally
from gpu_tenancy.review.figures_tables import tables
from gpu_tenancy.review.pages import environment, policy
from gpu_tenancy.review.review import Review, Tone

FOLD: Final = 30
"""Rows and teams beyond which a table or cohort starts collapsed."""

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
        outcome: result of `tenancy up`; its checks are shown first.
    """
    templates = environment()
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
    checked = [check for check in outcome.checks if check.holds is not None]
    skipped = len(outcome.checks) - len(checked)
    passed = sum(1 for check in checked if check.holds)
    sentences = [
        f"{passed} of {len(checked)} checks passed on the running platform",
        *([f"{plural(skipped, 'promise')} not checked, because a controller does not run"] if skipped else ()),
        *(f"{pod} runs on a node with a different GPU model than requested" for pod in outcome.summary.astray),
        verdict.line,
    ]
    title = "All checks passed" if outcome.holds else "Checks failed"
    return Top("good" if outcome.holds else "bad", title, tuple(sentences))


def _words(outlook: StackOutlook, name: str) -> str:
    """Text in which the search box looks for a team."""
    team = next(team for team in outlook.teams if team.name == name)
    flavors = " ".join(dict.fromkeys(holding.flavor for holding in team.holdings))
    return f"{team.name} {team.owner} {team.cost_center} {team.cohort} {team.tier} {flavors}".lower()


def _sections(review: Review, outcome: Outcome | None) -> list[tuple[str, str]]:
    """Ids and titles of the page's sections, in order."""
    return [
        *([("running", "Running platform")] if outcome else []),
        ("promises", "Guarantees"),
        ("supply", "Capacity"),
        ("teams", "Teams"),
        ("cost-by-team", "Cost"),
        ("serving", "Serving"),
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
    guaranteed: Mapping[str, int] = {
        supply.flavor: sum(holding.guaranteed for holding in summary.holdings if holding.flavor == supply.flavor)
        for supply in summary.supply
    }
    limits = {
        supply.flavor: sum(holding.limit for holding in summary.holdings if holding.flavor == supply.flavor)
        for supply in summary.supply
    }
    queues = [
        row(
            holding.team,
            holding.flavor,
            holding.scheduler,
            amount_text(holding.resource, holding.guaranteed),
            amount_text(holding.resource, holding.limit),
            amount_text(holding.resource, holding.used),
            "yes" if holding.lends else "no",
            team=holding.team,
        )
        for holding in summary.holdings
    ]
    nodes = [
        row(
            supply.flavor,
            supply.product,
            supply.nodes,
            *(
                amount_text(supply.resource, amount)
                for amount in (
                    supply.capacity,
                    guaranteed[supply.flavor],
                    supply.capacity - guaranteed[supply.flavor],
                    limits[supply.flavor],
                    supply.used,
                )
            ),
        )
        for supply in summary.supply
    ]
    budgets = [
        row(budget.team, budget.quota, budget.resource, budget.used, budget.hard, team=budget.team)
        for budget in summary.budgets
    ]
    return (
        Figures(
            "read-back",
            "Queues",
            columns("team", "flavor", "scheduler", "guaranteed#", "limit#", "used#", "lends"),
            tuple(queues),
            keys=3,
        ),
        Figures(
            "nodes",
            "Nodes",
            columns(
                "flavor",
                "model",
                "nodes#",
                f"{available(supply.resource for supply in summary.supply)}#",
                "guaranteed#",
                "unassigned#",
                "sum of limits#",
                "in use#",
            ),
            tuple(nodes),
        ),
        Figures(
            "budgets",
            "Resource quotas",
            columns("namespace", "quota", "resource", "used#", "hard#"),
            tuple(budgets),
            keys=3,
        ),
    )
