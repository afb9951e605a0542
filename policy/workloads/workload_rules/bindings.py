"""What bindings give, and to whom: rules of roles, of aggregated and of built-in ones; subjects that are tenants'.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import Field

from rule_engine import Resource, Stack, UnknownValueError, UnknownValues, View, located_at
from workload_rules.objects import always, matches_any, selects
from workload_rules.pods import Tenants
from workload_rules.rbac import (
    RBAC,
    ROLES,
    ApiObject,
    BoundSubject,
    PolicyRule,
    is_aggregated,
    role_key,
    role_ref,
    rules,
    subject_of,
)

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


class Administered(Tenants):
    """Selects the subjects that are tenants'."""

    admins: list[str] = Field(
        ["Group:system:masters"],
        description=(
            "Subjects that are not tenants, as patterns of KIND:NAME: `Group:ml-platform`, `User:*@ops.example.com`,"
            " `ServiceAccount:argocd/*`. Service accounts of the namespaces in `system` and `platform` are none either."
        ),
    )

    def tenants(self, binding: ApiObject) -> Iterator[BoundSubject]:
        """The subjects of a binding that are tenants', known ones first.

        Users and groups in a RoleBinding of a system namespace are taken for the platform team's.

        Raises:
            UnknownValueError: a further subject is unknown.
        """
        unknown_values = UnknownValues()
        subjects: list[BoundSubject] = []
        for view in binding.view.items("subjects"):
            with unknown_values.collected():
                subject = subject_of(view)
                if self._is_tenant(subject, binding):
                    subjects.append(subject)
        yield from subjects
        unknown_values.raise_first()

    def _is_tenant(self, subject: BoundSubject, binding: ApiObject) -> bool:
        if matches_any(subject.id, self.admins):
            return False
        if subject.everybody:
            return True
        if subject.home:
            return self.tenant(subject.home)
        return not binding.namespace or self.tenant(binding.namespace)


class Reviewed(Administered):
    """Selects the subjects that are tenants', and roles that are not evaluated."""

    reviewed: list[str] = Field(
        [],
        description=(
            "ClusterRoles that are created outside this stack and that you have reviewed, as patterns of names."
            " Those that the API server creates are known."
        ),
    )

    def given(
        self, binding: ApiObject, stack: Stack, rule_name: str, matches: Callable[[PolicyRule], bool]
    ) -> list[PolicyRule]:
        """The rules that match among those that a binding gives to tenants.

        Args:
            binding: the binding.
            stack: for its role, of which the matching rules are found once for all bindings.
            rule_name: the policy rule with these settings.
            matches: whether a rule of a role matters.

        Raises:
            UnknownValueError: none is known to match, and an unknown one can; or whether a tenant has it is unknown.
        """
        binding.view.has("subjects")  # noted, so that a patch of them is about what the object's role gives
        key = (rule_name, role_ref(binding))
        matching, unknown_values = stack.once(key, lambda: self._matching(binding, stack, matches))
        if not (matching or unknown_values.errors) or not any(self.tenants(binding)):
            return []
        if not matching:
            unknown_values.raise_first()
        return matching

    def _matching(
        self, binding: ApiObject, stack: Stack, matches: Callable[[PolicyRule], bool]
    ) -> tuple[list[PolicyRule], UnknownValues]:
        unknown_values = UnknownValues()
        matching: list[PolicyRule] = []
        with unknown_values.collected():
            for rule in self._rules_of(binding, stack):
                with unknown_values.collected(), located_at(rule.role):
                    if matches(rule):
                        matching.append(rule)
        return matching, unknown_values

    def _rules_of(self, binding: ApiObject, stack: Stack) -> Iterator[PolicyRule]:
        try:
            yield from rules_of(binding, stack)
        except UnknownValueError:
            if not matches_any(binding.view.text("roleRef", "name"), self.reviewed):
                raise
