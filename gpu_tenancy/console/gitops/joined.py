"""One comment for a pull request, of what was said of each stack."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_tenancy.console.errors import ConsoleError

MARK: Final = "<!-- gpu-tenancy: preview -->"
"""The first line, by which the comment is found again and written over."""

LIMIT: Final = 65_536
"""Characters of a comment: https://github.com/orgs/community/discussions/27190."""

LEAST: Final = 4_000
"""Characters below which stacks could not even be listed."""

_MEANINGS: Final = {
    0: "fine",
    1: "the stack is wrong",
    2: "a mandatory rule is broken",
    3: "a mistake in the program of the preview",
}
_GRAVITY: Final = (3, 1, 2, 0)
"""Exit codes, the worst first: without a preview nobody knows of rules."""


@dataclass(frozen=True, slots=True)
class Said:
    """How the preview of one stack ended.

    Attributes:
        code: its exit code.
        report: its Markdown; empty where it came to none.
        errors: what it said of mistakes.
    """

    stack: str
    code: int
    report: str
    errors: str


def read(folder: Path) -> tuple[Said, ...]:
    """What previews left in folders named for their stacks: `exit-code`, `report.md`, `errors.txt`.

    Raises:
        ConsoleError: an exit code is none.
    """
    found: list[Said] = []
    for place in sorted(each.parent for each in folder.glob("*/exit-code")):
        text = _text(place / "exit-code").strip()
        if not text.isdecimal():
            raise ConsoleError(
                f"{place / 'exit-code'} has no exit code but {text!r}", "write what the preview ended with"
            )
        found.append(Said(place.name, int(text), _text(place / "report.md"), _text(place / "errors.txt")))
    return tuple(found)


def worst(said: Sequence[Said]) -> int:
    """The exit code of all together."""
    return min((each.code for each in said), key=_gravity, default=0)


def joined(said: Sequence[Said], limit: int = LIMIT) -> str:
    """All reports in one comment: the worst first, each whole or only its head, and a table of all above.

    Raises:
        ConsoleError: the limit is below `LEAST`.
    """
    if limit < LEAST:
        raise ConsoleError(f"a comment of {limit} characters says nothing", f"allow {LEAST} at least")
    ordered = sorted(said, key=lambda each: (_gravity(each.code), each.stack))
    head = _table(ordered)
    # Each has its head; what room is left goes to whole reports, the worst first.
    parts = {each.stack: _short(each) for each in ordered}
    for each in ordered:
        longer = {**parts, each.stack: _whole(each)}
        if len(_text_of(head, longer)) <= limit:
            parts = longer
    found = _text_of(head, parts)
    if len(found) > limit:
        found = _text_of(head, {})
    return found if len(found) <= limit else _text_of(_count(ordered), {})


def _gravity(code: int) -> int:
    return _GRAVITY.index(code) if code in _GRAVITY else -1


def _text_of(head: str, parts: dict[str, str]) -> str:
    return "\n\n".join([MARK, head, *(part.strip() for part in parts.values() if part.strip())]) + "\n"


def _table(said: Sequence[Said]) -> str:
    if not said:
        return "No stack is concerned: neither a stack's file nor the program, the catalogue or a policy pack changed."
    rows = [f"| {'✓' if each.code == 0 else '✗'} | `{each.stack}` | {_meaning(each.code)} |" for each in said]
    return "\n".join(["| | stack | |", "|---|---|---|", *rows])


def _count(said: Sequence[Said]) -> str:
    bad = sum(1 for each in said if each.code)
    return f"{len(said)} stacks were previewed, {bad} of them not fine; the pages are artifacts of this run."


def _meaning(code: int) -> str:
    return _MEANINGS.get(code, f"the preview ended with {code}")


def _whole(said: Said) -> str:
    if said.report.strip():
        return said.report
    return _fenced(said, said.errors.strip() or "The preview said nothing.")


def _short(said: Said) -> str:
    """What comes before the first part of a report, or the first mistakes."""
    if said.report.strip():
        return said.report.partition("\n### ")[0].strip() + "\n\n*The rest is on the page, an artifact of this run.*"
    return _fenced(said, "\n".join(said.errors.strip().splitlines()[:5])[:1_000])


def _fenced(said: Said, words: str) -> str:
    """Words of the program as they are: no fence of theirs ends ours."""
    fence = "`" * (max((len(run) for run in _runs(words)), default=0) + 1)
    fence = fence if len(fence) >= len("```") else "```"
    return f"## ✗ {said.stack}: {_meaning(said.code)}\n\n{fence}text\n{words}\n{fence}"


def _runs(words: str) -> list[str]:
    runs = [""]
    for sign in words:
        runs = [*runs[:-1], runs[-1] + sign] if sign == "`" else [*runs, ""] if runs[-1] else runs
    return runs


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
