"""Rules for what roles of tenants grant."""

from collections.abc import Callable, Iterator
from typing import Final

from pydantic import Field

from rule_engine import ADVICE, AnyRule, Doubts, Rule, Severity, Stack
from workload_rules.administrators import Administered, Reviewed
from workload_rules.aggregation import aggregating
from workload_rules.objects import always
from workload_rules.rbac import (
    BINDINGS,
    PRACTICES,
    ROLES,
    ROLES_AND_BINDINGS,
    ApiObject,
    PolicyRule,
    role_key,
    role_ref,
    rules,
)
from workload_rules.rights import forbidden

_USERS_ROLES: Final = ("view", "edit", "admin")
"""Built-in ClusterRoles for users of namespaces, into which operators aggregate their own."""


def _recipient(role: ApiObject, settings: Administered, stack: Stack) -> str:
    """By what a role is a tenant's, as messages show it; empty if it is not."""
    above = aggregating(role, stack) if role.kind == "ClusterRole" else []
    built_in = {other.name for other in above if other.is_built_in}
    for name in _USERS_ROLES:
        if name in built_in:
            return f"it is aggregated to ClusterRole {name}"
    is_bound = False
    for key in (role_key(role), *(role_key(other) for other in above)):
        is_bound = is_bound or stack.first(BINDINGS, always, (role_ref, key)) is not None
        binding = stack.first(BINDINGS, lambda bound: any(settings.tenants(bound)), (role_ref, key))
        if binding is not None:
            return f"{binding.place} gives it to {next(settings.tenants(binding)).label}"
    is_open = role.kind == "Role" and not is_bound and settings.tenant(role.namespace)
    return "its namespace is a tenant's" if is_open else ""


def _of_tenants(
    role: ApiObject, settings: Administered, stack: Stack, check: Callable[[PolicyRule], str], fix: str
) -> Iterator[str]:
    """What a check finds in the rules of a role, if the role is a tenant's.

    Args:
        role: the role.
        settings: which subjects are tenants'.
        stack: for its bindings.
        check: takes a rule, and returns what is wrong with it; empty if it passes.
        fix: how to fix it.
    """
    doubts = Doubts()
    problems: list[str] = []
    for rule in rules(role):
        with doubts.collected():
            if problem := check(rule):
                problems.append(f"{rule.label} {problem}")
    recipient = _recipient(role, settings, stack) if problems or doubts.errors else ""
    if recipient:
        for problem in problems:
            yield f"{problem}, and {recipient}; {fix}"
        doubts.raise_first()


_FIELDS: Final = ("apiGroups", "resources", "verbs")


def _wildcard(rule: PolicyRule) -> str:
    fields = [field for field in _FIELDS if any("*" in text for text in rule.values(field))]
    fields += ["nonResourceURLs"] if not {"*", "/*"}.isdisjoint(rule.values("nonResourceURLs")) else []
    return f"has a wildcard in {', '.join(fields)}" if fields else ""


WILDCARDS: Final = Rule(
    name="no-wildcard-roles",
    title="Roles of tenants must not have wildcards.",
    rationale=(
        "A wildcard also grants what later versions and operators add: escalate and impersonate, tokens of service"
        " accounts, new kinds of objects."
    ),
    fix="List API groups, resources and verbs.",
    link=PRACTICES,
    severity=Severity.HIGH,
    level=ADVICE,
    on=ROLES,
    check=lambda role, settings, stack: _of_tenants(role, settings, stack, _wildcard, "list what is needed"),
    settings=Administered,
    whole=True,
)


class Bounds(Reviewed):
    """Rights that tenants can have."""

    allowed: list[str] = Field(
        [],
        description=(
            "Resources on which tenants may have these rights, as patterns of NAME.GROUP/SUBRESOURCE:"
            " `networkpolicies.networking.k8s.io`, `services/proxy`."
        ),
    )


def _beyond(role: ApiObject, settings: Bounds, stack: Stack) -> Iterator[str]:
    if role.kind.endswith("Binding"):
        yield from _binds_beyond(role, settings, stack)
        return

    def check(rule: PolicyRule) -> str:
        rights = "" if rule.is_everything else forbidden([rule], settings.allowed)
        return f"grants {rights}" if rights else ""

    yield from _of_tenants(role, settings, stack, check, "remove it, or list the resources under `allowed`")


def _binds_beyond(binding: ApiObject, settings: Bounds, stack: Stack) -> Iterator[str]:
    """Bindings of roles that are not in this stack."""

    def matches(rule: PolicyRule) -> bool:
        return rule.role.is_built_in and not rule.is_everything and bool(forbidden([rule], settings.allowed))

    if given := settings.given(binding, stack, "tenant-roles-bounded", matches):
        subject = next(settings.tenants(binding))
        yield (
            f"binds {role_ref(binding)} to {subject.label}, which grants {forbidden(given, settings.allowed)}; bind a"
            " role without these rights, or list the resources under `allowed`"
        )


BOUNDS: Final = Rule(
    name="tenant-roles-bounded",
    title="Roles of tenants must not grant what would bypass quotas, queues and guards.",
    rationale=(
        "Somebody who can act as another account, change roles or quotas, or enter pods by the API server is bound by"
        " nothing else that the rules require."
    ),
    fix="Remove the rights from the role, or bind a role of your own in place of `edit` and `admin`.",
    link=PRACTICES,
    severity=Severity.HIGH,
    level=ADVICE,
    on=ROLES_AND_BINDINGS,
    check=_beyond,
    settings=Bounds,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (WILDCARDS, BOUNDS)
