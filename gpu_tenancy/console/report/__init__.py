"""The report of `tenancy up`: the page of a review, with the state of the running platform."""

from pathlib import Path

from gpu_tenancy.console.project import Preview
from gpu_tenancy.console.review.changes import resources
from gpu_tenancy.console.review.page import page
from gpu_tenancy.console.review.review import Review
from gpu_tenancy.console.review.verdict import verdict
from gpu_tenancy.console.show import price_note
from gpu_tenancy.console.up import Outcome
from gpu_tenancy.console.writing import write_text
from gpu_tenancy.model.outlook import outlook


def write_report(result: Outcome, folder: Path) -> Path:
    """Writes the self-contained page `report.html` and returns its path.

    The same stack in the same state gives the same bytes.
    """
    return _write(page(_review(result.preview), result), folder)


def write_forecast(preview: Preview, folder: Path) -> Path:
    """Writes the same page from the stack's file alone, before a platform runs, and returns its path."""
    return _write(page(_review(preview)), folder)


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


def _write(content: str, folder: Path) -> Path:
    file = folder / "report.html"
    write_text(file, content)
    return file
