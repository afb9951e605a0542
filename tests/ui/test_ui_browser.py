"""The page of `tenancy ui` in a browser: live and accessible."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_tool import Opened, browser, emptied, opened, violations
from playwright.sync_api import Browser, expect
from ui_served import SCRIPT, Served, research, serving

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(research("late", "early"), tmp_path) as found:
        yield found


@pytest.fixture
def chromium(started: Browser, served: Served) -> Iterator[Browser]:
    """Its pages are closed before the server that they listen to."""
    assert served
    with emptied(started) as found:
        yield found


def look(chromium: Browser, served: Served, width: int = 1280) -> Opened:
    found = opened(chromium, served.server.address, width=width)
    expect(found.page.locator("#status")).to_have_text("Live")
    return found


def test_shows_changes_without_reload_and_keeps_focus(chromium: Browser, served: Served) -> None:
    found = look(chromium, served)
    page = found.page
    page.locator("#usage summary").first.click()
    page.get_by_role("button", name="early").focus()
    served.change(research("late", "early", "third"))
    expect(page.locator("#pending h2")).to_have_text("Pending: 3 jobs")
    expect(page.get_by_role("button", name="early")).to_be_focused()
    expect(page.locator("#usage table")).to_be_hidden()
    served.change("the API server is not reachable")
    expect(page.locator("#status")).to_contain_text("Not refreshed since")
    expect(page.locator("#pending")).to_contain_text("third")
    served.change(research("late"))
    expect(page.locator("#status")).to_have_text("Live")
    expect(page.locator("#pending h2")).to_have_text("Pending: 1 job")
    assert found.complaints == []
    assert {url.removeprefix(served.server.address) for url in found.requests} == {"", "events"}


def test_the_keyboard_finds_a_job_and_asks_why(chromium: Browser, served: Served) -> None:
    found = look(chromium, served)
    page = found.page
    page.keyboard.press("/")
    page.keyboard.type("early")
    expect(page.locator("form.find output")).to_have_text("1 of 6 rows")
    expect(page.get_by_role("button", name="late")).to_be_hidden()
    page.get_by_role("button", name="early").press("Enter")
    expect(page.locator("dialog h2")).to_have_text("Job research/early")
    expect(page.locator("dialog .reason")).to_have_text(f"{SCRIPT} is ahead")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="early")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="late")).to_be_visible()
    assert "taken" not in page.title()
    assert found.complaints == []


def test_axe_finds_no_violations_in_light_and_dark(chromium: Browser, served: Served) -> None:
    found = look(chromium, served)
    found.unfold()
    assert violations(found.page) == {"light": [], "dark": []}
    found.page.get_by_role("button", name="early").click()
    expect(found.page.locator("dialog h2")).to_be_visible()
    assert violations(found.page) == {"light": [], "dark": []}


@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_as_wide_as_the_window(chromium: Browser, served: Served, width: int) -> None:
    found = look(chromium, served, width)
    found.unfold()
    assert found.page.evaluate("document.documentElement.scrollWidth") == width


def test_nothing_moves_for_those_who_want_that(chromium: Browser, served: Served) -> None:
    page = look(chromium, served).page
    served.change(research("late", "early", "third"))
    row = page.locator("tr.changed th", has_text="third")
    expect(row).to_be_visible()
    assert row.evaluate("(cell) => getComputedStyle(cell).animationName") == "changed"
    page.emulate_media(reduced_motion="reduce")
    assert row.evaluate("(cell) => getComputedStyle(cell).animationName") == "none"


def test_the_page_says_so_when_the_command_ended(chromium: Browser, served: Served) -> None:
    page = look(chromium, served).page
    served.refreshing.stop()
    served.server.shutdown()
    served.server.server_close()
    expect(page.locator("#status")).to_contain_text("tenancy ui has ended")
