"""One pull request comment from the previews of several stacks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.terminal import ExitCode

MARK: Final = "<!-- gpu-tenancy: preview -->"  # the first line, by which the comment is found and updated

# Characters of a comment, to which GitHub's action adds a few; GitHub's own maximum is 65,536:
# https://github.com/orgs/community/discussions/27190.
LIMIT: Final = 64_000

# By exit code, the most severe first: after an error, policies are not evaluated.
_MEANINGS: Final = {
    ExitCode.USAGE: "wrong usage of the preview",
    ExitCode.ERROR: "error, not evaluated",
    ExitCode.BLOCKED: "Blocked",
    ExitCode.OK: "OK",
}
_SEVERITY: Final = tuple(_MEANINGS)


@dataclass(frozen=True, slots=True)
class StackPreview:
    """The result of the preview of one stack; the report is Markdown, empty if there is none."""

    stack: str
    code: int
    report: str
    errors: str


def read(folder: Path) -> tuple[StackPreview, ...]:
    """Reads the files of `tenancy preview STACK --out FOLDER/STACK`: `exit-code`, `report.md`, `errors.txt`.

    Raises ConsoleError if an exit code is not a number, or the folder does not exist or is of one stack.
    """
    if not folder.is_dir():
        raise ConsoleError(f"folder {folder} not found", "set it to the --out of the previews")
    if (folder / "exit-code").is_file():
        fix = "preview each stack to a folder in it: --out OUT/STACK"
        raise ConsoleError(f"{folder} is the folder of one preview", fix)
    previews: list[StackPreview] = []
    for file in sorted(folder.glob("*/exit-code")):
        code, report, errors = (_text(file.with_name(name)) for name in ("exit-code", "report.md", "errors.txt"))
        if not code.strip().isdecimal():
            fix = "write the exit code of the preview to this file"
            raise ConsoleError(f"{file}: {code.strip()!r} is not an exit code", fix)
        previews.append(StackPreview(file.parent.name, int(code), report, errors))
    return tuple(previews)


def worst(previews: Sequence[StackPreview]) -> int:
    """The most severe exit code, which is `ERROR` of a preview that was killed; `OK` without previews."""
    code = min((preview.code for preview in previews), key=_severity, default=0)
    return code if code in _SEVERITY else ExitCode.ERROR


def comment(previews: Sequence[StackPreview]) -> str:
    """A table of all stacks, then all reports, the most severe first, complete or shortened to their head."""
    ordered = sorted(previews, key=lambda preview: (_severity(preview.code), preview.stack))
    rows = [f"| {'✓' if item.code == 0 else '✗'} | `{item.stack}` | {_meaning(item.code)} |" for item in ordered]
    head = "\n".join(["| | stack | |", "|---|---|---|", *rows])
    if not ordered:
        head = "No stacks affected: no stack file, program, catalogue or policy pack changed."
    # Every report has its head; the remaining space is for complete reports, the most severe first.
    parts = {preview.stack: _part(preview, whole=False) for preview in ordered}
    for preview in ordered:
        longer = {**parts, preview.stack: _part(preview, whole=True)}
        if len(_text_of(head, longer)) <= LIMIT:
            parts = longer
    comment = _text_of(head, parts)
    return comment if len(comment) <= LIMIT else _text_of(head, {})


def _severity(code: int) -> int:
    return _SEVERITY.index(code) if code in _SEVERITY else -1


def _text_of(head: str, parts: dict[str, str]) -> str:
    return "\n\n".join([MARK, head, *(part.strip() for part in parts.values() if part.strip())]) + "\n"


def _meaning(code: int) -> str:
    return _MEANINGS[ExitCode(code)] if code in _SEVERITY else f"preview exited with code {code}"


def _part(preview: StackPreview, *, whole: bool) -> str:
    """The report, or its head; else the start of the errors, in a fence longer than their runs of backticks."""
    if preview.report.strip():
        head = preview.report.partition("\n### ")[0].strip()
        return preview.report if whole else f"{head}\n\n*Shortened. The full report is an artifact of this run.*"
    errors = preview.errors.strip()
    errors = (errors or "The preview printed no message.") if whole else "\n".join(errors.splitlines()[:5])[:1_000]
    longest = max((len(run) for run in re.findall("`+", errors)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"## ✗ {preview.stack}: {_meaning(preview.code)}\n\n{fence}text\n{errors}\n{fence}"


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
