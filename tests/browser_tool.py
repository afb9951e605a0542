"""A headless Chromium that opens pages as readers do."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect, sync_playwright
from starts import GUARD

from gpu_tenancy.embedded.platform import Platform

Scheme: TypeAlias = Literal["light", "dark"]
NONE: Final = "GPU_TENANCY_NO_BROWSER"  # environment variable: set without a browser, to skip the tests that need one

PATIENCE: Final = 300_000.0  # milliseconds for a page's changes, however busy the machine

_AXE: Final = """(rules) => axe.run({resultTypes: ["violations"], ...(rules && {runOnly: rules})}).then((found) =>
  found.violations.map((each) => [each.id, ...each.nodes.slice(0, 3).map((node) => node.html)]))"""
_CUT: Final = """[...document.querySelectorAll(".scroll:not(.twin *)")].filter((each) => each.querySelector("table")
  && each.scrollWidth > each.clientWidth).map((each) => each.getAttribute("aria-label"))"""
# axe-core's rules about colours; others have the same result in every scheme.
_COLOURS: Final = ["color-contrast", "link-in-text-block"]

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_ELSEWHERE: Final = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


def chromium() -> str:
    """A Chromium or Chrome: on the PATH, in macOS' folder, or from Debian's package if it may be installed."""
    if os.environ.get(NONE):
        pytest.skip(f"{NONE} is set: no page is opened in a browser")
    found = _found()
    if found is None:
        words = _install()
        found = _found()
        if found is None:
            msg = f"there is no Chromium ({words}); install one and put it on the PATH, or set {NONE}=1 to go without"
            raise RuntimeError(msg)
    return found


@contextmanager
def browser() -> Generator[Browser]:
    # Root has no sandbox to start in, and a container may have next to no shared memory.
    arguments = [*(["--no-sandbox"] if os.geteuid() == 0 else []), "--disable-dev-shm-usage"]
    program = chromium()  # first: who wants no browser is skipped without Playwright's driver
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE)
        found = playwright.chromium.launch(executable_path=program, args=arguments)
        yield found
        found.close()


@contextmanager
def emptied(found: Browser) -> Generator[Browser]:
    """A browser without open pages afterwards; each open page has its own process."""
    yield found
    for context in found.contexts:
        context.close()


@dataclass(frozen=True)
class Opened:
    page: Page
    requests: list[str]
    complaints: list[str]

    def unfold(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")


def opened(chromium: Browser, place: Path | str, scheme: Scheme = "light", width: int = 1280) -> Opened:
    """A page of a file or an address, in a window of `width` pixels."""
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    context.set_default_timeout(PATIENCE)
    found = Opened(context.new_page(), [], [])
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.on("console", lambda message: found.complaints.append(message.text))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.goto(place if isinstance(place, str) else place.as_uri())
    return found


def check_quiet(chromium: Browser, file: Path) -> None:
    """A page has no errors and no requests, with all details open."""
    found = opened(chromium, file)
    for fold in found.page.locator("summary").all()[:20]:
        if fold.is_visible():
            fold.click()
    found.unfold()
    assert (found.requests, found.complaints) == ([file.as_uri()], [])


def check_accessible(chromium: Browser, file: Path) -> None:
    found = opened(chromium, file)
    found.unfold()
    assert violations(found.page) == {"light": [], "dark": []}


def check_width(chromium: Browser, file: Path, width: int) -> None:
    """A page fits the window; tables are complete, except tables of pictures, which have a column for each step."""
    found = opened(chromium, file, width=width)
    found.unfold()
    assert found.page.evaluate("document.documentElement.scrollWidth") == width
    assert found.page.evaluate(_CUT) == []


def violations(page: Page) -> dict[str, list[list[str]]]:
    """axe-core's accessibility violations, by colour scheme."""
    page.evaluate(AXE_SCRIPT)
    found = {"light": page.evaluate(_AXE)}
    page.emulate_media(color_scheme="dark")
    found["dark"] = page.evaluate(_AXE, _COLOURS)
    return found


def _found() -> str | None:
    on_path = (shutil.which(name) for name in _NAMES)
    return next((name for name in (*on_path, *_ELSEWHERE) if name and Path(name).exists()), None)


def _install() -> str:
    """Installs Debian's package once for all processes; returns the error otherwise."""
    if not shutil.which("apt-get"):
        return "it is not on the PATH, and there is no apt-get"
    if os.geteuid() != 0:
        return "it is not on the PATH, and apt-get install chromium wants root"
    cache = Platform(Path(os.devnull)).cache
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "chromium.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _found():
            return ""
        return _apt("update") + _apt("install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core")


def _apt(*words: str) -> str:
    done = subprocess.run(
        ["apt-get", *words],
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )
    return "" if done.returncode == 0 else f"apt-get {words[0]}: {(done.stdout + done.stderr)[-400:]}"
