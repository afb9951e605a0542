"""The pictures of README and docs: drawn pictures are up to date, and each is shown and small."""

import re

import pytest
from picture_drawn import architecture, borrowing
from repository import ROOT

PICTURES = ROOT / "docs" / "pictures"
LARGEST = 150_000


@pytest.mark.parametrize(("name", "drawn"), [("borrowing", borrowing), ("architecture", architecture)])
def test_a_drawn_picture_is_up_to_date(name: str, drawn: object) -> None:
    assert callable(drawn)
    assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == drawn(), "run `make pictures`"


def test_each_picture_is_shown_and_small() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+\.\w+)", page.read_text(encoding="utf-8"))}
    assert {file.name for file in PICTURES.iterdir()} == shown
    assert max(file.stat().st_size for file in PICTURES.iterdir()) < LARGEST
