"""Draws the pictures of README and docs into docs/pictures: `make pictures`.

- `borrowing.svg`, `architecture.svg`: drawn here; a test compares the first with the run that it shows.
- `whatif.png`, `report.png`, `tree.png`, `comment.png`: pages and the comment of this program, opened in Chromium.
- `ui.png`: the page of `tenancy ui` about a made-up cluster.
- `board-*.png`: panels of the dashboards with the values of the made-up cluster in tests/observability. There is no
  Grafana here: places, titles and columns are those of the dashboards.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from browser_tool import browser
from picture_boards import boards
from picture_change import changed, comment_page, forecast_page
from picture_drawn import architecture, borrowing
from playwright.sync_api import Browser
from repository import ROOT
from ui_served import research, serving

PICTURES = ROOT / "docs" / "pictures"


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, text in {"borrowing": borrowing(), "architecture": architecture()}.items():
        (PICTURES / f"{name}.svg").write_text(text, encoding="utf-8")
    with TemporaryDirectory() as name:
        folder = Path(name)
        report, comment = changed(folder / "clone")
        pages = {"comment": comment_page(comment), "whatif": forecast_page(), **dict(boards())}
        for page, text in pages.items():
            (folder / f"{page}.html").write_text(text, encoding="utf-8")
        with browser() as chromium:
            _picture(chromium, report, "report", height=1010)
            _picture(chromium, report, "tree", part="#promises")
            _picture(chromium, folder / "whatif.html", "whatif", part="#time")
            board = research("sweep-7", "eval", "nightly")
            with serving(replace(board, at=datetime(2026, 1, 21, 12, 31, 4, tzinfo=UTC)), folder) as served:
                _picture(chromium, served.server.address, "ui", height=1180)
            for page in ("comment", *(page for page in pages if page.startswith("board-"))):
                _picture(chromium, folder / f"{page}.html", page, part="main")


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
