"""Tables that fit a terminal: names and numbers are never broken, and columns that do not fit are left out."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from gpu_tenancy.base.output import Output, folded, words

_GAP: Final = 2
"""Cells between two columns."""
_TEXT: Final = 20
"""Cells of a column of text below which another column is left out; less if the text is shorter."""


class PlainTable(Table):
    """A table without borders whose cells are text: `[red]` in a cell is shown, not obeyed. Pass a `Text` for a style.

    Where the terminal is too narrow, texts wrap at words; then columns are left out; and if that is not enough, each
    row is a block with a line for each column.
    """

    def __init__(self, headings: Sequence[str], *, title: str = "", drop: Sequence[str] = ()) -> None:
        """A table without rows.

        Args:
            headings: from left to right; `#` at the end means numbers, `~` texts that may wrap, `#~` both.
            title: above the headings; empty for none.
            drop: headings of the columns that may be left out, in this order.
        """
        super().__init__()
        self._headings = [heading.rstrip("#~") for heading in headings]
        self._numbers = [heading.rstrip("~").endswith("#") for heading in headings]
        self._texts = [heading.endswith("~") for heading in headings]
        self._title, self._drop = title, drop
        self._lines: list[list[Text]] = []

    def add_row(self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False) -> None:
        """Adds a row of texts."""
        del style, end_section
        self._lines.append([cell if isinstance(cell, Text) else Text(str(cell or "")) for cell in cells])

    @property
    def records(self) -> list[dict[str, str]]:
        """The rows for programs, by heading."""
        return [dict(zip(self._headings, (cell.plain for cell in line), strict=True)) for line in self._lines]

    @property
    def names(self) -> list[str]:
        """What the rows are about: the different texts of the first column."""
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
            cells = [line[at].split("\n", allow_blank=True) for at in kept]
            table.add_row(
                *(Text("\n").join(folded(part, n) for part in cell) for cell, n in zip(cells, widths, strict=True))
            )
        return table

    def _widths(self, kept: Sequence[int], width: int | None) -> list[int] | None:
        """The width of each column; None if they do not fit."""
        natural = [max(cell_len(part) for cell in self._cells(at) for part in cell.split("\n")) for at in kept]
        if width is None:
            return natural
        free = width - _GAP * (len(kept) - 1)
        least = [full if not self._texts[at] else self._least(at, full) for at, full in zip(kept, natural, strict=True)]
        if sum(least) > free:
            return None
        # The narrowest texts first: what they do not need, the others have.
        spare, widths = free - sum(least), list(least)
        growing = sorted(
            (full - low, at) for at, (low, full) in enumerate(zip(least, natural, strict=True)) if full > low
        )
        for number, (wanted, at) in enumerate(growing):
            share = min(wanted, spare // (len(growing) - number))
            widths[at] += share
            spare -= share
        return widths

    def _least(self, at: int, full: int) -> int:
        """The width of a column that may wrap: of its longest word, and of texts that are to be read not much less."""
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
