"""Roles and bindings as a stack plans them, and the names that it gives to people."""

from collections.abc import Iterable, Iterator, Mapping

from gpu_tenancy.access.rules import ALL, Grant, Rule
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.model.catalogue import roles as catalogue
from gpu_tenancy.model.plan.people import ADMIN, PREFIX, Subject, access, bindings, resolved, rules, subject
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.people import Person, person


def grants(tree: Tree) -> tuple[Grant, ...]:
    """All roles that a stack gives to people, in the cluster and in the namespaces of teams."""
    return tuple(_grants(tree))


def _grants(tree: Tree) -> Iterator[Grant]:
    stack, planned = tree.stack, access(tree)
    admins = {*(planned.admins if planned else ()), *(subject(who) for who in creators(stack))}
    yield from (Grant(who, ADMIN, "", (ALL,)) for who in sorted(admins))
    if planned is None:
        return
    yield from _role(tree, "auditor", "", planned.auditors)
    yield from _role(tree, "member", "", planned.members)
    for team in stack.teams:
        for binding in bindings(tree, team):
            yield from _role(tree, binding.role, team, binding.subjects)


def _role(tree: Tree, role: str, namespace: str, found: Iterable[Subject]) -> Iterator[Grant]:
    own = tuple(rule_of(rule) for rule in rules(tree, role))
    yield from (Grant(who, f"{PREFIX}{role}", namespace, own) for who in found)


def rule_of(rule: catalogue.Rule) -> Rule:
    """A rule of the catalogue as the API server has it."""
    return Rule(frozenset(rule.groups), frozenset(rule.resources), frozenset(rule.verbs))


def creators(stack: Stack) -> tuple[Person, ...]:
    """Administrators of a created cluster (`cluster.create.admins`), which the cloud or a binding makes so."""
    entries: list[str] = getattr(stack.cluster.creation, "admins", [])
    return tuple(person(entry) or Person("group", entry) for entry in entries)


def people(tree: Tree) -> Mapping[Subject, Person]:
    """Everybody of a stack, as the API server knows them."""
    stack = tree.stack
    found = {
        *resolved(stack, [*stack.people.admins, *stack.people.auditors, *stack.people.names.values()]),
        *creators(stack),
        *(who for team in stack.teams for binding in bindings(tree, team) for who in binding.people),
    }
    return {subject(who): who for who in sorted(found)}


def shown(who: Subject, names: Mapping[Subject, Person]) -> str:
    """A subject as a stack writes it."""
    if who in names:
        return str(names[who])
    name = f"{who.namespace}/{who.name}" if who.namespace else who.name
    return f"{who.kind.lower()}:{name}"


def named(text: str, stack: Stack, names: Iterable[Person], place: str) -> Person:
    """A person that the user names.

    Raises:
        ConsoleError: it is none of these.
    """
    found = person(stack.people.names.get(text, text))
    if found is None or not found.name or (found.kind == "serviceaccount" and not all(found.name.partition("/"))):
        hint = nearest(text, [*stack.people.names, *map(str, names)])
        fix = f"write user:NAME, group:NAME, serviceaccount:NAMESPACE/NAME, an ARN or a name of people.names ({hint})"
        raise ConsoleError(f"{place}: '{text}' is not a person", fix)
    return found
