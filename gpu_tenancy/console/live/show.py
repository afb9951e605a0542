"""Output of `usage`, `fit` and `why`: tables and lines for people, JSON for programs."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpu_tenancy.console.live import narrative
from gpu_tenancy.console.live.amounts import amount_text
from gpu_tenancy.console.live.answers import Answer, Verdict
from gpu_tenancy.console.live.fit import Fitting
from gpu_tenancy.console.live.unblock import Unblock
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
    ("pending", "right"),
)


def usage(found: Usage) -> Group:
    """Output of `usage`: shares, quotas, a total, and notes on the numbers."""
    parts: list[RenderableType] = [_shares(found)]
    if found.budgets:
        parts += [Text(""), _quotas(found.budgets)]
    parts += [Text(""), Text(narrative.usage_total(found.total), style="bold")]
    parts += [Text(note, style="dim") for note in narrative.usage_notes(found)]
    return Group(*parts)


def _shares(found: Usage) -> Table:
    table = _table(_COLUMNS)
    for row in found.rows:
        numbers = (row.guaranteed, row.limit, row.used, row.borrowed, row.lent)
        pending = f"{amount_text(row.resource, row.waiting)} in {row.workloads}" if row.waiting else "0"
        amounts = ("?" if number is None else amount_text(row.resource, number) for number in numbers)
        table.add_row(narrative.row_title(row), row.flavor, row.resource, row.scheduler, *amounts, pending)
    return table


def _quotas(found: Sequence[TeamBudget]) -> Table:
    table = _table(
        (("namespace", "left"), ("quota", "left"), ("resource", "left"), ("used", "right"), ("limit", "right"))
    )
    for each in found:
        line = each.budget
        table.add_row(
            each.team,
            line.quota,
            line.resource,
            *(amount_text(line.resource, value) for value in (line.used, line.hard)),
        )
    return table


def _table(columns: Iterable[tuple[str, Literal["left", "right"]]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading, justify in columns:
        # On a narrow terminal names wrap; a truncated number would be wrong.
        table.add_column(heading, justify=justify, no_wrap=justify == "right", overflow="fold")
    return table


def fitting(found: Fitting) -> Group:
    """Output of `fit` for one workload: the checks and the conclusion."""
    heading = Text.assemble((found.title, "bold"), f": {found.asks}")
    style = _MARKS[found.verdict][1]
    return Group(heading, *(_answer(answer) for answer in found.answers), Text(found.conclusion, style=f"bold {style}"))


def _answer(answer: Answer) -> Text:
    mark, style = _MARKS[answer.verdict]
    first, *others = answer.lines
    lines = Text.assemble((mark, style), f" {answer.about}: {first}")
    for line in others:
        lines.append(f"\n  {line}")
    return lines


def why(found: Why) -> Group:
    """Output of `why`: what was found, and reason and fix as the last line."""
    style = "bold yellow" if found.waits else "bold green"
    return Group(
        Text(found.title, style="bold"), *(Text(line) for line in found.lines), Text(found.conclusion, style=style)
    )


def data(found: Usage | Why | Sequence[Fitting]) -> str:
    """A result as JSON for programs; amounts in base units."""
    match found:
        case Usage():
            plain: object = _usage(found)
        case Why():
            plain = _why(found)
        case _:
            plain = [_fitting(fitting) for fitting in found]
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def _usage(found: Usage) -> dict[str, Any]:
    rows = [asdict(row) | {"team": narrative.row_title(row)} for row in found.rows]
    for row in rows:
        del row["part_of"]
    return {
        "rows": rows,
        "budgets": [asdict(budget) for budget in found.budgets],
        "total": narrative.usage_total(found.total),
        "notes": list(narrative.usage_notes(found)),
    }


def _why(found: Why) -> dict[str, Any]:
    return {
        "title": found.title,
        "words": found.lines,
        "reason": found.reason,
        "mend": found.fix,
        "waits": found.waits,
        "entry": _unblock(found.unblock) if found.unblock else None,
        "conclusion": found.conclusion,
    }


def _unblock(unblock: Unblock) -> dict[str, Any]:
    fields = asdict(unblock) | {"left_out": "; ".join(unblock.left_out)}
    del fields["behind"]
    return fields


def _fitting(found: Fitting) -> dict[str, Any]:
    return {
        "title": found.title,
        "asks": found.asks,
        "answers": [
            {"about": answer.about, "verdict": answer.verdict, "words": answer.lines} for answer in found.answers
        ],
        "verdict": found.verdict,
        "conclusion": found.conclusion,
    }


def follow(console: Console, ask: Callable[[], RenderableType], every: float, rounds: int = 0) -> None:
    """Refreshes an output periodically: in place on a terminal, otherwise one below the other.

    Args:
        console: where to print.
        ask: reads the cluster again.
        every: seconds between two reads.
        rounds: number of reads; 0 for no end.
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
