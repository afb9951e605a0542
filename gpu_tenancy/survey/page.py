"""A survey of a cluster as a self-contained HTML page."""

from pathlib import Path

from gpu_tenancy.base.output import write_text
from gpu_tenancy.pages.tables import FOLD, Cell, Table, Tone, columns, environment, policy, row
from gpu_tenancy.survey import show
from gpu_tenancy.survey.survey import Survey


def page(survey: Survey) -> str:
    """The whole page: it loads nothing and has no scripts; the same survey gives the same bytes."""
    levels = {broken.level for broken in survey.broken}
    tone: Tone = "bad" if "wrong" in levels else "notice" if levels else "good"
    return (
        environment("gpu_tenancy.review")
        .get_template("survey.html.j2")
        .render(
            tone=tone,
            conclusion=show.conclusion(survey),
            heading=list(show.heading(survey)),
            sums=[show.sums(total, survey) for total in survey.totals],
            pools=_pools(survey),
            findings=_findings(survey),
            preempted=list(show.preempted(survey)),
            unread=list(show.unread(survey)),
            fold=FOLD,
            policy=policy(),
        )
    )


def _pools(survey: Survey) -> Table:
    heads = columns("flavor", "model", "resource", *show.NUMBERS, "taints")
    rows = tuple(
        row(
            show.flavor(pool),
            pool.model or "unknown",
            pool.resource,
            *show.numbers(pool, survey),
            ", ".join(pool.taints),
        )
        for pool in survey.pools
    )
    return Table("pools", "GPU nodes", heads, rows)


def _findings(survey: Survey) -> Table:
    tones: dict[str, Tone] = {"wrong": "bad", "risk": "notice"}
    rows = tuple(
        row(finding.place, Cell(broken.level, tone=tones[broken.level]), f"{finding.value} {finding.problem}",
            finding.fix, broken.rule)
        for broken in survey.broken
        for finding in broken.findings
    )  # fmt: skip
    return Table("findings", "Findings", columns("object", "level", "problem", "fix", "rule"), rows)


def write_survey(survey: Survey, folder: Path) -> Path:
    """Writes the page `inspect.html` and returns its path."""
    file = folder / "inspect.html"
    write_text(file, page(survey))
    return file
