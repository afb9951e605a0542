"""The report: one HTML page that is complete in itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.console.review.drawing import Branch, Drawing
from gpu_tenancy.console.review.drawing_supply import tanks
from gpu_tenancy.console.review.figures import Table as Figures
from gpu_tenancy.console.review.figures import columns, differences, key_figures, row
from gpu_tenancy.console.review.figures_changes import DONE, change_groups, shown, tally
from gpu_tenancy.console.review.figures_tables import tables
from gpu_tenancy.console.review.pages import environment, policy
from gpu_tenancy.console.review.review import Review, Tone
from gpu_tenancy.console.show import changes
from gpu_tenancy.console.up import Outcome
from gpu_tenancy.model.outlook import StackOutlook

FOLD: Final = 30
"""Rows and teams beyond which a table, or a group, is folded."""

SEARCH: Final = 12
"""Teams beyond which there is a box to find one; a page with fewer has no script at all."""


@dataclass(frozen=True, slots=True)
class Said:
    """What stands on top: the verdict, or on a running platform whether its promises hold."""

    tone: Tone
    title: str
    sentences: tuple[str, ...]


def page(review: Review, outcome: Outcome | None = None) -> str:
    """The whole report: loads nothing from anywhere, in light and dark, on paper, by keyboard; the same for the same.

    Args:
        review: of the stack.
        outcome: what `tenancy up` saw on a running platform; its proofs then come first.
    """
    templates = environment()
    used = {(each.team, each.flavor, each.queue): each.used for each in outcome.summary.holdings} if outcome else None
    drawing = Drawing(review.now, review.comparison.before if review.comparison else None, used)
    all_ = tables(review)
    search = len(review.now.teams) > SEARCH
    return templates.get_template("page.html.j2").render(
        review=review,
        now=review.now,
        outcome=outcome,
        said=_said(review, outcome),
        figures=key_figures(review),
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
        price_note=f"{review.price_note[:1].upper()}{review.price_note[1:]}" or "No price is known",
        unpriced=[pool.name for pool in review.now.pools if pool.node_price is None],
        folded=_folded,
        fold=FOLD,
        few=SEARCH,
        running=_running(outcome) if outcome else (),
        applied=changes(outcome) if outcome else "",
        sections=_sections(review, outcome),
        done=DONE,
    )


def _said(review: Review, outcome: Outcome | None) -> Said:
    verdict = review.verdict
    if outcome is None:
        return Said(verdict.tone, verdict.title, verdict.sentences)
    held = sum(1 for proof in outcome.proofs if proof.holds)
    sentences = [
        f"{held} of {len(outcome.proofs)} promises put to the test on the running platform hold.",
        *(f"{pod} runs on a node of another model than it asked for." for pod in outcome.summary.astray),
        verdict.line,
    ]
    title = "Every promise holds" if outcome.holds else "A promise is broken"
    return Said("good" if outcome.holds else "bad", title, tuple(sentences))


def _words(outlook: StackOutlook, name: str) -> str:
    """By what a reader may look for a team."""
    team = next(each for each in outlook.teams if each.name == name)
    flavors = " ".join(dict.fromkeys(each.flavor for each in team.holdings))
    return f"{team.name} {team.owner} {team.cost_center} {team.cohort} {team.tier} {flavors}".lower()


def _sections(review: Review, outcome: Outcome | None) -> list[tuple[str, str]]:
    """Links to what is on the page, in its order."""
    return [
        *([("running", "Running platform")] if outcome else []),
        ("promises", "Promises"),
        ("supply", "Supply"),
        ("teams", "Teams"),
        ("cost-by-team", "Cost"),
        ("serving", "Serving"),
        ("access", "Access"),
        ("rules", "Rules"),
        *([("changes", "Before and after")] if review.comparison or review.real else []),
    ]


def _folded(branch: Branch, whole: int) -> bool:
    """Whether a group of the tree starts folded: in a large stack, one with many teams of its own."""
    return whole > FOLD and len(branch.teams) > SEARCH


def _running(outcome: Outcome) -> tuple[Figures, ...]:
    """What was read back from the API server."""
    summary = outcome.summary
    promised: Mapping[str, int] = {
        each.flavor: sum(one.guaranteed for one in summary.holdings if one.flavor == each.flavor)
        for each in summary.supply
    }
    limits = {
        each.flavor: sum(one.limit for one in summary.holdings if one.flavor == each.flavor) for each in summary.supply
    }
    held = [
        row(
            each.team,
            each.flavor,
            each.queue,
            each.guaranteed,
            each.limit,
            each.used,
            "yes" if each.lends else "no",
            team=each.team,
        )
        for each in summary.holdings
    ]
    supply = [
        row(
            each.flavor,
            each.product,
            each.nodes,
            each.gpus,
            promised[each.flavor],
            each.gpus - promised[each.flavor],
            limits[each.flavor],
            each.used,
        )
        for each in summary.supply
    ]
    budgets = [
        row(each.team, each.quota, each.resource, each.used, each.hard, team=each.team) for each in summary.budgets
    ]
    return (
        Figures(
            "read-back",
            "Queues, read back",
            columns("team", "flavor", "by", "guaranteed#", "limit#", "used#", "lends"),
            tuple(held),
            keys=3,
        ),
        Figures(
            "nodes",
            "Nodes, read back",
            columns("flavor", "model", "nodes#", "GPUs#", "guaranteed#", "nobody's#", "sum of limits#", "in use#"),
            tuple(supply),
        ),
        Figures(
            "budgets",
            "Namespace budgets, read back",
            columns("namespace", "quota", "resource", "used#", "hard#"),
            tuple(budgets),
            keys=3,
        ),
    )
