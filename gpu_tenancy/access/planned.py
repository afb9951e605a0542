"""Planned roles and bindings of a stack's people, and answers about them as text and JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from gpu_tenancy.access.rules import ALL, EVERYBODY, WHOLE, Grant, Holder, Rule
from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.output import PlainTable
from gpu_tenancy.base.problems import nearest, unknown
from gpu_tenancy.cluster.contexts import default_stack
from gpu_tenancy.model.plan.people import ADMIN, PREFIX, Subject, access, bindings, resolved, rules, subject
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import declared, project_folder
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.people import Person, person

Names: TypeAlias = Mapping[Subject, Person]  # people of a stack


def grants(tree: Tree) -> tuple[Grant, ...]:
    """All roles that a stack gives to people, in the cluster and in the namespaces of teams."""
    stack, planned = tree.stack, access(tree)
    admins = {*(planned.admins if planned else ()), *(subject(who) for who in creators(stack))}
    found = [Grant(who, ADMIN, "", (ALL,)) for who in sorted(admins)]

    def add(role: str, namespace: str, subjects: Iterable[Subject]) -> None:
        own = tuple(Rule.of(rule) for rule in rules(tree, role))
        found.extend(Grant(who, f"{PREFIX}{role}", namespace, own) for who in subjects)

    if planned:
        add("auditor", "", planned.auditors)
        add("member", "", planned.members)
        for team in stack.teams:
            for binding in bindings(tree, team):
                add(binding.role, team, binding.subjects)
    return tuple(found)


def creators(stack: Stack) -> tuple[Person, ...]:
    """Administrators of a created cluster (`cluster.create.admins`), by the cloud or a binding."""
    entries: list[str] = getattr(stack.cluster.creation, "admins", [])
    return tuple(person(entry) or Person("group", entry) for entry in entries)


def people(tree: Tree) -> Names:
    """All people of a stack, by the API server's subjects."""
    stack = tree.stack
    found = {
        *resolved(stack.people.names, [*stack.people.admins, *stack.people.auditors, *stack.people.names.values()]),
        *creators(stack),
        *(who for team in stack.teams for binding in bindings(tree, team) for who in binding.people),
    }
    return {subject(who): who for who in sorted(found)}


def shown(who: Subject, names: Names) -> str:
    """A subject in the notation of stacks."""
    if who in names:
        return str(names[who])
    name = f"{who.namespace}/{who.name}" if who.namespace else who.name
    return f"{who.kind.lower()}:{name}"


def named(text: str, stack: Stack, names: Iterable[Person], place: str) -> Person:
    """A person that the user names. Raises ConsoleError if the person is not in `names`."""
    found = person(stack.people.names.get(text, text))
    if found is None or not found.name or (found.kind == "serviceaccount" and not all(found.name.partition("/"))):
        hint = nearest(text, [*stack.people.names, *map(str, names)])
        fix = f"write user:NAME, group:NAME, serviceaccount:NAMESPACE/NAME, an ARN or a name of people.names ({hint})"
        raise ConsoleError(f"{place}: '{text}' is not a person", fix)
    return found


@dataclass(frozen=True)
class Access:
    """The people of a stack and their access."""

    name: str
    tree: Tree

    @property
    def stack(self) -> Stack:
        """The declared stack."""
        return self.tree.stack

    @cached_property
    def grants(self) -> tuple[Grant, ...]:
        """All roles that the stack gives."""
        return grants(self.tree)

    @cached_property
    def names(self) -> Names:
        """All people of the stack."""
        return people(self.tree)

    def of_stack(self, holders: Iterable[Holder]) -> frozenset[Holder]:
        """Holders that are people of the stack."""
        return frozenset(holder for holder in holders if holder.subject in self.names)

    def comparable(self, holders: Iterable[Holder]) -> tuple[Holder, ...]:
        """Holders whose names in the cluster the stack knows."""
        return tuple(holder for holder in holders if not self.stack.cluster.is_late(holder.subject.name))

    def tenant(self, who: Subject) -> bool:
        """Whether a subject is not part of the control plane or of an operator."""
        if who in self.names or who.name in EVERYBODY:
            return True
        if who.kind == "ServiceAccount":
            return who.namespace in self.stack.teams
        return not who.name.startswith("system:")

    def namespaces(self, namespace: str | None) -> tuple[str, ...]:
        """The namespaces of a question. Raises ConsoleError if no team has the namespace."""
        if namespace is not None and namespace not in self.stack.teams:
            rule, fix = unknown("team", namespace, self.stack.teams)
            raise ConsoleError(f"stack {self.name}: {rule}", fix)
        return (namespace,) if namespace else tuple(self.stack.teams)


def access_of(stack: str | None, team: str | None, project: Path | None, place: terminal.Place) -> Access:
    """The access that a stack plans; without a name, of the `default_stack`.

    Raises ConsoleError if the stack does not exist, or several could be meant, StackError if its file is invalid.
    """
    folder = project_folder(project)
    name = stack or default_stack(team, folder, place)
    return Access(name, Tree(declared(name, folder).stack))


def _place_text(name: str) -> str:
    return "whole cluster" if name == WHOLE else name


def holders(found: Iterable[Holder], names: Names) -> PlainTable:
    """Table of holders: one row for each person and role."""
    rows = grouped(((shown(holder.subject, names), holder.role), _place_text(holder.place)) for holder in found)
    table = terminal.table("who", "where~", "role")
    for (who, role), places in rows.items():
        table.add_row(who, ", ".join(places), role)
    return table


def holders_data(found: Iterable[Holder], names: Names) -> list[Json]:
    """Holders for JSON; the namespace of a right in the whole cluster is null."""
    return [
        {"who": shown(one.subject, names), "role": one.role, "namespace": one.place or None, "kind": one.subject.kind}
        for one in found
    ]


def holder_lines(found: Iterable[Holder], names: Names) -> list[str]:
    """Holders and places, one line each, without roles."""
    return [f"{shown(one.subject, names)} in {_place_text(one.place)}" for one in found]
