"""The report: one self-contained HTML page."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.quantity import CPU, is_extended
from gpu_tenancy.base.texts import available
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.model.outlook import TeamOutlook, outlook
from gpu_tenancy.pages.bars import Branch
from gpu_tenancy.pages.tables import FOLD, environment, policy
from gpu_tenancy.pages.tables import Table as Figures
from gpu_tenancy.review.changes import resources
from gpu_tenancy.review.charts import Drawing, tanks
from gpu_tenancy.review.figures import DONE, change_groups, differences, key_figures, shown, tally
from gpu_tenancy.review.figures_tables import tables
from gpu_tenancy.review.review import Review, Verdict
from gpu_tenancy.review.verdict import NOT_EVALUATED, verdict

SEARCH: Final = 12  # teams beyond which the page has a search box; a smaller page has no script


@dataclass(frozen=True, slots=True)
class Running:
    """A platform on which the stack runs, with the verdict of its checks."""

    top: Verdict
    applied: str  # such as `12 objects by Pulumi · no changes`
    used: Mapping[tuple[str, str, str], int]  # GPUs by team, flavor and scheduler
    real: tuple[str, ...]  # parts of the platform that are not simulated
    simulated: tuple[str, ...]
    checks: tuple[object, ...]  # with `promise`, `seen`, `holds` and `message`
    tables: tuple[Figures, ...]
    waiting: str  # pods without a node


def page(review: Review, running: Running | None = None) -> str:
    """The report as HTML, with the checks of a running platform first; deterministic, without external content."""
    templates = environment("gpu_tenancy.review")
    before = review.comparison.before if review.comparison else None
    drawing = Drawing(review.now, before, running.used if running else None)
    all_ = tables(review)
    top = review.verdict
    if running:
        rest = (sentence for sentence in top.sentences if sentence != NOT_EVALUATED)
        top = replace(running.top, sentences=(*running.top.sentences, *rest))
    search = len(review.now.teams) > SEARCH
    counted, cpu = review.now.resources.values(), "CPU of a node without GPUs"
    with_gpus = any(map(is_extended, counted))
    paid = "GPU" if with_gpus or not counted else cpu
    if with_gpus and CPU in counted:
        paid = f"GPU, and each {cpu},"
    return templates.get_template("page.html.j2").render(
        review=review,
        now=review.now,
        top=top,
        figures=key_figures(review),
        available=available(review.now.resources.values()),
        paid=paid,
        tree=drawing.tree,
        tanks=list(tanks(review.now)),
        common_scale=drawing.scale.common,
        cut=drawing.cut,
        tables=all_,
        differences=list(differences(all_.values())),
        groups=change_groups(review),
        tally=tally(shown(review)),
        searchable={team.name: _words(team) for team in review.now.teams},
        search=search,
        policy=policy(templates.get_template("filter.js").render() if search else ""),
        unpriced=[pool.name for pool in review.now.pools if pool.node_price is None],
        unpriced_storage=sorted({one.place for one in review.now.data if one.kind == "storage" and one.cost is None}),
        folded=_folded,
        fold=FOLD,
        few=SEARCH,
        running=running,
        sections=_sections(review, running),
        done=DONE,
    )


def _words(team: TeamOutlook) -> str:
    flavors = " ".join(dict.fromkeys(holding.flavor for holding in team.holdings))
    return f"{team.name} {team.queue} {team.owner} {team.cost_center} {team.cohort} {team.tier} {flavors}".lower()


def _folded(branch: Branch, whole: int) -> bool:
    return whole > FOLD and len(branch.teams) > SEARCH


def _sections(review: Review, running: Running | None) -> list[tuple[str, str]]:
    return [
        ("promises", "Guarantees"),
        ("supply", "Capacity"),
        *([("running", "Running platform")] if running else []),
        *([("work", "Workloads")] if review.effect else []),
        ("teams", "Teams"),
        ("bill", "Cost"),
        ("serving", "Serving"),
        *([("ways-in", "Hosts")] if review.now.ways_in else []),
        ("access", "Access"),
        ("rules", "Policies"),
        *([("changes", "Changes")] if review.comparison or review.real else []),
    ]


def write_forecast(preview: Preview, folder: Path) -> Path:
    """Writes the page from the stack's file alone, before a platform runs, and returns its path."""
    return write_text(folder / "report.html", page(review_of(preview)))


def review_of(preview: Preview) -> Review:
    """The review of a stack alone, without a comparison."""
    now = outlook(preview.stack)
    return Review(
        stack=preview.name, resources=len(resources(preview.rendered)), now=now, verdict=verdict(now, None, (), None)
    )
