"""The cohort tree as a Mermaid diagram."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.review.drawing import Branch, Drawing

TEAMS: Final = 60
"""Teams beyond which the diagram shows only cohorts: Mermaid draws at most 500 edges and
50,000 characters: https://mermaid.js.org/config/schema-docs/config-properties-maxedges.html, `…-maxtextsize.html`."""


def mermaid(outlook: StackOutlook) -> Iterator[str]:
    """Cohorts and teams with guarantees and limits; a dashed edge leads to a team without a guarantee."""
    tree = Drawing(outlook).tree
    yield "```mermaid"
    yield "flowchart LR"
    yield from _branch(tree, "g", teams=tree.count <= TEAMS)
    yield "```"


def _branch(branch: Branch, place: str, *, teams: bool) -> Iterator[str]:
    own = [f"own quota: {branch.nobody}" if branch.depth else f"unassigned: {branch.nobody}"] if branch.nobody else []
    count = [] if teams else [f"{branch.count} {'team' if branch.count == 1 else 'teams'}"]
    bounds = [f"{bar.flavor} {bar.numbers}" for bar in branch.bars]
    yield f'  {place}["{_label(branch.name, *count, *bounds, *own)}"]'
    for index, group in enumerate(branch.groups):
        yield from _branch(group, f"{place}_{index}", teams=teams)
        yield f"  {place} --- {place}_{index}"
    for index, (name, bars) in enumerate(branch.teams if teams else ()):
        edge = "---" if any(not bar.ring for bar in bars) else "-.-"
        yield f'  {place} {edge} {place}_t{index}(["{_label(name, *(f"{bar.flavor} {bar.numbers}" for bar in bars))}"])'


def _label(*lines: str) -> str:
    return "<br/>".join(_escaped(line) for line in lines)


def _escaped(words: str) -> str:
    """Text with special characters as Mermaid's entity codes, `#` number `;`."""
    return "".join(char if char.isalnum() or char in " -.,:'→/" else f"#{ord(char)};" for char in words)
