"""Answers about people, as text and JSON."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import RenderableType
from rich.markup import escape

from gpu_tenancy.access.live import Me
from gpu_tenancy.access.planned import shown
from gpu_tenancy.access.resources import VERBS, Resource
from gpu_tenancy.access.rules import WHOLE, Holder, Right
from gpu_tenancy.base import terminal
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.listing import PlainTable
from gpu_tenancy.model.plan.people import Subject
from gpu_tenancy.model.spec.people import Person

_EVERYWHERE: Final = "whole cluster"
_ALL: Final = "all resources"
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


def rights(found: Iterable[Right], known: Sequence[Resource]) -> PlainTable:
    """What somebody may do."""
    table = terminal.table("where~", "verbs~", "resources~")
    for right in found:
        verbs = "all verbs" if right.verbs == VERBS else ", ".join(right.verbs)
        everything = set(right.resources) == set(known)
        resources = _ALL if everything else ", ".join(map(str, right.resources))
        table.add_row(", ".join(map(place, right.places)), verbs, resources)
    return table


def rights_data(found: Iterable[Right]) -> list[Json]:
    """The same for programs."""
    return [
        {
            "namespaces": [place or None for place in right.places],
            "verbs": list(right.verbs),
            "resources": [str(resource) for resource in right.resources],
        }
        for right in found
    ]


def holder_lines(found: Iterable[Holder], names: Names) -> list[str]:
    """Who may do something and where, one line each, whatever the role is called."""
    return [f"{shown(one.subject, names)} in {place(one.place)}" for one in found]


def right_lines(found: Iterable[Right]) -> list[str]:
    """Rights, a line for each place and resource."""
    return [
        f"{', '.join(right.verbs)} {resource} in {place(where)}"
        for right in found
        for where in right.places
        for resource in right.resources
    ]


def login(me: Me, roles: Mapping[str, Sequence[str]], stack: str) -> Iterator[RenderableType]:
    """Who the caller is, and the roles that follow."""
    yield escape(f"user    {me.user}")
    yield escape(f"groups  {', '.join(me.groups) or 'none'}")
    yield ""
    if not roles:
        yield escape(f"no role of stack {stack}; ask for one of the groups above to be added to members of a team")
        return
    table = terminal.table("where", "role~")
    for where, found in roles.items():
        table.add_row(place(where), ", ".join(found))
    yield table


def login_data(me: Me, roles: Mapping[str, Sequence[str]]) -> Json:
    """The same for programs; the namespace of a role in the whole cluster is null."""
    rows: list[Json] = [{"namespace": where or None, "role": role} for where, found in roles.items() for role in found]
    return {"user": me.user, "groups": list(me.groups), "roles": rows}
