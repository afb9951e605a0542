import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_tool import browser, check_accessible, check_quiet, check_width
from cost_month import OCTOBER, arrivals, lab, played, terms
from playwright.sync_api import Browser

from gpu_tenancy.cost.tables import page
from gpu_tenancy.cost.workloads import of_workloads
from gpu_tenancy.simulation.records import Trace

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cost")
    items = list(played(lab(), arrivals(3, 60)).workloads())
    (folder / "october.json").write_text(json.dumps({"items": items}), encoding="utf-8")
    statement = of_workloads("test", terms(lab()), Trace(folder / "october.json"), OCTOBER)
    (folder / "cost.html").write_text(page(statement), encoding="utf-8")
    return folder / "cost.html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


def test_the_page_asks_for_nothing_is_accessible_and_fits(chromium: Browser, file: Path) -> None:
    check_quiet(chromium, file)
    check_accessible(chromium, file)
    for width in (1280, 390):
        check_width(chromium, file, width)
