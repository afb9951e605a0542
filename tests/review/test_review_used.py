"""What teams used in a month, beside what they are promised."""

import json
from pathlib import Path

import pytest
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.pages.tables import Table
from gpu_tenancy.review.build import review
from gpu_tenancy.review.figures_tables import tables
from gpu_tenancy.review.used import Used, read_used


def line(team: str, used: object, price: float | None) -> dict[str, object]:
    return {"team": team, "flavor": "a100", "used": used, "usdPerGpuHour": price, "costCenter": None}


def month(folder: Path, *lines: object, stack: str = "prod-aws") -> Path:
    file = folder / "used.json"
    file.write_text(json.dumps({"stack": stack, "month": "2026-10", "teams": lines, "jobs": []}))
    return file


def column(table: Table) -> dict[str, str]:
    assert table.columns[-1].title == "used in 2026-10"
    return {line.cells[0].text: line.cells[-1].text for line in table.rows}


def test_each_team_and_cost_center_has_what_it_used(tmp_path: Path) -> None:
    file = month(tmp_path, line("ml-research", 100, 3.5), line("ml-research", 10, 2.0), line("ml-old", 1, 4.0))
    shown = tables(review(stack_of_repository("prod-aws"), ROOT, used=read_used(file, "prod-aws")))
    teams = column(shown["cost-by-team"])
    assert teams["ml-research"] == "$370"
    assert teams["ml-serving"] == "$0"
    assert teams["ml-old"] == "$4"
    assert teams["all teams"] == "$374"
    assert column(shown["cost-by-centre"])["rd-001"] == "$370"
    (gone,) = (one for one in shown["cost-by-team"].rows if one.cells[0].text == "ml-old")
    assert gone.cells[1].text == "not in the stack"


def test_a_price_that_is_unknown_leaves_sums_unknown_but_where_nothing_was_used(tmp_path: Path) -> None:
    file = month(tmp_path, line("ml-research", 100, None), line("ml-research", 10, 2.0), line("ml-serving", 0, None))
    found = read_used(file, "prod-aws")
    assert found == Used("2026-10", {"ml-research": None, "ml-serving": 0.0})
    assert found.of(["ml-serving", "ml-production"]) == 0.0
    assert found.of(["ml-serving", "ml-research"]) is None


def test_a_review_without_a_month_has_no_column_of_it() -> None:
    shown = tables(review(stack_of_repository("prod-aws"), ROOT))
    assert shown["cost-by-team"].columns[-1].title == "at limit"


def test_another_file_is_refused_by_place_and_fix(tmp_path: Path) -> None:
    fix = "write it by `tenancy cost STACK --month YYYY-MM -o json`"
    wrong = month(tmp_path, line("ml-research", "many", None))
    with pytest.raises(ConsoleError, match=rf"used\.json: not a month's GPU-hours: teams.0.used: .* number.*; {fix}"):
        read_used(wrong, "prod-aws")
    with pytest.raises(ConsoleError, match=r"used\.json: of stack 'dev', not of 'prod-aws'"):
        read_used(month(tmp_path, stack="dev"), "prod-aws")
    with pytest.raises(ConsoleError, match=r"absent\.json: cannot read the file: No such file or directory"):
        read_used(tmp_path / "absent.json", "prod-aws")
    wrong.write_text("no JSON")
    with pytest.raises(ConsoleError, match=r"used\.json: not a month's GPU-hours: Invalid JSON"):
        read_used(wrong, "prod-aws")
