"""What each role of people may do: the table `roles.yaml`."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator

from gpu_tenancy.model.catalogue.rows import Row, read_rows

Verb: TypeAlias = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
"""Verbs that a role can have: no wildcard, escalate, bind or impersonate."""

_FORBIDDEN: Final = frozenset(
    {
        "nodes/proxy",
        "pods/ephemeralcontainers",
        "pods/proxy",
        "serviceaccounts/token",
        "services/proxy",
    }
)
"""Resources that give more than they seem to: https://kubernetes.io/docs/concepts/security/rbac-good-practices/."""


def _allowed(resource: str) -> str:
    if "*" in resource or resource in _FORBIDDEN:
        msg = f"{resource} must not be in a role"
        raise ValueError(msg)
    return resource


READ: Final = "read access"
_ABILITIES: Final = {"Secrets": ("secrets", "get"), "exec": ("pods/exec", "create"), READ: ("pods", "get")}
"""Resource and verb of the rights that a reviewer of a change looks for, the strongest first."""


class Rule(Row):
    """A rule of a ClusterRole, with its reason.

    Attributes:
        groups: API groups; the core group is the empty string.
        resources: resources and subresources.
        verbs: what may be done with them.
        reason: why the role needs it.
        operator: the rule applies if this operator runs in the cluster; None for always.
        snapshots: whether the rule applies only if volumes of teams have snapshots.
        routes: whether the rule applies only if servers or notebooks of teams have a host.
        claims: whether the rule applies only if pods can claim channels or interfaces.
        domains: whether the rule applies only if pods can claim channels of ComputeDomains.
    """

    groups: tuple[Annotated[str, AfterValidator(_allowed)], ...]
    resources: tuple[Annotated[str, AfterValidator(_allowed)], ...]
    verbs: tuple[Verb, ...]
    reason: str
    operator: str | None = None
    snapshots: bool = False
    routes: bool = False
    claims: bool = False
    domains: bool = False


class Role(Row):
    """A role of people.

    Attributes:
        scope: whether it is bound in the namespaces of teams or in the cluster.
        rules: its own rules.
        includes: the role whose rules it has too.
    """

    scope: Literal["namespace", "cluster"]
    rules: tuple[Rule, ...]
    includes: str | None = None


@cache
def roles() -> Mapping[str, Role]:
    """The roles by name."""
    return read_rows("roles", dict[str, Role])


def rules_of(name: str) -> Iterator[Rule]:
    """All rules of a role, those of the included role first."""
    role = roles()[name]
    if role.includes:
        yield from rules_of(role.includes)
    yield from role.rules


def abilities(role: str) -> tuple[str, ...]:
    """The rights of a role that a reviewer of a change looks for, the strongest first.

    Args:
        role: of the table, or `admin`, which can do everything.
    """
    if role == "admin":
        return ("cluster-admin", *_ABILITIES)
    rules = tuple(rules_of(role))
    return tuple(
        name
        for name, (resource, verb) in _ABILITIES.items()
        if any(resource in rule.resources and verb in rule.verbs for rule in rules)
    )
