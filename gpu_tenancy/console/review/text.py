"""A review in a terminal: plain columns where nobody looks at one."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from gpu_tenancy.console.review.changes import Change
from gpu_tenancy.console.review.review import Review, RuleLine, Rules, Tone
from gpu_tenancy.model.outlook import StackOutlook

_TONES: Final[dict[Tone, str]] = {"good": "green", "notice": "yellow", "bad": "red"}
_MARKS: Final = {
    "delete": "[red]-[/red]",
    "replace": "[red]±[/red]",
    "create": "[green]+[/green]",
    "update": "[yellow]~[/yellow]",
}
_FIELDS: Final = 6


def show_verdict(console: Console, review: Review) -> None:
    """The one line, and with what the stack is compared."""
    tone = _TONES[review.verdict.tone]
    sentences = escape(" ".join(review.verdict.sentences))
    console.print(f"[bold {tone}]{review.verdict.title}[/bold {tone}]: {sentences}", highlight=False)
    if review.comparison:
        console.print(f"[dim]against {review.comparison.ref} ({review.comparison.commit})[/dim]", highlight=False)
        for note in review.comparison.notes:
            console.print(f"[dim]{escape(note)}[/dim]", highlight=False)


def show_changes(console: Console, changes: Iterable[Change]) -> None:
    """What changes, deletes first, by whom it concerns."""
    for group, found in groupby(changes, key=lambda one: (one.action in {"delete", "replace"}, one.group)):
        console.print(f"[bold]{escape(group[1])}[/bold]", highlight=False)
        for change in found:
            word = "" if change.action != "replace" else " [red](replaced)[/red]"
            console.print(f"  {_MARKS[change.action]} {escape(change.place)}{word}", highlight=False)
            for line in _fields(change):
                console.print(f"      [dim]{escape(line)}[/dim]", highlight=False)


def _fields(change: Change) -> Iterator[str]:
    for field in change.fields[:_FIELDS]:
        yield f"{field.path}: {field.before or '(nothing)'} → {field.after or '(nothing)'}"
    if len(change.fields) > _FIELDS:
        yield f"and {len(change.fields) - _FIELDS} more"


_RULES: Final = {
    "broken": ("[red]✗[/red]", "broken"),
    "mended": ("[green]+[/green]", "mended by a remedy"),
    "advised": ("[yellow]![/yellow]", "advised"),
    "exempted": ("[dim]○[/dim]", "exempted"),
}


def show_rules(console: Console, rules: Rules) -> None:
    """What policy packs say, what must be mended first, and how many of their rules hold."""
    for line in rules.lines:
        severity = "" if line.outcome == "mended" else f" {line.severity},"
        console.print(
            f"{_RULES[_counted_as(line)][0]} {escape(line.says)}\n"
            f"  [dim]{escape(f'{line.rule},{severity} {line.pack}')}[/dim]",
            highlight=False,
        )
    counts = Counter(_counted_as(line) for line in rules.lines)
    said = ", ".join(f"{counts[kind]} {words}" for kind, (_, words) in _RULES.items() if counts[kind])
    held = f"{rules.held} {'rule' if rules.held == 1 else 'rules'} of {', '.join(rules.packs)} hold"
    console.print(f"policies: {said or 'nothing to say'}; {escape(held)}", highlight=False)


def _counted_as(line: RuleLine) -> str:
    if line.outcome == "broken":
        return "broken" if line.level == "mandatory" else "advised"
    return line.outcome if line.outcome in _RULES else "advised"


def promises(now: StackOutlook, before: StackOutlook | None = None) -> RenderableType:
    """Each team's guarantee, what it gets if all are busy, alone, and at most; with what it was where that differs."""
    table = Table(box=None, pad_edge=False, header_style="dim", title="GPUs that teams are promised")
    table.title_justify = "left"
    for heading in ("team", "flavor", "scheduler"):
        table.add_column(heading)
    for heading in ("guaranteed", "if all are busy", "alone", "limit"):
        table.add_column(heading, justify="right")
    table.add_column("gets its own back")
    old = {
        (team.name, each.flavor, each.scheduler): each
        for team in (before.teams if before else ())
        for each in team.holdings
    }
    for team in now.teams:
        for each in team.holdings:
            was = old.get((team.name, each.flavor, each.scheduler))
            busy = (
                f"{each.busy.least}" if each.busy.least == each.busy.most else f"{each.busy.least} to {each.busy.most}"
            )
            table.add_row(
                team.name,
                each.flavor,
                each.scheduler,
                _with(each.guaranteed, was.guaranteed if was else None, compared=before is not None),
                busy,
                str(each.alone),
                _with(each.limit, was.limit if was else None, compared=before is not None),
                each.back,
            )
    return table


def _with(now: int, before: int | None, *, compared: bool) -> str:
    if not compared or now == before:
        return str(now)
    return f"{now} (new)" if before is None else f"{now} (was {before})"
