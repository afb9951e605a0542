"""Pages as a browser reads them: their texts, tables and pictures, and their external content."""

import re
from html.parser import HTMLParser

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

_VOID = {"meta", "br", "link", "img", "input"}
_BESIDE = {"place", "was", "new"}  # classes of texts in a cell that are not its value


class Golden(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT


class Html(Golden):
    file_extension = "html"


class Markdown(Golden):
    file_extension = "md"


def without_style(page: str) -> str:
    """A page without its style sheet, which is the same on all pages."""
    return re.sub(r"(?s)<style>.*?</style>", "<style></style>", page)


class Page(HTMLParser):
    """A parsed page; its elements must be nested correctly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []  # elements that load something
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.references: list[str] = []  # ids in links and descriptions
        self.texts: list[str] = []
        self.pictures: list[str | None] = []  # text alternative of each picture; None without one
        self.language: str | None = None
        self.tables: dict[str, list[list[str]]] = {}  # rows of cells by the table's label, without previous values
        self._open: list[str] = []
        self._table: list[list[str]] | None = None
        self._beside = 0
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {key: value or "" for key, value in attrs}
        if tag in {"link", "iframe", "img", "object"} or {"src", "srcset", "data", "xlink:href"} & attributes.keys():
            self.loads.append(tag)
        if tag == "html":
            self.language = attributes.get("lang")
        if tag == "svg" and "aria-hidden" not in attributes:
            self.pictures.append(attributes.get("aria-label") or attributes.get("aria-labelledby"))
        if tag == "span" and (self._beside or attributes.get("class") in _BESIDE):
            self._beside += 1
        if tag[0] == "h" and tag[1:].isdigit():
            self.headings.append(int(tag[1:]))
        self.ids += [attributes["id"]] if "id" in attributes else []
        links = [attributes["href"]] if attributes.get("href", "").startswith("#") else []
        self.references += [*(link.removeprefix("#") for link in links), *attributes.get("aria-labelledby", "").split()]
        self._cell(tag, attributes.get("aria-label", ""))
        if tag not in _VOID:
            self._open.append(tag)

    def _cell(self, tag: str, label: str) -> None:
        if tag == "div" and label.endswith(", table"):
            self._table = self.tables.setdefault(label.removesuffix(", table"), [])
        elif self._table is not None and tag == "tr":
            self._table.append([])
        elif self._table is not None and tag in {"th", "td"}:
            self._table[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens nothing."""

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "table":
            self._table = None
        if tag == "span" and self._beside:
            self._beside -= 1

    def handle_data(self, data: str) -> None:
        text = data.strip()
        if self._table and self._table[-1] and not self._beside:
            self._table[-1][-1] += text
        if text and self._open[-1] not in {"style", "script"}:
            self.texts.append(text)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.texts).split())


def well_formed(text: str) -> Page:
    """The parsed page; fails if it loads content, has a broken link, or a picture without a text."""
    found = Page(text)
    assert text.startswith("<!doctype html>")
    assert found.language == "en"
    assert found.loads == []
    assert "@import" not in text
    assert {part.partition(")")[0] for part in text.split("url(")[1:]} <= {"#hatch", "#head"}
    assert len(found.ids) == len(set(found.ids))
    assert set(found.references) <= set(found.ids)
    assert all(found.pictures)
    assert found.headings[0] == 1
    assert all(later - earlier <= 1 for earlier, later in zip(found.headings, found.headings[1:], strict=False))
    return found
