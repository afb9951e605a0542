"""What bindings give to their subjects: rules of roles, of aggregated ClusterRoles and of built-in ones.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from rule_engine import Resource, Stack, UnknownValueError, View, located_at
from workload_rules.objects import always, selects
from workload_rules.rbac import RBAC, ROLES, ApiObject, PolicyRule, is_aggregated, role_key, role_ref, rules

_TABLE: Final = Path(__file__).with_name("built_in_roles.yaml")


@cache
def built_in_roles() -> dict[str, ApiObject]:
    """The ClusterRoles that the API server creates, by their key."""
    rows: list[dict[str, Any]] = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    token = f"kubernetes:{RBAC}/v1:ClusterRole"
    roles = [
        ApiObject(Resource(token, name=row["metadata"]["name"]), View(row), "ClusterRole", is_built_in=True)
        for row in rows
    ]
    return {role_key(role): role for role in roles}


def rules_of(binding: ApiObject, stack: Stack) -> Iterator[PolicyRule]:
    """The rules that a binding gives to its subjects, also those of aggregated ClusterRoles.

    Of the ClusterRoles that an aggregated one selects, those of this stack and the built-in ones are known.

    Raises:
        UnknownValueError: the role is unknown, or neither in this stack nor built-in.
    """
    reference = role_ref(binding)
    roles = stack.matching(ROLES, always, (role_key, reference))
    roles += [built_in_roles()[reference]] if reference in built_in_roles() else []
    if not roles:
        raise UnknownValueError(("roleRef", "name"), f"references {reference}, which is not in this stack")
    for role in _closure(roles, stack):
        with located_at(role):
            yield from rules(role)
        if is_aggregated(role) and not _selected(role, stack):
            why = f"of {role.place} selects no ClusterRole of this stack"
            raise UnknownValueError((*role.view.path, "aggregationRule"), why)


def aggregating(role: ApiObject, stack: Stack) -> list[ApiObject]:
    """The ClusterRoles into which a ClusterRole is aggregated, directly or through others."""
    aggregated = stack.once("aggregated", lambda: [other for other, _ in _candidates(stack) if is_aggregated(other)])
    return [other for other in aggregated if other is not role and role in _members(other, stack)]


def _members(role: ApiObject, stack: Stack) -> frozenset[ApiObject]:
    return stack.once(("members", role), lambda: frozenset(_closure([role], stack)))


def _closure(roles: Iterable[ApiObject], stack: Stack) -> Iterable[ApiObject]:
    """Roles, and the ClusterRoles that are aggregated into them."""
    closure: dict[ApiObject, None] = {}
    pending = list(roles)
    while pending:
        role = pending.pop()
        if role not in closure:
            closure[role] = None
            pending += _selected(role, stack)
    return closure


def _selected(role: ApiObject, stack: Stack) -> list[ApiObject]:
    """The ClusterRoles that the aggregation rule of a role selects; none without such a rule."""

    def find() -> list[ApiObject]:
        selectors = role.view.items("aggregationRule", "clusterRoleSelectors")
        return [other for other, labels in _candidates(stack) if any(selects(one, labels) for one in selectors)]

    return stack.once(("selected", role), find) if is_aggregated(role) else []


def _candidates(stack: Stack) -> list[tuple[ApiObject, dict[str, str]]]:
    """The ClusterRoles of the stack and the built-in ones, with their labels; without those with unknown labels."""

    def find() -> list[tuple[ApiObject, dict[str, str]]]:
        in_stack = [pair for pair in stack.known_values(ROLES, _labels) if pair[0].kind == "ClusterRole"]
        return [*in_stack, *((role, _labels(role)) for role in built_in_roles().values())]

    return stack.once("ClusterRoles", find)


def _labels(role: ApiObject) -> dict[str, str]:
    return role.view.string_map("metadata", "labels")
