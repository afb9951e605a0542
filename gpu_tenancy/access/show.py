"""Answers about people, as text and JSON."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from gpu_tenancy.access.planned import shown
from gpu_tenancy.access.rules import WHOLE, Holder
from gpu_tenancy.base import terminal
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.output import PlainTable
from gpu_tenancy.model.plan.people import Subject
from gpu_tenancy.model.spec.people import Person

_EVERYWHERE: Final = "whole cluster"
Names = Mapping[Subject, Person]


def place(name: str) -> str:
    """A place in words."""
    return _EVERYWHERE if name == WHOLE else name


def holders(found: Iterable[Holder], names: Names) -> PlainTable:
    """Who may do something: one row for each person and role."""
    rows: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for holder in found:
        rows[shown(holder.subject, names), holder.role].append(place(holder.place))
    table = terminal.table("who", "where~", "role")
    for (who, role), places in rows.items():
        table.add_row(who, ", ".join(places), role)
    return table


def holders_data(found: Iterable[Holder], names: Names) -> list[Json]:
    """The same for programs; the namespace of a right in the whole cluster is null."""
    return [
        {"who": shown(one.subject, names), "role": one.role, "namespace": one.place or None, "kind": one.subject.kind}
        for one in found
    ]


def holder_lines(found: Iterable[Holder], names: Names) -> list[str]:
    """Who may do something and where, one line each, whatever the role is called."""
    return [f"{shown(one.subject, names)} in {place(one.place)}" for one in found]
