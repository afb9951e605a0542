"""README.md is short, and what it claims is true."""

import re
from pathlib import Path

import pytest
from repository import ROOT

from gpu_tenancy.model.load import load
from gpu_tenancy.model.project import stack_names
from gpu_tenancy.model.source import read_file

README = (ROOT / "README.md").read_text(encoding="utf-8")
LANDING = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 80


def test_its_stack_loads(tmp_path: Path) -> None:
    example = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)[0]
    file = tmp_path / "Pulumi.readme.yaml"
    file.write_text(example, encoding="utf-8")
    assert load(read_file(file)).teams["ml-research"].gpus["a100"].limit == 32


@pytest.mark.parametrize("stack", stack_names())
def test_the_landing_page_names_every_stack(stack: str) -> None:
    assert f"`{stack}`" in LANDING


def test_the_landing_page_links_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= set(re.findall(r"\]\(([^)#]+)", LANDING))
