"""A survey of a cluster as a self-contained HTML page."""

from pathlib import Path

from gpu_tenancy.base.output import write_text
from gpu_tenancy.pages.tables import FOLD, Cell, Table, Tone, columns, environment, policy, row
from gpu_tenancy.survey import show
from gpu_tenancy.survey.survey import Survey


def page(survey: Survey) -> str:
    """The page, without external files and scripts; the same survey gives the same bytes."""
    levels = {broken.level for broken in survey.broken}
    tone: Tone = "bad" if "wrong" in levels else "notice" if levels else "good"
    tones: dict[str, Tone] = {"wrong": "bad", "risk": "notice"}
    pools = [
        row(show.flavor(one), one.model or "unknown", one.resource, *show.numbers(one, survey), ", ".join(one.taints))
        for one in survey.pools
    ]
    findings = [
        row(one.place, Cell(rule.level, tone=tones[rule.level]), f"{one.value} {one.problem}", one.fix, rule.rule)
        for rule in survey.broken
        for one in rule.findings
    ]
    heads = columns("flavor", "model", "resource", *show.NUMBERS, "taints")
    of_findings = columns("object", "level", "problem", "fix", "rule")
    template = environment("gpu_tenancy.review").get_template("survey.html.j2")
    return template.render(
        tone=tone,
        conclusion=show.conclusion(survey),
        heading=list(show.heading(survey)),
        sums=[show.sums(total, survey) for total in survey.totals],
        pools=Table("pools", "GPU nodes", heads, tuple(pools)),
        findings=Table("findings", "Findings", of_findings, tuple(findings)),
        preempted=list(show.preempted(survey)),
        unread=list(show.unread(survey)),
        fold=FOLD,
        policy=policy(),
    )


def write_survey(survey: Survey, folder: Path) -> Path:
    """Writes `inspect.html` and returns its path."""
    return write_text(folder / "inspect.html", page(survey))
