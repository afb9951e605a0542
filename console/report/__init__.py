"""The report of `tenancy up`: the page of a review, with what the running platform says."""

from pathlib import Path

from console.review.changes import resources
from console.review.page import page
from console.review.review import Review
from console.review.verdict import verdict
from console.show import price_note
from console.up import Outcome
from model.outlook import outlook


def write_report(result: Outcome, folder: Path) -> Path:
    """Writes `report.html`, which loads nothing from anywhere; its path.

    The same stack in the same state gives the same bytes.
    """
    now = outlook(result.preview.stack)
    review = Review(
        stack=result.preview.name,
        resources=len(resources(result.preview.rendered)),
        now=now,
        comparison=None,
        changes=(),
        rules=None,
        real=None,
        price_note=price_note(result.preview.stack),
        where={},
        verdict=verdict(now, None, (), None),
    )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "report.html"
    file.write_text(page(review, result), encoding="utf-8")
    return file
