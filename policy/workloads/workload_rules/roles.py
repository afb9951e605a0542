"""Rules for what roles of tenants grant, and for bindings of roles."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import Field

from rule_engine import Stack, UnknownValues, rule
from workload_rules.objects import always, matches_any
from workload_rules.pods import Tenants
from workload_rules.rbac import (
    BINDINGS,
    ROLES,
    ROLES_AND_BINDINGS,
    Administered,
    ApiObject,
    PolicyRule,
    Reviewed,
    aggregating,
    role_key,
    role_ref,
    rules,
    subject_of,
)

_CHANGES: Final = ("create", "delete", "deletecollection", "patch", "update")
_MAKING: Final = ("create", "delete", "deletecollection")
_PROXY: Final = ("create", "delete", "get", "patch", "update")

FORBIDDEN: Final[Mapping[str, tuple[str, ...]]] = {
    # Become somebody else, or give rights that one does not have.
    "users": ("impersonate",),
    "groups": ("impersonate",),
    "serviceaccounts": ("impersonate",),
    "serviceaccounts/token": ("create",),
    "certificatesigningrequests.certificates.k8s.io/approval": ("patch", "update"),
    "roles.rbac.authorization.k8s.io": (*_CHANGES, "bind", "escalate"),
    "clusterroles.rbac.authorization.k8s.io": (*_CHANGES, "bind", "escalate"),
    "rolebindings.rbac.authorization.k8s.io": _CHANGES,
    "clusterrolebindings.rbac.authorization.k8s.io": _CHANGES,
    # Enter pods and nodes without a request that admission policies see as one.
    "pods/ephemeralcontainers": ("patch", "update"),
    "pods/binding": ("create",),
    "pods/proxy": _PROXY,
    "services/proxy": _PROXY,
    "nodes/proxy": _PROXY,
    # Change the bounds of a namespace, or what its guards read.
    "namespaces": _CHANGES,
    "resourcequotas": _CHANGES,
    "limitranges": _CHANGES,
    "networkpolicies.networking.k8s.io": _CHANGES,
    # Change queues, or who goes first. Stopping a LocalQueue or a Workload is an update.
    "localqueues.kueue.x-k8s.io": _MAKING,
    "workloads.kueue.x-k8s.io": _MAKING,
    "clusterqueues.kueue.x-k8s.io": _CHANGES,
    "cohorts.kueue.x-k8s.io": _CHANGES,
    "resourceflavors.kueue.x-k8s.io": _CHANGES,
    "topologies.kueue.x-k8s.io": _CHANGES,
    "admissionchecks.kueue.x-k8s.io": _CHANGES,
    "workloadpriorityclasses.kueue.x-k8s.io": _CHANGES,
    "queues.scheduling.volcano.sh": _CHANGES,
    "priorityclasses.scheduling.k8s.io": _CHANGES,
    # Change what all teams share.
    "nodes": _CHANGES,
    "nodes/status": ("patch", "update"),
    "persistentvolumes": _CHANGES,
    "customresourcedefinitions.apiextensions.k8s.io": _CHANGES,
    "validatingadmissionpolicies.admissionregistration.k8s.io": _CHANGES,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _CHANGES,
    "mutatingadmissionpolicies.admissionregistration.k8s.io": _CHANGES,
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _CHANGES,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _CHANGES,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _CHANGES,
}
"""Verbs by resource, as `NAME.GROUP/SUBRESOURCE`: https://kubernetes.io/docs/concepts/security/rbac-good-practices/,
https://kueue.sigs.k8s.io/docs/tasks/manage/rbac/."""
_LISTED: Final = 4
"""Maximum number of resources in a message."""
_USERS_ROLES: Final = ("view", "edit", "admin")
"""Built-in ClusterRoles for users of namespaces, into which operators aggregate their own."""


def _recipient(role: ApiObject, settings: Administered, stack: Stack) -> str:
    """By what a role is a tenant's, as messages show it; empty if it is not."""
    above = aggregating(role, stack) if role.kind == "ClusterRole" else []
    above_names = {other.name for other in above}
    for name in _USERS_ROLES:
        if name in above_names:
            return f"it is aggregated to ClusterRole {name}"
    for key in (role_key(role), *(role_key(other) for other in above)):
        binding = stack.first(BINDINGS, lambda bound: any(settings.tenants(bound)), (role_ref, key))
        if binding is not None:
            return f"{binding.place} gives it to {next(settings.tenants(binding)).label}"
    if role.kind != "Role" or not settings.tenant(role.namespace):
        return ""
    is_bound = stack.first(BINDINGS, always, (role_ref, role_key(role))) is not None
    return "" if is_bound else "its namespace is a tenant's"


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
    unknown_values = UnknownValues()
    problems: list[str] = []
    for granting in rules(role):
        with unknown_values.collected():
            if problem := check(granting):
                problems.append(f"{granting.label} {problem}")
    recipient = _recipient(role, settings, stack) if problems or unknown_values.errors else ""
    if recipient:
        for problem in problems:
            yield f"{problem}, and {recipient}; {fix}"
        unknown_values.raise_first()


_FIELDS: Final = ("apiGroups", "resources", "verbs")


def _wildcard(rule: PolicyRule) -> str:
    fields = [field for field in _FIELDS if any("*" in text for text in rule.values(field))]
    fields += ["nonResourceURLs"] if not {"*", "/*"}.isdisjoint(rule.values("nonResourceURLs")) else []
    return f"has a wildcard in {', '.join(fields)}" if fields else ""


@rule("no-wildcard-roles", ROLES)
def no_wildcard_roles(role: ApiObject, settings: Administered, stack: Stack) -> Iterator[str]:
    """Roles of tenants must not have wildcards."""
    return _of_tenants(role, settings, stack, _wildcard, "list what is needed")


def _forbidden(rules: Sequence[PolicyRule], allowed: list[str]) -> str:
    """The forbidden rights that rules of a role grant, as messages show them; empty if they grant none.

    Args:
        rules: of a role.
        allowed: patterns of resources that tenants may have.
    """
    phrases: list[str] = []
    for name, verbs in FORBIDDEN.items():
        if matches_any(name, allowed):
            continue
        full, slash, subresource = name.partition("/")
        resource, _, group = full.partition(".")
        covering = [rule for rule in rules if rule.covers(group, f"{resource}{slash}{subresource}")]
        if granted := [verb for verb in verbs if any(rule.grants(verb) for rule in covering)]:
            phrases.append(f"{', '.join(granted)} on {name}")
    more = [f"{len(phrases) - _LISTED} more"] if len(phrases) > _LISTED else []
    return "; ".join([*phrases[:_LISTED], *more])


class Bounds(Reviewed):
    """Rights that tenants can have."""

    allowed: list[str] = Field([])
    """Resources on which tenants may have these rights, as patterns of NAME.GROUP/SUBRESOURCE:
    `networkpolicies.networking.k8s.io`, `services/proxy`."""


def _binds_beyond(binding: ApiObject, settings: Bounds, stack: Stack) -> Iterator[str]:
    """Bindings of roles that are not in this stack."""

    def matches(rule: PolicyRule) -> bool:
        return rule.role.is_built_in and not rule.is_everything and bool(_forbidden([rule], settings.allowed))

    if given := settings.given(binding, stack, "tenant-roles-bounded", matches):
        subject = next(settings.tenants(binding))
        yield (
            f"binds {role_ref(binding)} to {subject.label}, which grants {_forbidden(given, settings.allowed)}; bind a"
            " role without these rights, or list the resources under `allowed`"
        )


@rule("tenant-roles-bounded", ROLES_AND_BINDINGS)
def tenant_roles_bounded(role: ApiObject, settings: Bounds, stack: Stack) -> Iterator[str]:
    """Roles of tenants must not grant what would bypass quotas, queues and guards."""
    if role.kind.endswith("Binding"):
        yield from _binds_beyond(role, settings, stack)
        return

    def check(rule: PolicyRule) -> str:
        rights = "" if rule.is_everything else _forbidden([rule], settings.allowed)
        return f"grants {rights}" if rights else ""

    yield from _of_tenants(role, settings, stack, check, "remove it, or list the resources under `allowed`")


@rule("no-cluster-admin", BINDINGS)
def no_cluster_admin(binding: ApiObject, settings: Reviewed, stack: Stack) -> Iterator[str]:
    """Only listed administrators must be bound to cluster-admin, or to a role that equals it."""
    if settings.given(binding, stack, "no-cluster-admin", lambda rule: rule.is_everything):
        for subject in settings.tenants(binding):
            yield (
                f"binds {role_ref(binding)}, which can do everything, to {subject.label}; bind a role with the required"
                f" rights, or list {subject.id} under `admins`"
            )


class Everybody(Tenants):
    """Roles that everybody can have."""

    roles: list[str] = Field(
        [
            "system:basic-user",
            "system:discovery",
            "system:public-info-viewer",
            "system:service-account-issuer-discovery",
        ]
    )
    """ClusterRoles that may be bound to everybody, as patterns. Default: those that the API server binds itself."""


@rule("no-binding-to-everybody", BINDINGS)
def no_binding_to_everybody(binding: ApiObject, settings: Everybody) -> Iterator[str]:
    """Roles must not be bound to everybody, nor to all service accounts of another namespace."""
    unknown_values = UnknownValues()
    for view in binding.view.items("subjects"):
        with unknown_values.collected():
            subject = subject_of(view)
            everybody = subject.everybody
            if subject.is_group_of_accounts and subject.home != binding.namespace and settings.tenant(subject.home):
                everybody = f"all service accounts of namespace {subject.home}"
            if everybody and not matches_any(binding.view.text("roleRef", "name"), settings.roles):
                yield f"binds {role_ref(binding)} to {subject.label}: {everybody}; name the subjects that need it"
    unknown_values.raise_first()


def _reads_secrets(rule: PolicyRule) -> bool:
    """Whether a rule grants reading Secrets whose names it does not list; for all rights, see no-cluster-admin."""
    can_read = any(rule.grants(verb) for verb in ("get", "list", "watch"))
    return can_read and rule.covers("", "secrets") and not rule.values("resourceNames") and not rule.is_everything


@rule("no-cluster-wide-secrets", BINDINGS)
def no_cluster_wide_secrets(binding: ApiObject, settings: Reviewed, stack: Stack) -> Iterator[str]:
    """Only listed subjects must be able to read the Secrets of all namespaces."""
    if binding.kind != "ClusterRoleBinding":
        return
    if settings.given(binding, stack, "no-cluster-wide-secrets", _reads_secrets):
        for subject in settings.tenants(binding):
            yield (
                f"gives {subject.label} {role_ref(binding)}, which reads the Secrets of all namespaces; create a"
                f" RoleBinding in each namespace that needs it, or list {subject.id} under `admins`"
            )
