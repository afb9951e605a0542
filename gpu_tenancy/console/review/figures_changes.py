"""What changes, by whom it concerns: those that lose something first."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.console.review.changes import ACTIONS, Action, Change, FieldChange
from gpu_tenancy.console.review.review import Review

DONE: Final[dict[Action, str]] = {
    "delete": "deleted",
    "replace": "replaced",
    "create": "created",
    "update": "changed",
}


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One resource that changes, or several of a kind that come or go.

    Attributes:
        remark: where the files and Pulumi's own preview differ.
    """

    action: Action
    kind: str
    names: tuple[str, ...]
    fields: tuple[FieldChange, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """All changes that concern one team, pool or part of the platform.

    Attributes:
        where: its place in the stack's file; empty where that is not known.
        team: its name, where it is a team.
        loses: something of it is deleted or replaced.
    """

    name: str
    where: str
    tally: str
    lines: tuple[ChangeLine, ...]
    team: str
    loses: bool


def tally(changes: Iterable[Change]) -> str:
    """`1 deleted, 6 changed`, the worst first; `nothing changes`."""
    actions = [each.action for each in changes]
    parts = [f"{actions.count(action)} {DONE[action]}" for action in ACTIONS if action in actions]
    return ", ".join(parts) or "nothing changes"


def shown(review: Review) -> tuple[Change, ...]:
    """The changes that count: what Pulumi's own preview says where there is one, else what the files say."""
    return review.real.changes if review.real else review.changes


def change_groups(review: Review) -> tuple[ChangeGroup, ...]:
    """The changes by group: where something is deleted or replaced first, then by name.

    Where Pulumi's own preview was given, what it says counts, and what the files alone say is kept beside it.
    """
    overlaid = _overlaid(review)
    names = dict.fromkeys(change.group for change, _ in overlaid)
    worst = {
        name: min(ACTIONS.index(change.action) for change, _ in overlaid if change.group == name) for name in names
    }
    ordered = sorted(names, key=lambda name: (min(worst[name], ACTIONS.index("create")), name))
    return tuple(
        _group(name, [each for each in overlaid if each[0].group == name], review.where.get(name, ""))
        for name in ordered
    )


def _overlaid(review: Review) -> list[tuple[Change, str]]:
    if review.real is None:
        return [(each, "") for each in review.changes]
    real = {each.urn: each for each in review.real.changes}
    files = {each.urn: each for each in review.changes}
    found = [(each, _remark(each, files.get(each.urn), review)) for each in review.real.changes]
    return found + [(each, "Pulumi's preview leaves it as it is") for each in review.changes if each.urn not in real]


def _remark(real: Change, files: Change | None, review: Review) -> str:
    if review.comparison is None:
        return ""
    if files is None:
        return "seen by Pulumi's preview alone: what is deployed is not the base"
    return "" if files.action == real.action else f"by the files alone: {DONE[files.action]}"


def _group(name: str, overlaid: list[tuple[Change, str]], where: str) -> ChangeGroup:
    lines: dict[tuple[int, str, str], ChangeLine] = {}
    single: list[tuple[tuple[int, str, str], ChangeLine]] = []
    for change, remark in overlaid:
        order = ACTIONS.index(change.action)
        if change.fields:
            line = ChangeLine(change.action, change.kind, (change.name,), change.fields, remark)
            single.append(((order, change.kind, change.name), line))
            continue
        key = (order, change.kind, remark)
        names = (*lines[key].names, change.name) if key in lines else (change.name,)
        lines[key] = ChangeLine(change.action, change.kind, names, (), remark)
    ordered = sorted([*lines.items(), *single], key=lambda each: each[0])
    team = name.removeprefix("team ") if name.startswith("team ") else ""
    return ChangeGroup(
        name,
        where,
        tally(change for change, _ in overlaid),
        tuple(each for _, each in ordered),
        team,
        loses=any(change.action in {"delete", "replace"} for change, _ in overlaid),
    )
