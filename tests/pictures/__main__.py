"""Draws the pictures of README and docs into docs/pictures: `make pictures`.

- `borrowing.svg`, `architecture.svg`: drawn here; a test compares the first with the run that it shows.
- `whatif.png`, `report.png`, `tree.png`, `comment.png`: pages and the comment of this program, opened in Chromium.
- `ui.png`: the page of `tenancy ui` about a made-up cluster.
"""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import markdown
from browser_tool import browser
from picture_drawn import architecture, borrowing, run_of
from playwright.sync_api import Browser
from repository import ROOT
from ui_served import research, serving

from gpu_tenancy.whatif.page import timeline_page
from gpu_tenancy.whatif.timeline import Timeline

_BEFORE, _AFTER = "a100: {guaranteed: 8, limit: 32}", "a100: {guaranteed: 16, limit: 32}"
_STYLE: Final = Path(__file__).with_name("comment.css").read_text(encoding="utf-8")


def changed(clone: Path) -> tuple[Path, str]:
    """A clone in which a guarantee is raised, compared with its commit: the report's file and the comment's text."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(clone)], check=True)
    subprocess.run(["git", "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=clone, check=True)
    stack = clone / "stacks" / "Pulumi.local.yaml"
    text = stack.read_text(encoding="utf-8")
    if _BEFORE not in text:
        raise ValueError(f"stacks/Pulumi.local.yaml: {_BEFORE!r} not found; change the picture's edit")
    stack.write_text(text.replace(_BEFORE, _AFTER, 1), encoding="utf-8")
    words = ["preview", "local", "--base", "origin/main", "--policy", "workloads", "--policy", "clouds", "--out", "out"]
    program = "from gpu_tenancy.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", program, *words], cwd=clone, check=True, capture_output=True)
    return clone / "out" / "report.html", (clone / "out" / "report.md").read_text(encoding="utf-8")


def comment_page(comment: str) -> str:
    """The comment as a page that looks like a pull request's."""
    body = markdown.markdown(comment, extensions=["tables", "sane_lists", "md_in_html"])
    head = "<header><b>gpu-tenancy</b> commented on this pull request</header>"
    return f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style><main>{head}<article>{body}</article></main>'


def forecast_page() -> str:
    """The page of `tenancy whatif` for the scenario of three teams."""
    tree, steps = run_of("example-three-teams")
    return timeline_page(Timeline("example-three-teams", "jobs over time", tree, steps, scenario=True))


PICTURES = ROOT / "docs" / "pictures"


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, text in {"borrowing": borrowing(), "architecture": architecture()}.items():
        (PICTURES / f"{name}.svg").write_text(text, encoding="utf-8")
    with TemporaryDirectory() as name:
        folder = Path(name)
        report, comment = changed(folder / "clone")
        pages = {"comment": comment_page(comment), "whatif": forecast_page()}
        for page, text in pages.items():
            (folder / f"{page}.html").write_text(text, encoding="utf-8")
        with browser() as chromium:
            _picture(chromium, report, "report", height=1010)
            _picture(chromium, report, "tree", part="#promises")
            _picture(chromium, folder / "whatif.html", "whatif", part="#time")
            board = research("sweep-7", "eval", "nightly")
            with serving(replace(board, at=datetime(2026, 1, 21, 12, 31, 4, tzinfo=UTC)), folder) as served:
                _picture(chromium, served.server.address, "ui", height=1180)
            _picture(chromium, folder / "comment.html", "comment", part="main")


def _picture(chromium: Browser, page: Path | str, name: str, part: str = "", height: int = 0) -> None:
    """A part of a page, or its top of `height` pixels; a served page once it is live."""
    context = chromium.new_context(viewport={"width": 1000, "height": height or 900}, color_scheme="light")
    opened = context.new_page()
    opened.goto(page if isinstance(page, str) else page.as_uri())
    if isinstance(page, str):
        opened.locator("#status.good").wait_for()
    file = PICTURES / f"{name}.png"
    if part:
        opened.locator(part).first.screenshot(path=file)
    else:
        opened.screenshot(path=file)
    context.close()


if __name__ == "__main__":
    main()
