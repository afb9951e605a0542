"""How answers look: tables and lines for people, plain where no terminal is, data for programs."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpu_tenancy.console.live.amounts import said
from gpu_tenancy.console.live.answers import Answer, Verdict
from gpu_tenancy.console.live.fit import Fitting
from gpu_tenancy.console.live.usage import TeamBudget, Usage
from gpu_tenancy.console.live.verdicts import Why

_MARKS: Final[dict[Verdict, tuple[str, str]]] = {
    "now": ("✓", "green"),
    "later": ("…", "yellow"),
    "never": ("✗", "red"),
    "unknown": ("?", "yellow"),
}
_COLUMNS: Final[tuple[tuple[str, Literal["left", "right"]], ...]] = (
    ("team", "left"),
    ("flavor", "left"),
    ("resource", "left"),
    ("scheduler", "left"),
    ("guaranteed", "right"),
    ("limit", "right"),
    ("used", "right"),
    ("borrowed", "right"),
    ("lent", "right"),
    ("waiting", "right"),
)


def usage(found: Usage) -> Group:
    """The whole of a `usage`: shares, quotas, one total line, and what the numbers mean."""
    parts: list[RenderableType] = [_shares(found)]
    if found.budgets:
        parts += [Text(""), _quotas(found.budgets)]
    parts += [Text(""), Text(found.total, style="bold")]
    parts += [Text(note, style="dim") for note in found.notes]
    return Group(*parts)


def _shares(found: Usage) -> Table:
    table = _table(_COLUMNS)
    for row in found.rows:
        numbers = (row.guaranteed, row.limit, row.used, row.borrowed, row.lent)
        waiting = f"{said(row.resource, row.waiting)} in {row.workloads}" if row.waiting else "0"
        amounts = ("?" if each is None else said(row.resource, each) for each in numbers)
        table.add_row(row.team, row.flavor, row.resource, row.scheduler, *amounts, waiting)
    return table


def _quotas(found: Sequence[TeamBudget]) -> Table:
    table = _table(
        (("namespace", "left"), ("quota", "left"), ("resource", "left"), ("used", "right"), ("hard", "right"))
    )
    for each in found:
        line = each.budget
        table.add_row(
            each.team, line.quota, line.resource, *(said(line.resource, value) for value in (line.used, line.hard))
        )
    return table


def _table(columns: Iterable[tuple[str, Literal["left", "right"]]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, justify in columns:
        # On a narrow terminal names are folded; a number that is cut would be another number.
        table.add_column(heading, justify=justify, no_wrap=justify == "right", overflow="fold")
    return table


def fitting(found: Fitting) -> Group:
    """What all judges say to one object, and one sentence."""
    heading = Text.assemble((found.title, "bold"), f": {found.asks}")
    style = _MARKS[found.verdict][1]
    return Group(heading, *(_answer(each) for each in found.answers), Text(found.conclusion, style=f"bold {style}"))


def _answer(answer: Answer) -> Text:
    mark, style = _MARKS[answer.verdict]
    first, *others = answer.words
    lines = Text.assemble((mark, style), f" {answer.about}: {first}")
    for each in others:
        lines.append(f"\n  {each}")
    return lines


def why(found: Why) -> Group:
    """What was seen on the way, and the reason as the last line."""
    style = "bold yellow" if found.waits else "bold green"
    return Group(
        Text(found.title, style="bold"), *(Text(each) for each in found.words), Text(found.conclusion, style=style)
    )


def data(found: Usage | Why | Sequence[Fitting]) -> str:
    """An answer for another program, as JSON with its fields' own names; amounts in base units."""
    plain = _plain(found) if isinstance(found, Usage | Why) else [_plain(each) for each in found]
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def _plain(found: Usage | Why | Fitting) -> dict[str, Any]:
    fields = asdict(found)
    if isinstance(found, Fitting):
        fields["verdict"] = found.verdict
    if not isinstance(found, Usage):
        fields["conclusion"] = found.conclusion
    return fields


def follow(console: Console, ask: Callable[[], RenderableType], every: float, rounds: int = 0) -> None:
    """Shows an answer again and again: in place on a terminal, else one below the other.

    Args:
        console: where.
        ask: asks the cluster anew.
        every: seconds between two questions.
        rounds: how many; 0 until it is interrupted.
    """
    done = 0
    if not console.is_terminal:
        while True:
            console.print(ask())
            done += 1
            if done == rounds:
                return
            console.print()
            time.sleep(every)
    with Live(ask(), console=console, auto_refresh=False, screen=False) as live:
        while (done := done + 1) != rounds:
            time.sleep(every)
            live.update(ask(), refresh=True)
