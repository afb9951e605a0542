"""Changes by group; groups with deletions or replacements come first."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.review.changes import ACTIONS, Action, Change, FieldChange
from gpu_tenancy.review.review import Review

DONE: Final[dict[Action, str]] = {
    "delete": "deleted",
    "replace": "replaced",
    "create": "created",
    "update": "updated",
}


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One updated resource, or several of a kind that are created or deleted.

    Attributes:
        remark: whether the old resource is deleted first, and the difference between the files and Pulumi's preview.
    """

    action: Action
    kind: str
    names: tuple[str, ...]
    fields: tuple[FieldChange, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """All changes of one team, pool or part of the platform.

    Attributes:
        where: file and line in the stack; empty where unknown.
        team: name of the team; empty for other groups.
        loses: whether a resource is deleted or replaced.
    """

    name: str
    where: str
    tally: str
    lines: tuple[ChangeLine, ...]
    team: str
    loses: bool


def tally(changes: Iterable[Change]) -> str:
    """`1 deleted, 6 updated`, deletions first; `no changes`."""
    actions = [change.action for change in changes]
    parts = [f"{actions.count(action)} {DONE[action]}" for action in ACTIONS if action in actions]
    return ", ".join(parts) or "no changes"


def shown(review: Review) -> tuple[Change, ...]:
    """Changes from Pulumi's preview where there is one, else from the files."""
    return review.real.changes if review.real else review.changes


def change_groups(review: Review) -> tuple[ChangeGroup, ...]:
    """Changes by group: those with deletions or replacements first, then by name.

    Changes of Pulumi's preview take precedence; a remark tells where the files differ.
    """
    overlaid = _overlaid(review)
    names = dict.fromkeys(change.group for change, _ in overlaid)
    worst = {
        name: min(ACTIONS.index(change.action) for change, _ in overlaid if change.group == name) for name in names
    }
    ordered = sorted(names, key=lambda name: (min(worst[name], ACTIONS.index("create")), name))
    return tuple(
        _group(name, [pair for pair in overlaid if pair[0].group == name], review.where.get(name, ""))
        for name in ordered
    )


def _overlaid(review: Review) -> list[tuple[Change, str]]:
    if review.real is None:
        return [(change, "") for change in review.changes]
    real = {change.urn for change in review.real.changes}
    files = {change.urn: change for change in review.changes}
    previewed = [(change, _remark(change, files.get(change.urn), review)) for change in review.real.changes]
    unchanged = [change for change in review.changes if change.urn not in real]
    return previewed + [(change, "unchanged in the Pulumi preview") for change in unchanged]


def _remark(real: Change, files: Change | None, review: Review) -> str:
    if review.comparison is None:
        return ""
    if files is None:
        return "only in the Pulumi preview: the deployed state differs from the base"
    return "" if files.action == real.action else f"in the files: {DONE[files.action]}"


def _group(name: str, overlaid: list[tuple[Change, str]], where: str) -> ChangeGroup:
    lines: dict[tuple[int, str, str], ChangeLine] = {}
    single: list[tuple[tuple[int, str, str], ChangeLine]] = []
    for change, difference in overlaid:
        order = ACTIONS.index(change.action)
        remark = ", ".join(filter(None, ("deleted first" if change.effect.deleted_first else "", difference)))
        if change.fields:
            line = ChangeLine(change.action, change.kind, (change.name,), change.fields, remark)
            single.append(((order, change.kind, change.name), line))
            continue
        key = (order, change.kind, remark)
        names = (*lines[key].names, change.name) if key in lines else (change.name,)
        lines[key] = ChangeLine(change.action, change.kind, names, (), remark)
    ordered = sorted([*lines.items(), *single], key=lambda item: item[0])
    team = name.removeprefix("team ") if name.startswith("team ") else ""
    return ChangeGroup(
        name,
        where,
        tally(change for change, _ in overlaid),
        tuple(line for _, line in ordered),
        team,
        loses=any(change.action in {"delete", "replace"} for change, _ in overlaid),
    )
