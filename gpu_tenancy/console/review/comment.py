"""The report as a comment on a pull request: Markdown that GitHub and GitLab show."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.console.review.changes import FieldChange
from gpu_tenancy.console.review.comment_markdown import code, figures, folded, table, text
from gpu_tenancy.console.review.comment_tree import mermaid
from gpu_tenancy.console.review.drawing_scale import text_bar
from gpu_tenancy.console.review.figures import Table, differences, key_figures
from gpu_tenancy.console.review.figures_changes import DONE, ChangeGroup, ChangeLine, change_groups, shown, tally
from gpu_tenancy.console.review.figures_tables import tables
from gpu_tenancy.console.review.review import Review, RuleLine, Tone

LIMIT: Final = 65_536
LEAST: Final = 4_000
"""Characters below which nothing sensible can be said."""

_MARKS: Final[dict[Tone, str]] = {"good": "✓ ", "notice": "", "bad": "✗ "}
_SENTENCES: Final = 12
_NOTES: Final = 2
_NOTE: Final = 200
_FIELDS: Final = 20


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the comment that is there as a whole, or not at all.

    Attributes:
        rank: the lowest comes in first.
    """

    title: str
    rank: int
    lines: tuple[str, ...]

    @property
    def markdown(self) -> str:
        """Its lines, with an empty one after."""
        return "\n".join((*self.lines, "", ""))


def comment(review: Review, limit: int = LIMIT) -> str:
    """The report as Markdown, short enough for a comment.

    The most important sections come in first, each as a whole; a line says which did not fit, and where they are. The
    verdict and the key figures are always there.

    Args:
        review: of the stack.
        limit: characters. GitHub takes 65,536, as its API says where a body is longer:
            https://github.com/orgs/community/discussions/27190.

    Raises:
        ValueError: the limit is below `LEAST`.
    """
    if limit < LEAST:
        msg = f"a comment of {limit} characters says nothing; allow {LEAST} at least"
        raise ValueError(msg)
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
        f"*Left out, to stay short enough: {', '.join(missing)}."
        " All of it is on the report's page, an artifact of this run.*\n"
    )
    return head + "".join(section.markdown for section in sections if section in kept) + (note if missing else "")


def _sections(review: Review) -> Iterator[Section]:
    """In the order in which they are read; what is cut first is another matter."""
    all_ = tables(review)
    groups = change_groups(review)
    yield Section("rules", 2, tuple(_rules(review)))
    yield Section("what goes", 1, tuple(_losses(groups)))
    yield Section("what changes", 5, tuple(_changes(review, groups)))
    yield Section("numbers that changed", 3, tuple(_differences(review, all_.values())))
    yield Section("who is promised what", 4, tuple(_promises(review)))
    yield Section("promises against supply", 6, tuple(_part("Promises against supply", all_["supply"])))
    yield Section("what each team gets", 7, tuple(_part("What each team gets", all_["teams"])))
    yield Section(
        "cost by cost centre", 8, tuple(_costs(review, all_["cost-by-centre"], "Cost a month, by cost centre"))
    )
    yield Section("cost by team", 9, tuple(_costs(review, all_["cost-by-team"], "Cost a month, by team")))
    yield Section("serving", 10, tuple(_part("Serving", all_["serving"])))
    yield Section("node pools", 11, tuple(_part("Node pools", all_["pools"])))
    yield Section("the tree of groups", 12, tuple(folded("The tree of groups", mermaid(review.now))))
    yield Section("groups", 13, tuple(_part("Groups", all_["groups"])))
    yield Section("access", 14, tuple(_part("Access", all_["access"])))


def _head(review: Review, room: int) -> str:
    verdict = review.verdict
    lines = [
        f"## {_MARKS[verdict.tone]}{text(review.stack)}: {text(verdict.title)}",
        "",
        _sentences(verdict.sentences, room),
        "",
        _about(review),
        "",
        *(f"> {text(note[:_NOTE])}\n" for note in (review.comparison.notes[:_NOTES] if review.comparison else ())),
        *_key_figures(review),
        "",
        "",
    ]
    return "\n".join(lines)


def _sentences(all_: tuple[str, ...], room: int) -> str:
    kept: list[str] = []
    for sentence in all_[:_SENTENCES]:
        if sum(map(len, kept)) + len(text(sentence)) > room:
            break
        kept.append(text(sentence))
    left = len(all_) - len(kept)
    if left:
        kept.append(f"*And {left} {'sentence' if left == 1 else 'sentences'} more, on the page.*")
    return " ".join(kept)


def _about(review: Review) -> str:
    parts = [f"{review.resources:,} resources"]
    if review.comparison:
        parts.append(f"against {code(review.comparison.ref)} ({code(review.comparison.commit)})")
    if review.comparison or review.real:
        parts.append(tally(shown(review)))
    if review.real:
        parts.append(f"{review.real.same:,} stay as they are, by Pulumi's own preview")
    return " · ".join(parts)


def _key_figures(review: Review) -> Iterator[str]:
    found = key_figures(review)
    changed = [("change", True)] if any(each.change for each in found) else []
    yield from table(
        [("", False), ("", True), *changed, ("", False)],
        (
            (
                each.label,
                f"**{each.value}** {each.beside}".strip(),
                *([each.change] if changed else []),
                text(each.note),
            )
            for each in found
        ),
    )


def _rules(review: Review) -> Iterator[str]:
    yield "### Rules and exemptions"
    yield ""
    rules = review.rules
    if rules is None:
        command = code(f"tenancy preview {review.stack} --policy workloads --policy clouds")
        yield f"No policy pack was asked. Ask both with {command}."
        return
    yield from (f"- ✗ **mandatory** {_rule(line)}" for line in rules.mandatory)
    held = f"{rules.held} {'rule holds' if rules.held == 1 else 'rules hold'} ({text(', '.join(rules.packs))})."
    yield f"- {held}"
    if rules.advice or rules.exempted:
        yield ""
        yield from folded(
            f"advice: {len(rules.advice)}, exemptions: {len(rules.exempted)}",
            (
                *(f"- **{text(line.level)}** {_rule(line)}{_OUTCOMES.get(line.outcome, '')}" for line in rules.advice),
                *(f"- **exempted** {_rule(line)}" for line in rules.exempted),
            ),
        )


_OUTCOMES: Final = {
    "unknown": " *(cannot be told before it is deployed)*",
    "mistake": " *(a mistake of the rule)*",
    "mended": " *(mended by the rule's remedy)*",
}


def _rule(line: RuleLine) -> str:
    return f"{code(line.rule)} {text(line.says)} *({text(line.place)}; {text(line.pack)})*"


def _losses(groups: Iterable[ChangeGroup]) -> Iterator[str]:
    lost = [(group, line) for group in groups for line in group.lines if line.action in {"delete", "replace"}]
    if lost:
        yield "### What goes"
        yield ""
        yield from (f"- **{text(group.name)}**: {_change(line)}" for group, line in lost)


def _changes(review: Review, groups: tuple[ChangeGroup, ...]) -> Iterator[str]:
    if not groups:
        return
    yield f"### What changes{', by the preview of Pulumi itself' if review.real else ''}"
    yield ""
    for group in groups:
        where = f" · {code(group.where)}" if group.where else ""
        lines = [found for line in group.lines for found in (f"- {_change(line)}", *_fields(line.fields))]
        yield from folded(f"<b>{_plain(group.name)}</b> {group.tally}{where}", lines)


def _plain(words: str) -> str:
    """Words within HTML."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _change(line: ChangeLine) -> str:
    remark = f" *({text(line.remark)})*" if line.remark else ""
    return f"**{DONE[line.action]}** {text(line.kind)} {', '.join(code(name) for name in line.names)}{remark}"


def _fields(fields: tuple[FieldChange, ...]) -> Iterator[str]:
    for field in fields[:_FIELDS]:
        sides = f"{code(field.before) or '*not there*'} → {code(field.after) or '*not there*'}"
        yield f"  - {code(field.path)}: {sides}{' **makes it anew**' if field.replaces else ''}"
    if len(fields) > _FIELDS:
        yield f"  - and {len(fields) - _FIELDS} fields more"


def _differences(review: Review, all_: Iterable[Table]) -> Iterator[str]:
    found = list(differences(all_)) if review.comparison and review.comparison.before else []
    if found:
        rows = ((text(each.about), each.table, each.column, text(each.was), text(each.now)) for each in found)
        heads = [("of", False), ("table", False), ("number", False), ("before", True), ("after", True)]
        yield from folded(f"<b>Numbers that changed</b> ({len(found)})", table(heads, rows))


def _promises(review: Review) -> Iterator[str]:
    most = {each.flavor: each.gpus.most for each in review.now.supply}
    rows = [
        (
            f"**{text(team.name)}**",
            text(each.flavor) + (" (gangs)" if each.scheduler == "Volcano" else ""),
            f"`{text_bar(each.guaranteed, each.limit, most.get(each.flavor, 0))}`",
            str(each.guaranteed),
            str(each.limit),
            str(most.get(each.flavor, 0)),
            "yes" if each.lends else "no",
        )
        for team in review.now.teams
        for each in team.holdings
    ]
    yield "### Who is promised what"
    yield ""
    yield from table(
        [
            ("team", False),
            ("flavor", False),
            ("█ guaranteed ▒ may borrow · the rest", False),
            ("guaranteed", True),
            ("limit", True),
            ("of", True),
            ("lends", False),
        ],
        rows,
    )


def _part(title: str, shown_: Table) -> Iterator[str]:
    if shown_.rows or shown_.gone:
        gone = ("", f"No more: {text('; '.join(shown_.gone))}.") if shown_.gone else ()
        yield from folded(f"<b>{title}</b>", (*figures(shown_), *gone))


def _costs(review: Review, shown_: Table, title: str) -> Iterator[str]:
    yield from folded(f"<b>{title}</b>", (*figures(shown_), "", text(review.price_note or "No price is known")))
