"""README.md is short, and its claims are true."""

import re

import pytest
from repository import ROOT

from gpu_tenancy.model.project import stack_names

README = (ROOT / "README.md").read_text(encoding="utf-8")
LANDING = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len([line for line in README.splitlines() if not line.startswith("<!--")]) <= 85


@pytest.mark.parametrize("stack", stack_names())
def test_the_landing_page_names_every_stack(stack: str) -> None:
    assert f"`{stack}`" in LANDING


def test_the_landing_page_links_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= set(re.findall(r"\]\(([^)#]+)", LANDING))
