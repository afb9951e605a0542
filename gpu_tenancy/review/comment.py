"""The review as a pull request comment, in Markdown for GitHub and GitLab; users' text is never markup."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import accumulate
from typing import Final

from gpu_tenancy.base.quantity import amount_text
from gpu_tenancy.base.texts import code_parts, plural, visible
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.model.outlook.shares import Holding
from gpu_tenancy.pages.bars import Bar, Branch
from gpu_tenancy.pages.tables import Cell, Column, Row, Table, Tone, columns
from gpu_tenancy.review import figures
from gpu_tenancy.review.charts import Drawing, text_bar
from gpu_tenancy.review.figures_tables import tables
from gpu_tenancy.review.review import PolicyChanges, Review, RuleLine, Verdict
from gpu_tenancy.review.verdict import finding_counts

LIMIT: Final = 65_536
LEAST: Final = 4_000  # minimum number of characters for the verdict and the key figures

_MARKS: Final[dict[Tone, str]] = {"good": "✓ ", "notice": "", "bad": "✗ "}
_REASONS: Final = 12
_NOTES: Final = 2
_NOTE: Final = 200
_FIELDS: Final = 20
TEAMS: Final = 60
"""Most teams in the diagram, else only cohorts: Mermaid draws at most 500 edges and 50,000 characters:
https://mermaid.js.org/config/schema-docs/config-properties-maxedges.html, `…-maxtextsize.html`.
"""
_SIGNS: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]~|"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SILENT: Final = "&#8203;"  # a zero-width space, which keeps GitHub from linking names and issues
_CODE: Final = str.maketrans({sign: f"&#{ord(sign)};" for sign in "\\`*_[]~|&<>@#"})


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the comment, included whole or omitted; the lowest rank is included first."""

    title: str
    rank: int
    lines: tuple[str, ...]


def comment(review: Review, limit: int = LIMIT) -> str:
    """The review as Markdown, at most `limit` characters long.

    The most important sections, always the verdict and the key figures, are included; a last line lists the omitted
    ones. GitHub allows 65,536 characters: https://github.com/orgs/community/discussions/27190.

    Raises:
        ValueError: the limit is below `LEAST`.
    """
    if limit < LEAST:
        raise ValueError(f"limit: {limit} characters is too short for a comment; set at least {LEAST}")
    head = _head(review, limit // 2 - LEAST // 4)
    sections = [section for section in _sections(review) if section.lines]
    kept: list[Section] = []
    for section in sorted(sections, key=lambda section: section.rank):
        if len(_joined(head, [*kept, section], sections)) <= limit:
            kept.append(section)
    return _joined(head, kept, sections)


def _joined(head: str, kept: list[Section], sections: list[Section]) -> str:
    missing = [section.title for section in sections if section not in kept]
    note = (
        f"*Omitted to fit the comment size: {', '.join(missing)}."
        " See the full report page in the artifacts of this run.*\n"
    )
    shown_ = ("\n".join((*section.lines, "", "")) for section in sections if section in kept)
    return f"{head}{''.join(shown_)}{note if missing else ''}"


def _sections(review: Review) -> Iterator[Section]:
    all_, now = tables(review), review.now
    groups = figures.change_groups(review)
    yield Section("policies", 2, tuple(_rules(review)))
    yield Section("deletions and replacements", 1, tuple(_losses(groups)))
    if review.effect:
        yield _table("running and pending workloads", 2, all_["work"])
    yield Section("changes", 5, tuple(_changes(review, groups)))
    yield Section("changed values", 3, tuple(_differences(review, all_.values())))
    yield Section("guarantees and limits", 4, tuple(_promises(review)))
    yield _table("preemption", 7, all_["preemption"])
    yield _table("guarantees and capacity", 6, all_["supply"])
    yield _table(all_["teams"].title, 7, all_["teams"])
    bill = (*_figure_lines(all_["bill"]), "", *(f"- {text(note)}" for note in now.bill.notes))
    yield Section("monthly bill", 7, tuple(folded(f"<b>{all_['bill'].title}</b>", bill)))
    for title, rank, costs in (("cost center", 8, all_["cost-by-centre"]), ("team", 9, all_["cost-by-team"])):
        yield Section(f"cost by {title}", rank, tuple(folded(f"<b>{costs.title}</b>", _figure_lines(costs))))
    yield _table("serving", 10, all_["serving"])
    yield Section("warnings", 3, tuple(_listed("<b>Warnings</b>", map(prose, now.warnings))))
    needed = _listed("<b>Before the deployment</b>, these must exist", map(code, review.prerequisites))
    yield Section("before the deployment", 3, tuple(needed))
    if now.ways_in:
        yield _table("hosts", 3, all_["ways-in"])
    yield _table("node pools", 11, all_["pools"])
    yield Section("cohort tree", 12, tuple(folded("Cohort tree", mermaid(now))))
    yield _table("cohorts", 13, all_["groups"])
    yield _table("access", 14, all_["access"])
    if now.data:
        rights = _listed("<b>Rights on data</b>: whoever administers the buckets grants", map(code, now.data_rights))
        needs = _listed("<b>Network for shared storage</b>: not created by this stack", map(text, now.network_needs))
        yield _table("data", 14, all_["data"], *rights, *needs)
    if now.caches:
        yield _table("caches", 14, all_["caches"])
    if now.people:
        roles = _listed("<b>Roles to log in</b>: whoever administers the cloud runs", map(code, now.commands))
        yield _table("people", 15, all_["people"], *roles)
    yield _table("secrets", 16, all_["secrets"])
    yield Section("images", 17, tuple(_listed("<b>Images</b>", map(text, now.pulls))))


def _table(title: str, rank: int, shown_: Table, *more: str) -> Section:
    if not shown_.rows and not shown_.gone:
        return Section(title, rank, more)
    gone = ("", f"Removed: {text('; '.join(shown_.gone))}.") if shown_.gone else ()
    return Section(title, rank, (*folded(f"<b>{shown_.title}</b>", (*_figure_lines(shown_), *gone)), *more))


def _listed(summary: str, items: Iterable[str]) -> Iterator[str]:
    if lines := [f"- {item}" for item in items]:
        yield from folded(summary, lines)


def _head(review: Review, room: int) -> str:
    verdict, base = review.verdict, review.comparison
    about = [text(review.now.standing), f"{review.resources:,} resources"]
    if base:
        about.append(f"compared with {code(base.ref)} ({code(base.commit)})")
    if base or review.real:
        about.append(figures.tally(figures.shown(review)))
    if review.real:
        about.append(f"{review.real.same:,} unchanged (Pulumi preview)")
    lines = [
        f"## {_MARKS[verdict.tone]}{text(review.stack)}: {text(verdict.title)}",
        "",
        *_reasons(verdict, room),
        "",
        " · ".join(about),
        "",
        *([prose(review.now.expects), ""] if review.now.expects else []),
        *(f"> {text(note[:_NOTE])}\n" for note in (base.notes[:_NOTES] if base else ())),
        *_key_figures(review),
        "",
        "",
    ]
    return "\n".join(lines)


def _reasons(verdict: Verdict, room: int) -> Iterator[str]:
    reasons = verdict.sentences
    lines = [f"- {prose(reason)}" for reason in reasons[: max(_REASONS, verdict.blocking)]]
    kept = [line for line, length in zip(lines, accumulate(map(len, lines)), strict=True) if length <= room]
    yield from kept
    if omitted := len(reasons) - len(kept):
        yield f"- *{plural(omitted, 'more reason')} in the full report*"


def _key_figures(review: Review) -> Iterator[str]:
    all_ = figures.key_figures(review)
    changed = ["change#"] if any(figure.change for figure in all_) else []
    rows: list[tuple[str, ...]] = []
    for figure in all_:
        change = (figure.change,) if changed else ()
        value = f"{figure.bound}**{figure.value}** {figure.beside}".strip()
        rows.append((figure.label, value, *change, text(figure.note)))
    yield from table(columns("", "#", *changed, ""), rows)


def _rules(review: Review) -> Iterator[str]:
    yield "### Policies"
    yield ""
    rules = review.rules
    if rules is None:
        command = code(f"tenancy preview {review.stack} --policy workloads --policy clouds")
        yield f"Policies not evaluated. To evaluate both packs, run {command}."
        return
    yield from (f"- ✗ **mandatory** {_rule(line)}" for line in rules.mandatory)
    if rules.changes:
        yield from _policy_changes(rules.changes)
    yield f"- {plural(rules.held, 'rule')} passed ({text(', '.join(rules.packs))})"
    if rules.advice or rules.exempted:
        yield ""
        lines = [f"- **{text(line.level)}** {_rule(line)}{_OUTCOMES.get(line.outcome, '')}" for line in rules.advice]
        lines += (f"- **exempted** {_rule(line)}" for line in rules.exempted)
        yield from folded(", ".join(finding_counts(rules)), lines)


def _policy_changes(changes: PolicyChanges) -> Iterator[str]:
    for line in (*changes.unreported, *changes.standing):
        yield f"- ✗ **mandatory at {text(changes.ref)}** {_rule(line)}"
    yield from (f"- **weaker** {code(rule.rule)} {text(rule.change)}" for rule in changes.weaker if rule.lowered)
    yield from (f"- {code(rule.rule)} {text(rule.change)}" for rule in changes.weaker if not rule.lowered)
    for exemption in changes.exemptions:
        yield f"- **new exemption** {code(exemption.rule)} {text(exemption.place)}: {text(exemption.text)}"


_OUTCOMES: Final = {
    "unknown": " *(unknown until deployment)*",
    "mended": " *(fixed by the rule's remediation)*",
}


def _rule(line: RuleLine) -> str:
    return f"{code(line.rule)} {prose(line.says)} *({text(line.place)}; {text(line.pack)})*"


def _losses(groups: Iterable[figures.ChangeGroup]) -> Iterator[str]:
    lost = [(group, line) for group in groups for line in group.lines if line.action in {"delete", "replace"}]
    if lost:
        yield "### Deletions and replacements"
        yield ""
        yield from (f"- **{text(group.name)}**: {_change(line)}" for group, line in lost)


def _changes(review: Review, groups: tuple[figures.ChangeGroup, ...]) -> Iterator[str]:
    if not groups:
        return
    yield f"### Changes{' (from pulumi preview)' if review.real else ''}"
    yield ""
    for group in groups:
        where = f" · {code(group.where)}" if group.where else ""
        lines: list[str] = []
        for line in group.lines:
            lines.append(f"- {_change(line)}")
            for field in line.fields[:_FIELDS]:
                sides = f"{code(field.before) or '*none*'} → {code(field.after) or '*none*'}"
                lines.append(f"  - {code(field.path)}: {sides}{' **forces replacement**' if field.replaces else ''}")
            if len(line.fields) > _FIELDS:
                lines.append(f"  - and {len(line.fields) - _FIELDS} more fields")
        yield from folded(f"<b>{escape(group.name, quote=False)}</b> {group.tally}{where}", lines)


def _change(line: figures.ChangeLine) -> str:
    remark = f" *({text(line.remark)})*" if line.remark else ""
    return f"**{figures.DONE[line.action]}** {text(line.kind)} {', '.join(code(name) for name in line.names)}{remark}"


def _differences(review: Review, all_: Iterable[Table]) -> Iterator[str]:
    changed = list(figures.differences(all_)) if review.comparison and review.comparison.before else []
    if changed:
        rows = ((text(item.about), item.table, item.column, text(item.was), text(item.now)) for item in changed)
        heads = columns("item", "table", "column", "before#", "after#")
        yield from folded(f"<b>Changed values</b> ({len(changed)})", table(heads, rows))


def _promises(review: Review) -> Iterator[str]:
    capacity = {supply.flavor: supply.capacity.maximum for supply in review.now.supply}
    bar = "█ guaranteed ▒ may borrow · other capacity"
    heads = columns("team", "flavor", bar, "guaranteed#", "with up to", "limit#", "capacity#", "lends")

    def cells(holding: Holding) -> tuple[str, ...]:
        flavor = text(holding.flavor) + (" (gangs)" if holding.scheduler == "Volcano" else "")
        guaranteed, limit, whole = holding.guaranteed, holding.limit, capacity.get(holding.flavor, 0)
        amount = partial(amount_text, holding.resource)
        amounts = amount(guaranteed), text(holding.bound), amount(limit), amount(whole)
        return flavor, f"`{text_bar(guaranteed, limit, whole)}`", *amounts, "yes" if holding.lends else "no"

    rows: list[tuple[str, ...]] = []
    for team in review.now.teams:
        found = [*(map(text, own[1:]) for own in figures.sharing(team, len(heads))), *map(cells, team.holdings)]
        rows += ((f"**{text(team.name)}**", *own) for own in found)
    yield "### Guarantees and limits"
    yield ""
    yield from table(heads, rows)


def text(words: str) -> str:
    """Text for a line or cell, escaped: no markup, cell borders, mentions, issue links or emoji."""
    line = visible(" ".join(words.split())).translate(_SIGNS)
    line = re.sub(r"[@#](?=\w)|:(?=[\w+-]+:)", rf"\g<0>{_SILENT}", line)
    return re.sub(r"^(\d+)([.)])(?=\s|$)|^([-+=#])", r"\1\\\2\3", line)


def prose(sentence: str) -> str:
    """A sentence of this program as text, with what is in backticks as code."""
    parts = enumerate(code_parts(" ".join(sentence.split())))
    return "".join(code(part) if index % 2 else _beside(part) for index, part in parts)


def _beside(part: str) -> str:
    """Text beside code, which keeps its spaces."""
    return f"{' ' * part.startswith(' ')}{text(part)}{' ' * (part.endswith(' ') and len(part) > 1)}"


def code(words: str) -> str:
    """Text as code, in a line or cell."""
    return f"<code>{visible(' '.join(words.split())).translate(_CODE)}</code>" if words.strip() else ""


def table(headings: Iterable[Column], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Lines of a table; cells are Markdown."""
    listed = list(headings)
    heads = [text(column.title) or " " for column in listed]
    for line in (heads, ["---:" if column.number else "---" for column in listed], *rows):
        yield f"| {' | '.join(line)} |"


def _figure_lines(shown: Table) -> Iterator[str]:
    """A table of the review, with bold row labels and previous values."""
    rows = ([_cell(cell, line, first=not index) for index, cell in enumerate(line.cells)] for line in shown.rows)
    return table(shown.columns, rows)


def _cell(shown: Cell, line: Row, *, first: bool) -> str:
    value = text(shown.text)
    if value and (first or line.sums or shown.tone == "bad"):
        value = f"**{value}**"
    was = f" (was {text(shown.was)})" if shown.was else ""
    return f"{value}{was}{' *new*' if first and line.fresh else ''}"


def folded(summary: str, lines: Iterable[str]) -> Iterator[str]:
    """A collapsed section; lines are Markdown, the summary is HTML."""
    yield f"<details><summary>{summary}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


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
        yield f'  {place} {edge} {place}_t{index}(["{_label(name, *(_bar(bar) for bar in bars))}"])'


def _bar(bar: Bar) -> str:
    return f"{bar.flavor} {bar.numbers}" if bar.flavor else bar.remark


def _label(*lines: str) -> str:
    """Lines with special characters as Mermaid's entity codes, `#` number `;`."""
    plain = " -.,:'→/"
    escaped = (
        "".join(char if char.isalnum() or char in plain else f"#{ord(char)};" for char in line) for line in lines
    )
    return "<br/>".join(escaped)
