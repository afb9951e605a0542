"""Output of `usage`, `fit` and `why`: tables and lines for people, JSON for programs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpu_tenancy.base.quantity import amount_text
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import plural, visible
from gpu_tenancy.cluster.answers import Answer, Verdict
from gpu_tenancy.explain.fit import Fitting
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.unblock import Unblock
from gpu_tenancy.explain.usage import Row, TeamBudget, Usage

_MARKS: Final[dict[Verdict, tuple[str, str]]] = {
    "now": ("✓", "green"),
    "later": ("…", "yellow"),
    "never": ("✗", "red"),
    "unknown": ("?", "yellow"),
}


def usage(usage: Usage) -> Group:
    """Output of `usage`: shares, quotas, a total, and notes on the numbers."""
    parts: list[RenderableType] = [_shares(usage)]
    if usage.budgets:
        parts += [Text(""), _quotas(usage.budgets)]
    parts += [Text(""), Text(usage.total.text, style="bold")]
    parts += [Text(visible(note), style="dim") for note in usage.remarks]
    return Group(*parts)


def _shares(usage: Usage) -> Table:
    heads = (
        "team",
        "flavor",
        "resource",
        "scheduler",
        "guaranteed#",
        "limit#",
        "used#",
        "borrowed#",
        "lent#",
        "pending#~",
    )
    shares = table(*heads, drop=("scheduler", "lent", "borrowed", "limit", "resource"))
    for row in usage.rows:
        numbers = (row.guaranteed, row.limit, row.used, row.borrowed, row.lent)
        amounts = ("?" if number is None else amount_text(row.resource, number) for number in numbers)
        shares.add_row(row.title, row.flavor, row.resource, row.scheduler, *amounts, _pending(row))
    return shares


def _pending(row: Row) -> str:
    if row.waiting is None:
        return "?"
    return f"{amount_text(row.resource, row.waiting)} in {plural(row.workloads, 'workload')}" if row.waiting else "0"


def _quotas(budgets: Sequence[TeamBudget]) -> Table:
    quotas = table("namespace", "quota", "resource", "used#", "limit#", drop=("quota",))
    for team_budget in budgets:
        budget = team_budget.budget
        amounts = (amount_text(budget.resource, value) for value in (budget.used, budget.hard))
        quotas.add_row(team_budget.team, budget.quota, budget.resource, *amounts)
    return quotas


def fitting(fitting: Fitting) -> Group:
    """Output of `fit` for one workload: the conclusion, what it requests, and the checks."""
    conclusion = Text(visible(fitting.conclusion), style=f"bold {_MARKS[fitting.verdict][1]}")
    asks = Text(visible(f"{fitting.title} requests {fitting.asks}"))
    return Group(conclusion, asks, *(_answer(answer) for answer in fitting.answers))


def _answer(answer: Answer) -> Text:
    mark, style = _MARKS[answer.verdict]
    # Messages of the cluster may have several lines, which must not look like lines of this command.
    first, *others = map(visible, answer.lines)
    lines = Text.assemble((mark, style), f" {answer.about}: {first}")
    for line in others:
        lines.append(f"\n  {line}")
    return lines


def why(why: Why, *, verbose: bool = False) -> Group:
    """Output of `why`: reason and fix, then the numbers; with `verbose`, what controllers say in their own words."""
    answer = Text.assemble((visible(why.title), "bold"), ": ", (visible(why.reason), _style(why)))
    fix = [Text(visible(f"fix: {why.fix}"), style="bold")] if why.fix else []
    estimate = why.unblock.estimate if why.unblock else None
    more = [Text(f"  {visible(line)}") for line in (*([estimate.text] if estimate else []), *why.lines)]
    said = [Text(f"  {visible(message)}", style="dim") for message in why.messages] if verbose else []
    return Group(answer, *fix, *more, *said)


def _style(why: Why) -> str:
    return "bold yellow" if why.waits else "bold green"


def data(result: Usage | Why | Sequence[Fitting]) -> object:
    """A result for programs; amounts in base units."""
    match result:
        case Usage():
            return _usage(result)
        case Why():
            return _why(result)
        case _:
            return [_fitting(fitting) for fitting in result]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "rows": [_row(row) for row in usage.rows],
        "budgets": [asdict(budget) for budget in usage.budgets],
        "total": usage.total.text,
        "interrupted": [asdict(one) for one in usage.interrupted],
        "notes": usage.remarks,
    }


def _row(row: Row) -> dict[str, Any]:
    fields = asdict(row) | {"team": row.title, "pending": row.waiting}
    return {key: value for key, value in fields.items() if key not in {"part_of", "waiting"}}


def _why(why: Why) -> dict[str, Any]:
    return {
        "title": why.title,
        "lines": why.lines,
        "messages": why.messages,
        "reason": why.reason,
        "fix": why.fix,
        "pending": why.waits,
        "unblock": _unblock(why.unblock) if why.unblock else None,
        "conclusion": why.conclusion,
    }


def _unblock(unblock: Unblock) -> dict[str, Any]:
    wait = {"low": unblock.estimate.low, "high": unblock.estimate.high} if unblock.estimate else None
    fields = asdict(unblock) | {"not_simulated": "; ".join(unblock.not_simulated), "estimate": wait}
    return {key: value for key, value in fields.items() if key != "queue_head"}


def _fitting(fitting: Fitting) -> dict[str, Any]:
    return {
        "title": fitting.title,
        "requests": fitting.asks,
        "answers": [
            {"check": answer.about, "verdict": answer.verdict, "lines": answer.lines} for answer in fitting.answers
        ],
        "verdict": fitting.verdict,
        "conclusion": fitting.conclusion,
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
