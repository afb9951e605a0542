"""The report of `tenancy up`: the page of a review, with the state of the running platform."""

from pathlib import Path

from gpu_tenancy.base.writing import write_text
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.local.show import price_note
from gpu_tenancy.local.up import Outcome
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.review.changes import resources
from gpu_tenancy.review.page import page
from gpu_tenancy.review.review import Review
from gpu_tenancy.review.verdict import verdict


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
