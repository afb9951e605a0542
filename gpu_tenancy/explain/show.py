"""Output of `usage`, `fit` and `why`: tables and lines for people, JSON for programs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import visible
from gpu_tenancy.cluster.reading import Answer, Verdict
from gpu_tenancy.explain.fit import Fitting
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.unblock import Unblock
from gpu_tenancy.explain.usage import Row, Usage

_MARKS: Final[dict[Verdict, tuple[str, str]]] = {
    "now": ("✓", "green"),
    "later": ("…", "yellow"),
    "never": ("✗", "red"),
    "unknown": ("?", "yellow"),
}


def usage(usage: Usage, *, verbose: bool = False) -> Group:
    """Table of shares and of namespace quotas, with totals and notes; quotas with room only if `verbose`."""
    most = ("with up to~",) if any(row.with_up_to for row in usage.rows) else ()
    heads = (
        "team…", "flavor…", "resource", "scheduler", "guaranteed#", *most, "limit#", "used#", "borrowed#", "lent#",
        "pending#", "workloads#",
    )  # fmt: skip
    drop = ("scheduler", "workloads", "lent", "borrowed", "limit", *([most[0].rstrip("~")] if most else []))
    shares = table(*heads, drop=drop)
    for row in usage.rows:
        guaranteed, *amounts = row.amounts
        cells = (row.title, row.flavor, row.resource, row.scheduler, guaranteed)
        shares.add_row(*cells, *([row.with_up_to] if most else []), *amounts, str(row.workloads or ""))
    parts: list[RenderableType] = [shares, Text(""), Text(usage.total.text, style="bold")]
    if listed := usage.budgets if verbose else usage.spent:
        quotas = table("namespace…", "quota…", "resource", "used#", "limit#", drop=("quota",))
        for budget in listed:
            quotas.add_row(*budget.cells)
        parts += [Text(""), quotas]
    if usage.others and not verbose:
        parts.append(Text(f"{usage.others}; -v shows them", style="dim"))
    styles = dict.fromkeys(usage.breaches, "bold red")
    return Group(*parts, *(Text(visible(note), style=styles.get(note, "dim")) for note in usage.remarks))


def fitting(fitting: Fitting, *, brief: bool = False) -> Group:
    """Conclusion, requests and checks of one workload; only the conclusion if it is `brief`."""
    conclusion = Text(visible(fitting.conclusion), style=f"bold {_MARKS[fitting.verdict][1]}")
    if brief:
        return Group(conclusion)
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
    """Reason, fix and numbers; with `verbose`, messages of controllers."""
    style = "bold yellow" if why.waits else "bold green"
    answer = Text.assemble((visible(why.title), "bold"), ": ", (visible(why.reason), style))
    fix = [Text(visible(f"fix: {why.fix}"), style="bold")] if why.fix else []
    estimate = why.unblock.estimate if why.unblock else None
    more = [Text(f"  {visible(line)}") for line in (*([estimate.text] if estimate else []), *why.lines)]
    messages = [Text(f"  {visible(message)}", style="dim") for message in why.messages] if verbose else []
    return Group(answer, *fix, *more, *messages)


def data(result: Usage | Why | Sequence[Fitting]) -> object:
    """A result for JSON; amounts in base units."""
    match result:
        case Usage():
            return {
                "rows": [_row(row) for row in result.rows],
                "budgets": [asdict(budget) for budget in result.budgets],
                "total": result.total.text,
                "interrupted": [asdict(one) for one in result.interrupted],
                "notes": result.remarks,
            }
        case Why():
            return {
                "title": result.title,
                "lines": result.lines,
                "messages": result.messages,
                "reason": result.reason,
                "fix": result.fix,
                "pending": result.waits,
                "unblock": _unblock(result.unblock) if result.unblock else None,
                "conclusion": result.conclusion,
            }
        case _:
            return [
                {
                    "title": fitting.title,
                    "requests": fitting.asks,
                    "answers": [
                        {"check": answer.about, "verdict": answer.verdict, "lines": answer.lines}
                        for answer in fitting.answers
                    ],
                    "verdict": fitting.verdict,
                    "conclusion": fitting.conclusion,
                }
                for fitting in result
            ]


def _row(row: Row) -> dict[str, Any]:
    own = row.guarantee
    largest = {own.resource: own.units, **own.beside} if own and own.units else None
    fields = asdict(row) | {"team": row.title, "pending": row.waiting, "largest_job": largest}
    return {key: value for key, value in fields.items() if key not in {"part_of", "waiting", "guarantee"}}


def _unblock(unblock: Unblock) -> dict[str, Any]:
    wait = {"low": unblock.estimate.low, "high": unblock.estimate.high} if unblock.estimate else None
    fields = asdict(unblock) | {"not_simulated": "; ".join(unblock.not_simulated), "estimate": wait}
    return {key: value for key, value in fields.items() if key != "queue_head"}


def follow(console: Console, ask: Callable[[], RenderableType], every: float, rounds: int = 0) -> None:
    """Refreshes an output every `every` seconds, in place on a terminal; `rounds` is their number, 0 for no end."""
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
