"""Rights that quotas, queues and guards rest on, and that no tenant must have."""

from collections.abc import Iterable, Mapping
from typing import Final

from workload_rules.objects import matches_any
from workload_rules.rbac import PolicyRule

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


def forbidden(rules: Iterable[PolicyRule], allowed: Iterable[str]) -> str:
    """The forbidden rights that rules grant, as messages show them; empty if they grant none.

    Args:
        rules: of a role.
        allowed: patterns of resources that tenants may have.
    """
    given, patterns = list(rules), list(allowed)
    phrases: list[str] = []
    for resource, verbs in FORBIDDEN.items():
        if matches_any(resource, patterns):
            continue
        covering = [rule for rule in given if rule.covers(*_parsed(resource))]
        if granted := [verb for verb in verbs if any(rule.grants(verb) for rule in covering)]:
            phrases.append(f"{', '.join(granted)} on {resource}")
    more = [f"{len(phrases) - _LISTED} more"] if len(phrases) > _LISTED else []
    return "; ".join([*phrases[:_LISTED], *more])


def reads_secrets(rule: PolicyRule) -> bool:
    """Whether a rule grants reading Secrets whose names it does not list."""
    can_read = any(rule.grants(verb) for verb in ("get", "list", "watch"))
    return can_read and rule.covers("", "secrets") and not rule.values("resourceNames")


def _parsed(text: str) -> tuple[str, str]:
    """API group and resource of `NAME.GROUP/SUBRESOURCE`."""
    full, slash, subresource = text.partition("/")
    resource, _, group = full.partition(".")
    return group, f"{resource}{slash}{subresource}"
