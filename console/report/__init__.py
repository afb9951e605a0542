"""The report: one page, complete in itself, about what a tenancy promises and whether it holds."""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from console.show import changes
from console.up import Outcome


def write_report(result: Outcome, folder: Path) -> Path:
    """Writes `report.html`, which loads nothing from anywhere; its path.

    The same stack in the same state gives the same bytes.
    """
    # StrictUndefined: a name that the template has wrong must not become an empty cell.
    environment = Environment(
        loader=PackageLoader("console", "report"),
        autoescape=True,  # select_autoescape goes by the name's end, and `.j2` is none that it knows
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    supply = {each.flavor: each for each in result.summary.supply}
    page = environment.get_template("report.html.j2").render(
        result=result,
        changes=changes(result),
        supply=supply,
        largest=max((each.gpus for each in supply.values()), default=1) or 1,
        teams={team.namespace.name: team.namespace for team in result.plan.teams},
    )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "report.html"
    file.write_text(page, encoding="utf-8")
    return file
