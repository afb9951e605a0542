"""The page of `tenancy whatif` in a browser: no errors, no requests, accessible."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_tool import browser, check_accessible, check_quiet, check_width, emptied, opened
from playwright.sync_api import Browser
from whatif_played import everyone, replayed_twice, sixty, small, small_scenario, tree

from gpu_tenancy.whatif.page import replay_page, timeline_page

pytestmark = [pytest.mark.process, pytest.mark.slow]

NAMES = ("busy", "scenario", "sixty", "replay")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {"busy": everyone(tree(small()), first="speech"), "scenario": small_scenario(folder), "sixty": sixty(folder)}
    for name, played in made.items():
        (folder / f"{name}.html").write_text(timeline_page(played), encoding="utf-8")
    (folder / "replay.html").write_text(replay_page(replayed_twice()), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in NAMES}


@pytest.fixture(scope="module")
def started(pages: dict[str, Path]) -> Iterator[Browser]:
    assert pages
    with browser() as found:
        yield found


@pytest.fixture
def chromium(started: Browser) -> Iterator[Browser]:
    with emptied(started) as found:
        yield found


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_no_errors_and_no_requests(chromium: Browser, pages: dict[str, Path], name: str) -> None:
    check_quiet(chromium, pages[name])


@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_no_violations_with_open_details(chromium: Browser, pages: dict[str, Path], name: str) -> None:
    check_accessible(chromium, pages[name])


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", NAMES)
def test_no_page_is_wider_than_the_window(chromium: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    check_width(chromium, pages[name], width)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["scenario", "sixty"])
def test_job_names_are_beside_their_lanes_without_overlap(
    chromium: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    found = opened(chromium, pages[name], width=width).page
    names = found.evaluate(
        "[...document.querySelectorAll('.time .job')].map((each) => { const box = each.getBoundingClientRect();"
        " return [box.top, box.bottom]; })"
    )
    bars = found.evaluate(
        "[...document.querySelectorAll('svg.lanes > g[class^=h]')].map((each) => {"
        " const box = each.firstElementChild.getBoundingClientRect(); return [box.top, box.bottom]; })"
    )
    assert len(names) == len(bars) > 0
    assert all(top <= above and below <= bottom for (top, bottom), (above, below) in zip(names, bars, strict=True))
    texts = found.evaluate(
        "[...document.querySelectorAll('.sums div, .time .names span, .time .steps b, .time .label')]"
        ".filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect())"
        ".map((box) => [box.left, box.top, box.right, box.bottom])"
    )
    overlapping = [
        (one, other)
        for at, one in enumerate(texts)
        for other in texts[at + 1 :]
        if one[0] < other[2] - 1 and other[0] < one[2] - 1 and one[1] < other[3] - 4 and other[1] < one[3] - 4
    ]
    assert overlapping == []


@pytest.mark.slow
def test_on_paper_all_that_scrolls_on_a_screen_is_there(chromium: Browser, pages: dict[str, Path]) -> None:
    found = opened(chromium, pages["sixty"]).page
    found.emulate_media(media="print", color_scheme="dark")
    assert found.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not found.locator("nav").is_visible()
    assert found.locator(".time .job").count() == 60
