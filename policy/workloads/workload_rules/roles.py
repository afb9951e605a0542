"""Rules for the rights that roles of tenants grant, and for bindings of roles."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import Field

from rule_engine import Resource, Stack, UnknownValues, read_table, rule
from workload_rules import rbac
from workload_rules.objects import FACTS, always, matches_any, name
from workload_rules.pods import Tenants

FORBIDDEN: Final[Mapping[str, list[str]]] = {
    resource: verbs
    for group in read_table(Path(__file__).with_name("forbidden_rights.yaml"))
    for resource, verbs in group.items()
}
"""Verbs by resource, as `NAME.GROUP/SUBRESOURCE`."""
_LISTED: Final = 4  # maximum number of resources in a message
_USERS_ROLES: Final = ("view", "edit", "admin")
"""Built-in ClusterRoles for users of namespaces, into which operators aggregate their own."""


def _recipient(role: Resource, settings: rbac.Administered, stack: Stack) -> str:
    """By what a role is a tenant's, as messages show it; empty if it is not."""
    above = rbac.aggregating(role, stack) if role.kind == "ClusterRole" else []
    above_names = {name(other) for other in above}
    for user_role in _USERS_ROLES:
        if user_role in above_names:
            return f"it is aggregated to ClusterRole {user_role}"
    for key in (rbac.role_key(role), *(rbac.role_key(other) for other in above)):
        binding = stack.first(rbac.BINDINGS, lambda bound: any(settings.tenants(bound)), (rbac.role_ref, key))
        if binding is not None:
            return f"{binding.place} gives it to {next(settings.tenants(binding)).label}"
    if role.kind != "Role" or not settings.tenant(rbac.home_of(role)):
        return ""
    is_bound = stack.first(rbac.BINDINGS, always, (rbac.role_ref, rbac.role_key(role))) is not None
    return "" if is_bound else "its namespace is a tenant's"


def _of_tenants(
    role: Resource, settings: rbac.Administered, stack: Stack, check: Callable[[rbac.PolicyRule], str], fix: str
) -> Iterator[str]:
    """The problems of the rules of a tenant's role; `check` returns one rule's problem, or nothing."""
    unknown_values = UnknownValues()
    problems: list[str] = []
    for granting in rbac.rules(role):
        with unknown_values.collected():
            if problem := check(granting):
                problems.append(f"{granting.label} {problem}")
    recipient = _recipient(role, settings, stack) if problems or unknown_values.errors else ""
    if recipient:
        yield from (f"{problem}, and {recipient}; {fix}" for problem in problems)
        unknown_values.raise_first()


def _wildcard(rule: rbac.PolicyRule) -> str:
    fields = [field for field in ("apiGroups", "resources", "verbs") if any("*" in text for text in rule.values(field))]
    fields += ["nonResourceURLs"] if not {"*", "/*"}.isdisjoint(rule.values("nonResourceURLs")) else []
    return f"has a wildcard in {', '.join(fields)}" if fields else ""


@rule("no-wildcard-roles", rbac.ROLES)
def no_wildcard_roles(role: Resource, settings: rbac.Administered, stack: Stack) -> Iterator[str]:
    """Roles of tenants must not have wildcards."""
    return _of_tenants(role, settings, stack, _wildcard, "list what is needed")


def _forbidden(rules: Sequence[rbac.PolicyRule], allowed: list[str]) -> str:
    """The forbidden rights that rules of a role grant, as messages show them; `allowed` are patterns of resources."""
    phrases: list[str] = []
    for right, verbs in FORBIDDEN.items():
        if matches_any(right, allowed):
            continue
        full, slash, subresource = right.partition("/")
        resource, _, group = full.partition(".")
        covering = [rule for rule in rules if rule.covers(group, f"{resource}{slash}{subresource}")]
        if granted := [verb for verb in verbs if any(rule.grants(verb) for rule in covering)]:
            phrases.append(f"{', '.join(granted)} on {right}")
    more = [f"{len(phrases) - _LISTED} more"] if len(phrases) > _LISTED else []
    return "; ".join([*phrases[:_LISTED], *more])


class _Bounds(rbac.Reviewed):
    allowed: list[str] = Field([])
    """Resources on which tenants may have these rights, as patterns of NAME.GROUP/SUBRESOURCE:
    `networkpolicies.networking.k8s.io`, `services/proxy`."""


@rule("tenant-roles-bounded", rbac.ROLES_AND_BINDINGS)
def tenant_roles_bounded(role: Resource, settings: _Bounds, stack: Stack) -> Iterator[str]:
    """Roles of tenants must not grant what would bypass quotas, queues and guards."""

    def check(rule: rbac.PolicyRule) -> str:
        rights = "" if rule.is_everything else _forbidden([rule], settings.allowed)
        return f"grants {rights}" if rights else ""

    def of_built_in(rule: rbac.PolicyRule) -> bool:
        return rbac.is_built_in(rule.role) and bool(check(rule))

    if not role.kind.endswith("Binding"):
        yield from _of_tenants(role, settings, stack, check, "remove it, or list the resources under `allowed`")
    elif given := settings.given(role, stack, "tenant-roles-bounded", of_built_in):
        subject = next(settings.tenants(role))
        yield (
            f"binds {rbac.role_ref(role)} to {subject.label}, which grants {_forbidden(given, settings.allowed)}; bind"
            " a role without these rights, or list the resources under `allowed`"
        )


@rule("no-cluster-admin", rbac.BINDINGS)
def no_cluster_admin(binding: Resource, settings: rbac.Reviewed, stack: Stack) -> Iterator[str]:
    """Only listed administrators must be bound to cluster-admin, or to a role that equals it."""
    if settings.given(binding, stack, "no-cluster-admin", lambda rule: rule.is_everything):
        for subject in settings.tenants(binding):
            yield (
                f"binds {rbac.role_ref(binding)}, which can do everything, to {subject.label}; bind a role with the"
                f" required rights, or list {subject.id} under `admins`"
            )


class _Everybody(Tenants):
    roles: list[str] = Field(FACTS["roles_of_everybody"])
    """ClusterRoles that may be bound to everybody, as patterns. Default: those that the API server binds itself."""


@rule("no-binding-to-everybody", rbac.BINDINGS)
def no_binding_to_everybody(binding: Resource, settings: _Everybody) -> Iterator[str]:
    """Roles must not be bound to everybody, nor to all service accounts of another namespace."""
    unknown_values = UnknownValues()
    for view in binding.props.items("subjects"):
        with unknown_values.collected():
            subject = rbac.subject_of(view)
            everybody = subject.everybody
            if subject.is_group_of_accounts and subject.home != rbac.home_of(binding) and settings.tenant(subject.home):
                everybody = f"all service accounts of namespace {subject.home}"
            if everybody and not matches_any(binding.props.text("roleRef", "name"), settings.roles):
                yield f"binds {rbac.role_ref(binding)} to {subject.label}: {everybody}; name the subjects that need it"
    unknown_values.raise_first()


def _reads_secrets(rule: rbac.PolicyRule) -> bool:
    """Whether a rule grants reading Secrets whose names it does not list; for all rights, see no-cluster-admin."""
    can_read = any(rule.grants(verb) for verb in ("get", "list", "watch"))
    return can_read and rule.covers("", "secrets") and not rule.values("resourceNames") and not rule.is_everything


@rule("no-cluster-wide-secrets", rbac.BINDINGS)
def no_cluster_wide_secrets(binding: Resource, settings: rbac.Reviewed, stack: Stack) -> Iterator[str]:
    """Only listed subjects must be able to read the Secrets of all namespaces."""
    if binding.kind != "ClusterRoleBinding":
        return
    if settings.given(binding, stack, "no-cluster-wide-secrets", _reads_secrets):
        for subject in settings.tenants(binding):
            yield (
                f"gives {subject.label} {rbac.role_ref(binding)}, which reads the Secrets of all namespaces; create a"
                f" RoleBinding in each namespace that needs it, or list {subject.id} under `admins`"
            )
