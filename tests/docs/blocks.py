"""The fenced blocks of README.md, CONTRIBUTING.md and docs/, and the mark before each that says how it is tested.

A mark is an HTML comment in the line before a block, which readers do not see:

| mark | the block |
|---|---|
| `run: as=WHO [exit=N] [within=SECONDS]` | is run by bash as it stands, in the folder of that person |
| `screen: as=WHO [lines=1-4,-1]` | has a command after `$ ` and its output as recorded; takes options of `run` |
| `part: of=platform` | is a part of what `make up` shows |
| `file: PATH` | is written to this file of the folder before the blocks that follow |
| `submit: as=WHO pods=N` | is a manifest: the blocks with `each` are run with it, then it has so many scheduled pods |
| `each: as=WHO` | is run for each manifest that is submitted, with its name in place of NAME |
| `stack:` | is a stack of its own |
| `stack: over=NAME` | is valid with its sections in place of those of another stack |
| `stack: into=NAME [at=PATH] [as=WHO]` | is valid when it is merged into another stack; this person edits its file so |
| `tested: NAME` | is taken by a test of this name |
| `below: MARK` | has no mark of its own, but this one, as all blocks below it: for pages that are generated |
| `not run: REASON` | cannot be run here, by a reason of the list below |

`within` repeats a block until it succeeds; `starts=platform` is for the first `make up`, which runs once for all pages;
`beside=prometheus` is for a command that asks Prometheus about last month, which people.py makes.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from repository import ROOT

PAGES: Final = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))

REASONS: Final = (
    "a drawing",
    "a form, whose example is run",
    "it is the tests themselves",
    "it replaces the platform of the other pages",
    "lines of three files",
    "needs a CI service",
    "needs a cloud account",
    "needs a program of yours",
    "needs a published release",
    "needs a recording of `make agree`",
    "needs a snapshot, which the embedded platform does not take",
    "needs Helm and an empty cluster",
    "needs nodes that run containers",
    "needs podman and images of others",
    "needs other operators than the embedded platform runs",
    "needs the Pulumi CLI and a backend",
    "needs the registries of charts",
    "needs the values.yaml of a chart",
    "needs two clusters",
    "read by Argo CD or Flux",
    "serves until it is interrupted",
    "takes longer than all pages together",
    "words of a message, not of a run",
)

# Options of each kind of mark; others take the text as it stands.
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "run": frozenset({"as", "exit", "within", "starts", "beside"}),
    "screen": frozenset({"as", "exit", "within", "lines", "beside"}),
    "part": frozenset({"of"}),
    "submit": frozenset({"as", "pods"}),
    "each": frozenset({"as"}),
    "stack": frozenset({"over", "into", "at", "as"}),
    "file": frozenset(),
    "tested": frozenset(),
    "not run": frozenset(),
}

# Readers of pages: see people.py.
WHO: Final = frozenset({"newcomer", "engineer", "admin", "user", "researcher", "lead", "auditor"})

_BLOCK: Final = re.compile(
    r"(?:^(?P<mark>[ ]*<!--[^\n]*-->)\n)?^(?P<indent>[ ]*)(?P<fence>```+)(?P<language>[\w-]*)\n"
    r"(?P<text>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_BELOW: Final = re.compile(r"^<!-- below: (?P<text>.*) -->$", re.MULTILINE)
_MARK: Final = re.compile(r"<!-- (?P<kind>[a-z ]+): ?(?P<text>.*?) ?-->")


@dataclass(frozen=True, slots=True)
class Mark:
    kind: str
    text: str

    @property
    def options(self) -> Mapping[str, str]:
        return dict(word.split("=", 1) for word in self.text.split() if "=" in word)

    @property
    def problem(self) -> str:
        """The error in the mark itself; empty if there is none."""
        if self.kind not in KINDS:
            return f"unknown mark {self.kind!r}; use one of {', '.join(KINDS)}"
        if self.kind == "not run":
            return "" if self.text in REASONS else f"unknown reason {self.text!r}; use one of blocks.REASONS"
        allowed = KINDS[self.kind]
        if not allowed:
            return "" if self.text else f"{self.kind}: nothing named"
        if unknown := set(self.options) - allowed:
            return f"{self.kind}: unknown options {sorted(unknown)}; use {sorted(allowed)}"
        nobody = "engineer" if self.kind == "stack" else None  # a stack need not be edited by anybody
        if "as" in allowed and self.options.get("as", nobody) not in WHO:
            return f"{self.kind}: as={self.options.get('as')}; use one of {sorted(WHO)}"
        return ""


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    mark: Mark | None
    start: int
    end: int
    indent: str

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    general = [(match.start(), match["text"]) for match in _BELOW.finditer(text)]
    for match in _BLOCK.finditer(text):
        above = [mark for start, mark in general if start < match.start()]
        mark = _MARK.search(match["mark"] or (f"<!-- {above[-1]} -->" if above else ""))
        indent = match["indent"]
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start("fence")) + 1,
                language=match["language"],
                text=re.sub(rf"^{indent}", "", match["text"], flags=re.MULTILINE),
                mark=Mark(mark["kind"], mark["text"]) if mark else None,
                start=match.start("text"),
                end=match.end("text"),
                indent=indent,
            )
        )
    return found


def counted() -> Counter[str]:
    """The number of blocks of all pages by kind of test, and by reason if they are not run."""
    return Counter(
        f"not run: {block.mark.text}" if block.mark and block.mark.kind == "not run" else _kind(block)
        for page in PAGES
        for block in blocks(page)
    )


def _kind(block: Block) -> str:
    return block.mark.kind if block.mark else "no mark"


if __name__ == "__main__":
    for kind, number in sorted(counted().items()):
        print(f"{number:4} {kind}")
