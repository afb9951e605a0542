"""A review as terminal output; plain text if the output is not a terminal."""

from collections.abc import Iterable
from functools import partial
from itertools import groupby
from typing import Final

from rich.console import Console, RenderableType
from rich.markup import escape

from gpu_tenancy.base.quantity import amount_text
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import available
from gpu_tenancy.explain.proposal import Effect
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.model.outlook.bill import Bill
from gpu_tenancy.pages.tables import Tone, printed
from gpu_tenancy.review.changes import Change
from gpu_tenancy.review.figures import sharing, work
from gpu_tenancy.review.figures_tables import ways_in
from gpu_tenancy.review.review import Review, Rules
from gpu_tenancy.review.verdict import policy_counts

_TONES: Final[dict[Tone, str]] = {"good": "green", "notice": "yellow", "bad": "red"}
_MARKS: Final = {
    "delete": "[red]-[/red]",
    "replace": "[red]±[/red]",
    "create": "[green]+[/green]",
    "update": "[yellow]~[/yellow]",
}
_FIELDS: Final = 6


def show_verdict(console: Console, review: Review) -> None:
    """Prints whether this is production, the verdict with its reasons, and the base of the comparison."""
    console.print(escape(review.now.standing), highlight=False)
    if review.now.expects:
        console.print(escape(review.now.expects), highlight=False)
    tone = _TONES[review.verdict.tone]
    console.print(f"[bold {tone}]{review.verdict.title}[/bold {tone}]", highlight=False)
    for reason in review.verdict.sentences:
        console.print(f"- {escape(reason)}", highlight=False)
    if review.prerequisites:
        console.print("Before the deployment, these must exist:")
    for line in review.prerequisites:
        console.print(f"- {escape(line)}", highlight=False, soft_wrap=True)
    if review.comparison:
        compared = f"compared with {review.comparison.ref} ({review.comparison.commit})"
        console.print(f"[dim]{escape(compared)}[/dim]", highlight=False)
        for note in review.comparison.notes:
            console.print(f"[dim]{escape(note)}[/dim]", highlight=False)


def show_changes(console: Console, changes: Iterable[Change]) -> None:
    """Prints changes by group, deletions first."""
    by_group = groupby(changes, key=lambda change: (change.action in {"delete", "replace"}, change.group))
    for (_, group), changed in by_group:
        console.print(f"[bold]{escape(group)}[/bold]", highlight=False)
        for change in changed:
            how = ", deleted first" if change.effect.deleted_first else ""
            word = " [yellow](restarts nodes)[/yellow]" if change.effect.restarts else ""
            word = word if change.action != "replace" else f" [red](replaced{how})[/red]"
            console.print(f"  {_MARKS[change.action]} {escape(change.place)}{word}", highlight=False)
            for field in change.fields[:_FIELDS]:
                line = f"{field.path}: {field.before or '(none)'} → {field.after or '(none)'}"
                console.print(f"      [dim]{escape(line)}[/dim]", highlight=False)
            if len(change.fields) > _FIELDS:
                console.print(f"      [dim]and {len(change.fields) - _FIELDS} more fields[/dim]", highlight=False)


def show_work(console: Console, effect: Effect) -> None:
    """Prints each workload whose state the change decides."""
    listed = work(effect)
    if listed.rows:
        console.print(printed(listed, drop=("hours", "for or why")))
    else:
        console.print("The change preempts, deletes, admits or delays no workload.", highlight=False)


def show_bill(console: Console, bill: Bill) -> None:
    """Prints the three figures of the monthly bill, and what they do not have."""
    for figure in bill.figures:
        console.print(escape(figure.line), highlight=False)
    for note in bill.notes:
        console.print(f"[dim]{escape(note)}[/dim]", highlight=False)


def show_hosts(console: Console, outlook: StackOutlook) -> None:
    """Prints the hosts by which clients outside of the cluster reach servers, if any."""
    if outlook.ways_in:
        console.print()
        console.print(printed(ways_in(outlook), drop=("paths", "gateway")))


_MARKS_OF_RULES: Final = {"broken": "[red]✗[/red]", "mended": "[green]+[/green]", "exempted": "[dim]○[/dim]"}
_ADVISED: Final = "[yellow]![/yellow]"


def show_rules(console: Console, rules: Rules) -> None:
    """Prints findings of policy packs, mandatory violations first, and the number of rules that passed."""
    for line in rules.lines:
        advised = line.outcome == "broken" and line.level != "mandatory"
        severity = "" if line.outcome == "mended" else f" {line.severity},"
        mark = _ADVISED if advised else _MARKS_OF_RULES.get(line.outcome, _ADVISED)
        console.print(f"{mark} {escape(line.says)}", highlight=False)
        console.print(f"  [dim]{escape(f'{line.rule},{severity} {line.pack}')}[/dim]", highlight=False)
    if changes := rules.changes:
        for line in (*changes.unreported, *changes.standing):
            console.print(f"{_MARKS_OF_RULES['broken']} {escape(line.says)}", highlight=False)
            where = f"{line.rule}, {line.severity}, {line.pack}, reported by the policies at {changes.ref} only"
            console.print(f"  [dim]{escape(where)}[/dim]", highlight=False)
        for rule in changes.weaker:
            text = escape(f"{rule.rule}: {rule.change}")
            console.print(f"{_ADVISED} {text} [dim]({escape(rule.pack)})[/dim]", highlight=False)
        for exemption in changes.exemptions:
            text = f"{exemption.place}: new exemption from {exemption.rule}: {exemption.text}"
            console.print(f"{_ADVISED} {escape(text)}", highlight=False)
    packs = escape(", ".join(rules.packs))
    console.print(f"policies: {policy_counts(rules)} ({packs})", highlight=False)


def promises(now: StackOutlook, before: StackOutlook | None = None) -> RenderableType:
    """Table of each team's guarantee, GPUs when everyone is busy, GPUs when alone and limit, with changed values."""
    amounts = "guaranteed#", "with up to", "everyone busy#", "alone#", "limit#"
    heads = "team", "flavor~", "scheduler", *amounts, "reclaims~"
    drop = "scheduler", "alone", "reclaims", "everyone busy"
    listed = table(*heads, drop=drop, title=f"{available(now.resources.values())} per team")
    old = {
        (team.name, holding.flavor, holding.scheduler): holding
        for team in (before.teams if before else ())
        for holding in team.holdings
    }

    def compared(now: str, was: str | None) -> str:
        if before is None or now == was:
            return now
        return f"{now} (new)" if was is None else f"{now} (was {was})"

    for team in now.teams:
        for cells in sharing(team, len(heads)):
            listed.add_row(*cells)
        for holding in team.holdings:
            was = old.get((team.name, holding.flavor, holding.scheduler))
            amount = partial(amount_text, holding.resource)
            minimum, maximum = holding.busy.minimum, holding.busy.maximum
            listed.add_row(
                team.name,
                holding.flavor,
                holding.scheduler,
                compared(amount(holding.guaranteed), amount(was.guaranteed) if was else None),
                compared(holding.bound, was.bound if was else None) if holding.bound else "",
                amount(minimum) if minimum == maximum else f"{amount(minimum)} to {amount(maximum)}",
                amount(holding.alone),
                compared(amount(holding.limit), amount(was.limit) if was else None),
                holding.back,
            )
    return listed
