"""Output that neither a terminal nor the log of a pipeline takes for anything else than text.

Names, messages and labels come from files of a pull request, from git, from other programs and from the objects that
tenants create in a cluster.
"""

import re
import threading
from collections.abc import Iterable
from textwrap import TextWrapper
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from gpu_tenancy.base.characters import visible

_SHOWN: Final = "\n\u200c\u200d"
"""Line breaks, and what joins the parts of letters and emoji."""
_COMMAND: Final = re.compile(r"(?:(?<=\n)|^)(?P<key>[^\S\n]*:):|(?P<old>##)\[")
"""Start of a workflow command of GitHub's runner: at the start of a line, or anywhere as `##[error]`, also of Azure
Pipelines: https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands and
https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands."""
_OTHER: Final = re.compile(r"##(?=vso\[|teamcity\[)")
"""Commands of Azure Pipelines and TeamCity."""


def as_text(text: str) -> str:
    r"""Whole lines with control characters and the starts of workflow commands escaped, as `\x1b` and `:\x3a`."""
    return _OTHER.sub(r"#\\x23", _COMMAND.sub(_escaped, visible(text, _SHOWN)))


def _escaped(match: re.Match[str]) -> str:
    return rf"{match['key']}\x3a" if match["key"] else rf"{match['old']}\x5b"


def wrapped(console: Console, text: str, first: str = "  ") -> str:
    """Text after `first`. On a terminal its lines break at spaces only, so that names can be copied."""
    if not console.is_terminal:
        return f"{first}{text}"
    after = " " * len(first)
    wrapper = TextWrapper(console.width, after, after, break_long_words=False, break_on_hyphens=False)
    return first + "\n".join(map(wrapper.fill, text.splitlines())).lstrip()


class PlainTable(Table):
    """A table whose cells are text: `[red]` in a cell is shown, not obeyed. Pass a `Text` for a style."""

    def add_row(self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False) -> None:
        """Adds a row."""
        shown = (Text(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*shown, style=style, end_section=end_section)


class Output(Console):
    """A console that escapes what is not text; its own styles and markup still work."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False, width: int | None = None) -> None:
        # Without emoji: `:key:` in a value is not a name of one.
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, width=width, emoji=False)
        self._inside = threading.local()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Renders to segments; only the outermost call sees whole lines."""
        if getattr(self._inside, "rendering", False):
            return super().render(renderable, options)
        self._inside.rendering = True
        try:
            segments = list(super().render(renderable, options))
        finally:
            self._inside.rendering = False
        return _plain(segments)


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
