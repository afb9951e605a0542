"""Screens of pages: a command's recorded output at 80 columns, and its parts that differ between two runs."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from blocks import Block

COLUMNS: Final = 80
GAP: Final = "..."  # in place of lines that a page leaves out

# Durations, dates, addresses, folders and the random ends of names.
_DIFFERS: Final[Iterable[tuple[str, str]]] = (
    (r"\b\d+(\.\d+)? ?(ms|s|min|h)\b", "TIME"),
    (r"\b\d+m\d+s\b", "TIME"),
    (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?Z?)?", "DATE"),
    (r"\b(127\.0\.0\.1|localhost):\d+", "ADDRESS"),
    (r"/\S*/(gpu-tenancy|empty)\b", "FOLDER"),
    (r"-[0-9a-f]{5}\b", "-HASH"),
    (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-HASH"),
    (r"\b[0-9a-f]{7,40}\b", "HASH"),
    (r"-{3,}|─{3,}", "LINE"),
)
_HOLDER: Final = re.compile(r"^ +[a-z0-9]+-\d+(: \d+ by .+)$", re.MULTILINE)  # the scheduler chooses the node
_SLOW: Final = re.compile("· reading the cluster")  # an additional line on a busy machine


def alike(text: str) -> str:
    """A screen without parts that differ between runs: names, times, nodes, and the spaces that follow."""
    holders = iter(sorted(_HOLDER.findall(text)))
    text = _HOLDER.sub(lambda _: f"NODE{next(holders)}", text)
    for pattern, word in _DIFFERS:
        text = re.sub(pattern, word, text)
    return " ".join(text.split())


def command_of(block: Block) -> str:
    """The command of a screen: its lines until the first that ends without a backslash."""
    lines = block.text.removeprefix("$ ").splitlines()
    last = next(number for number, line in enumerate(lines) if not line.endswith("\\"))
    return "\n".join(lines[: last + 1])


def screen(block: Block, output: str) -> str:
    """The expected text of a screen: the command, and the lines of the output that the mark names."""
    lines = [line.rstrip() for line in output.rstrip().splitlines() if not _SLOW.match(line)]
    wanted = block.mark.options.get("lines", "") if block.mark else ""
    return "\n".join([f"$ {command_of(block)}", *(_chosen(lines, wanted) if wanted else lines)]) + "\n"


def part(block: Block, output: str) -> str:
    """As many lines of an output as a block has, from the one that is like its first. Raises ValueError without it."""
    shown = block.text.splitlines()
    lines = [part for line in output.splitlines() for part in _wrapped(line)]
    heads = [_counted(line) for line in lines]
    if (head := _counted(shown[0])) not in heads:
        raise ValueError(f"{block.place}: no line of the output is like {shown[0]!r}")
    first = heads.index(head)
    gap = [GAP] if shown[-1] == GAP else []
    return "\n".join([*lines[first : first + len(shown) - len(gap)], *gap]) + "\n"


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _counted(line: str) -> str:
    return re.sub(r"\d+", "0", alike(line))


def _chosen(lines: list[str], wanted: str) -> Iterator[str]:
    """The lines of ranges such as 1-3,7,-2 (the last two), with a gap between them."""
    numbers: list[int] = []
    for part in wanted.split(","):
        if part.startswith("-"):
            numbers += range(max(0, len(lines) - int(part[1:])), len(lines))
        else:
            first, _, last = part.partition("-")
            numbers += range(int(first) - 1, min(int(last or first), len(lines)))
    after = 0
    for number in sorted(set(numbers)):
        if number != after:
            yield GAP
        yield lines[number]
        after = number + 1
    if after < len(lines):
        yield GAP
