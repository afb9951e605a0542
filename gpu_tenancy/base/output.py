"""Output without control sequences of terminals and commands of pipeline logs.

Names, messages and labels come from files of a pull request, from git, from other programs and from the objects that
tenants create in a cluster.
"""

import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style, StyleType
from rich.table import Table
from rich.text import Text

from gpu_tenancy.base.errors import naming
from gpu_tenancy.base.texts import visible

_SHOWN: Final = "\n\u200c\u200d"  # line breaks, and joiners of letters and emoji
_COMMAND: Final = re.compile(r"(?:(?<=\n)|^)(?P<key>[^\S\n]*:):|(?P<old>##)\[")
"""Start of a workflow command of GitHub's runner: at the start of a line, or anywhere as `##[error]`, also of Azure
Pipelines: https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands and
https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands."""
_BEFORE: Final = re.compile(r"[ ├─│└]*(?:[·✓✗…?] )?")  # before the text of a line: spaces, branches of a tree, a mark
_AFTER: Final = str.maketrans("├─└·✓✗…?", "│       ")  # replaces them in the lines after the first one
_WORD: Final = re.compile(r"(?:`[^`]*`|\S)+\s*")  # a word, or a command between backticks, with the spaces after it
_WHOLE: Final = Style(meta={"whole": True})
_OTHER: Final = re.compile(r"##(?=vso\[|teamcity\[)")  # starts of commands of Azure Pipelines and TeamCity


def as_text(text: str) -> str:
    r"""Whole lines with control characters and the starts of workflow commands escaped, as `\x1b` and `:\x3a`."""

    def escaped(match: re.Match[str]) -> str:
        return rf"{match['key']}\x3a" if match["key"] else rf"{match['old']}\x5b"

    return _OTHER.sub(r"#\\x23", _COMMAND.sub(escaped, visible(text, _SHOWN)))


def command(line: str) -> Text:
    """A line with a command, which is never wrapped, so that it can be pasted."""
    return Text(line, _WHOLE)


def folded(text: Text, width: int) -> Text:
    """A line in lines that fit, aligned below its text; a word or `command` is never broken, even if it is longer."""
    before = _BEFORE.match(text.plain)
    indent = Text((before[0] if before else "").translate(_AFTER))
    breaks: list[int] = []  # the offsets at which lines after the first one start
    used = len(indent)
    for word in _WORD.finditer(text.plain, used):
        if used > len(indent) and used + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            used = len(indent)
        used += cell_len(word[0])
    pieces = text.divide(breaks)
    for piece in pieces[:-1]:
        piece.rstrip()
    return Text("\n").join(indent + piece if at else piece for at, piece in enumerate(pieces))


class Output(Console):
    """A console that escapes control characters; its own styles and markup still work.

    On a terminal, lines wrap at words, and no word is broken. Elsewhere, or if `wide`, lines are as long as their text.
    """

    def __init__(self, *, stderr: bool = False, width: int | None = None, terminal: bool | None = None) -> None:
        # Without emoji: `:key:` in a value is not a name of one.
        super().__init__(stderr=stderr, soft_wrap=True, width=width, force_terminal=terminal, emoji=False)
        self.wide = False
        self._inside = threading.local()

    @property
    def is_narrow(self) -> bool:
        """Whether the width of the terminal counts."""
        return self.is_terminal and not self.wide

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Renders to segments; only the outermost call sees whole lines."""
        if getattr(self._inside, "rendering", False):
            return super().render(renderable, options)
        self._inside.rendering = True
        try:
            segments = list(super().render(renderable, options))
            if self.is_narrow:
                segments = [part for line in _lines(segments) for part in self._wrapped(line)]
        finally:
            self._inside.rendering = False
        return _plain(segments)

    def _wrapped(self, line: list[Segment]) -> Iterable[Segment]:
        whole = any(segment.style is not None and "whole" in segment.style.meta for segment in line)
        if whole or sum(segment.cell_length for segment in line) <= self.width:
            return line
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        return folded(text, self.width).render(self)


class Unbounded:
    """Lines that wrap at the terminal's width, not at that of their renderable."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self._renderable, options.update(width=10_000))


def words(text: str) -> list[str]:
    """The unbreakable parts of a text."""
    return [word[0].rstrip() for word in _WORD.finditer(text)]


def _lines(segments: Iterable[Segment]) -> Iterable[list[Segment]]:
    """The segments of each line; control segments alone."""
    line: list[Segment] = []
    for segment in segments:
        if segment.control:
            yield from (line, [segment])
            line = []
            continue
        *ended, rest = segment.text.split("\n")
        for text in ended:
            yield [*line, Segment(f"{text}\n", segment.style)]
            line = []
        if rest:
            line.append(Segment(rest, segment.style))
    yield line


def _plain(segments: Iterable[Segment]) -> Iterable[Segment]:
    """The segments of whole lines as text; a command may begin in one segment and end in the next."""
    line = ""
    for segment in segments:
        if segment.control:
            yield segment
            continue
        shown = as_text(line + segment.text)[len(line) :]
        yield Segment(shown, segment.style)
        line = (line + shown).rpartition("\n")[2]


_GAP: Final = 2  # cells between two columns
_TEXT: Final = 20  # cells of a text column below which another column is left out
_NAMES: Final = (28, 8)  # the same of a name; and those that it has in any case


class PlainTable(Table):
    """A table without borders whose cells are text: `[red]` in a cell is shown as it is. Pass a `Text` for a style.

    Where the terminal is too narrow, texts wrap at words and long names lose their middle; then columns are left out;
    and if that is not enough, each row is a block with a line for each column.
    """

    def __init__(self, *headings: str, title: str = "", drop: Sequence[str] = ()) -> None:
        """A table without rows; the columns `drop` may be left out, in this order; a narrow one may fit all the same.

        In headings, `#` at the end means numbers, `~` texts that may wrap, `#~` both, `…` names that may be shortened.
        """
        super().__init__()
        self._headings = [heading.rstrip("#~…") for heading in headings]
        self._numbers = [heading.rstrip("~").endswith("#") for heading in headings]
        self._texts = [heading.endswith("~") for heading in headings]
        self._names = [heading.endswith("…") for heading in headings]
        self._title, self._drop = title, drop
        self._lines: list[list[Text]] = []

    def add_row(self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False) -> None:
        """Adds a row of texts; cells at its end may be missing."""
        del style, end_section
        filled = (*cells, *[""] * (len(self._headings) - len(cells)))
        self._lines.append([cell if isinstance(cell, Text) else Text(str(cell or "")) for cell in filled])

    @property
    def records(self) -> list[dict[str, str]]:
        """The rows for programs, by heading."""
        return [dict(zip(self._headings, (cell.plain for cell in line), strict=True)) for line in self._lines]

    @property
    def names(self) -> list[str]:
        """The different texts of the first column."""
        return list(dict.fromkeys(line[0].plain for line in self._lines if line[0].plain))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = isinstance(console, Output) and console.is_narrow
        kept = list(range(len(self._headings)))
        widths = self._widths(kept, options.max_width if narrow else None)
        for heading in self._drop:
            if widths:
                break
            kept.remove(self._headings.index(heading))
            widths = self._widths(kept, options.max_width)
        for heading in reversed(self._drop) if widths else ():  # A narrow column may fit where a wider one did not.
            more = sorted({*kept, self._headings.index(heading)})
            if fitting := self._widths(more, options.max_width if narrow else None):
                kept, widths = more, fitting
        widths = widths or self._widths(kept, options.max_width, name=_NAMES[1])
        if self._title:
            yield Text(self._title, style="italic")
        if widths is None:
            yield from self._blocks()
            return
        yield self._table(kept, widths)
        if left_out := [heading for at, heading in enumerate(self._headings) if heading and at not in kept]:
            yield Text(f"not shown, because the terminal is narrow: {', '.join(left_out)}", style="dim")

    def _table(self, kept: Sequence[int], widths: Sequence[int]) -> Table:
        # With a width of its own, it is not cut where the output is not a terminal.
        width = sum(widths) + _GAP * (len(widths) - 1)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", width=width)
        for at, width in zip(kept, widths, strict=True):
            justify = "right" if self._numbers[at] else "left"
            table.add_column(self._headings[at], justify=justify, no_wrap=not self._texts[at], width=width)
        for line in self._lines:
            cells = [
                [_shortened(line[at], width)] if self._names[at] else line[at].split("\n", allow_blank=True)
                for at, width in zip(kept, widths, strict=True)
            ]
            table.add_row(
                *(Text("\n").join(folded(part, n) for part in cell) for cell, n in zip(cells, widths, strict=True))
            )
        return table

    def _widths(self, kept: Sequence[int], width: int | None, name: int = _NAMES[0]) -> list[int] | None:
        """The width of each column; None if they do not fit."""
        natural = [max(cell_len(part) for cell in self._cells(at) for part in cell.split("\n")) for at in kept]
        if width is None:
            return natural
        free = width - _GAP * (len(kept) - 1)
        least = [self._least(at, full, name) for at, full in zip(kept, natural, strict=True)]
        if sum(least) > free:
            return None
        # The narrowest first: what they do not need, the others have.
        spare, widths = free - sum(least), list(least)
        growing = sorted(
            (full - low, at) for at, (low, full) in enumerate(zip(least, natural, strict=True)) if full > low
        )
        for number, (wanted, at) in enumerate(growing):
            share = min(wanted, spare // (len(growing) - number))
            widths[at] += share
            spare -= share
        return widths

    def _least(self, at: int, full: int, name: int) -> int:
        """Its whole width; of a name at most `name`; of a text its longest word, and `_TEXT` if the text is as long."""
        if not self._texts[at]:
            return min(full, max(name, cell_len(self._headings[at]))) if self._names[at] else full
        longest = max(cell_len(word) for cell in self._cells(at) for word in words(cell))
        return max(0 if self._numbers[at] else min(full, _TEXT), longest, 1)

    def _cells(self, at: int) -> Iterator[str]:
        yield self._headings[at]
        yield from (line[at].plain for line in self._lines)

    def _blocks(self) -> Iterator[RenderableType]:
        width = max(map(len, self._headings)) + _GAP
        for number, line in enumerate(self._lines):
            if number:
                yield Text("")
            for heading, cell in zip(self._headings, line, strict=True):
                if cell.plain:
                    yield Text.assemble((f"{heading:{width}}", "dim"), cell)


def _shortened(text: Text, width: int) -> Text:
    """A name of at most so many cells: its start and its end, which tell pods and jobs apart."""
    over = cell_len(text.plain) - width
    if over <= 0:
        return text
    start = width // 2
    return text[:start] + Text("…") + text[start + over + 1 :]


def write_text(file: Path, text: str) -> Path:
    """Writes a file and the folders above it, and returns it. After a full disk or a kill it has its earlier content.

    The target of a link is written; an existing file keeps its mode. A device or a pipe, such as `/dev/stdout`, gets
    the text as it is. Raises an OSError with the file's name.
    """
    with naming(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not file.is_file():
            file.write_text(text, encoding="utf-8", newline="\n")
        else:
            _replace(file.resolve(), text, file.stat().st_mode if file.exists() else None)
    return file


def write_private(file: Path, text: str) -> None:
    """As `write_text`, with its error; the file and new folders are readable only by their owner."""
    with naming(file):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(file, text, 0o600)


def _replace(file: Path, text: str, mode: int | None) -> None:
    """Writes a file beside another and replaces the other, with a mode or the usual one."""
    unfinished = file.with_name(f"{file.name}.new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as handle:
            handle.write(text)
        if mode is not None:
            unfinished.chmod(stat.S_IMODE(mode))
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
