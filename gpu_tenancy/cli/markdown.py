"""Markdown of the generated pages: tables, text within them, and how a reference begins."""

from collections.abc import Iterable
from pathlib import Path


def head(reference: str) -> str:
    """How a reference begins: the file `reference_<name>.md` beside this module."""
    return Path(__file__).with_name(f"reference_{reference}.md").read_text(encoding="utf-8").strip()


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table."""
    listed = list(headings)
    lines = [f"| {' | '.join(listed)} |", "|" + "---|" * len(listed)]
    return [*lines, *(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows)]


def _cell(text: str) -> str:
    """Text within a table."""
    return escaped(text).replace("|", "\\|")


def escaped(text: str) -> str:
    """Text on one line; `<` outside code would begin an HTML tag."""
    pieces = " ".join(text.split()).split("`")
    return "`".join(piece if at % 2 else piece.replace("<", "&lt;") for at, piece in enumerate(pieces))
