"""Roles of people, reserved namespaces and forms of credentials, from their tables."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.catalogue.rows import Fact, Row, read_rows

Verb: TypeAlias = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
"""RBAC verbs of roles, without wildcard, escalate, bind and impersonate."""

_FORBIDDEN: Final = frozenset(
    {"nodes/proxy", "pods/ephemeralcontainers", "pods/proxy", "serviceaccounts/token", "services/proxy"}
)
"""Resources with hidden privileges: https://kubernetes.io/docs/concepts/security/rbac-good-practices/."""


def _allowed(resource: str) -> str:
    if "*" in resource or resource in _FORBIDDEN:
        raise ValueError(f"{resource} must not be in a role")
    return resource


READ: Final = "read access"
_ABILITIES: Final = {"Secrets": ("secrets", "get"), "exec": ("pods/exec", "create"), READ: ("pods", "get")}
"""Resource and verb of the rights that reviews report, the strongest first."""


class Rule(Row):
    """A rule of a ClusterRole. The flags limit it to stacks that use the feature."""

    groups: tuple[Annotated[str, AfterValidator(_allowed)], ...]  # API groups; the core group is the empty string
    resources: tuple[Annotated[str, AfterValidator(_allowed)], ...]
    verbs: tuple[Verb, ...]
    reason: str
    operator: str | None = None  # the rule applies if this operator runs in the cluster; None for always
    snapshots: bool = False
    routes: bool = False  # for servers or notebooks with a host
    claims: bool = False  # for pods that can claim channels or interfaces
    domains: bool = False  # for pods that can claim channels of ComputeDomains


class Role(Row):
    """A role of people, bound in teams' namespaces or in the cluster, with the rules of the included role."""

    scope: Literal["namespace", "cluster"]
    rules: tuple[Rule, ...]
    includes: str | None = None


def roles() -> Mapping[str, Role]:
    """The roles by name."""
    return read_rows("roles", dict[str, Role])


def rules_of(name: str) -> Iterator[Rule]:
    """All rules of a role, the included role's rules first."""
    role = roles()[name]
    if role.includes:
        yield from rules_of(role.includes)
    yield from role.rules


def abilities(role: str) -> tuple[str, ...]:
    """Rights of a role that reviews report, the strongest first; `admin` has all rights."""
    if role == "admin":
        return ("cluster-admin", *_ABILITIES)
    rules = tuple(rules_of(role))
    return tuple(
        name
        for name, (resource, verb) in _ABILITIES.items()
        if any(resource in rule.resources and verb in rule.verbs for rule in rules)
    )


_MONITORING: Final = "monitoring"  # namespace of operators that tenants of other programs have, too


class ReservedNamespaces(Fact):
    """Namespaces of one product; `names` are names and prefixes that end in `-`."""

    owner: Annotated[str, Field(min_length=1)]
    names: Annotated[list[Annotated[str, Field(pattern=r"^[a-z][-a-z0-9]*$")]], Field(min_length=1)]
    system: tuple[str, ...] = ()  # exact names, which policy packs do not check as a tenant's


def _reserved() -> list[ReservedNamespaces]:
    return read_rows("namespaces", list[ReservedNamespaces])


def system_namespaces() -> list[str]:
    """Exact names of namespaces that do not belong to a tenant, sorted."""
    operators = {chart.namespace for chart in charts().values()} - {_MONITORING}
    return sorted(operators | {name for row in _reserved() for name in row.system})


@cache
def reserved_namespaces() -> Mapping[str, str]:
    """The owner of each reserved name and prefix."""
    operators = {chart.namespace: f"operator {name}" for name, chart in reversed(tuple(charts().items()))}
    return operators | {name: row.owner for row in _reserved() for name in row.names}


def owner_of(namespace: str) -> str | None:
    """The owner of a reserved namespace; None for any other."""
    names = reserved_namespaces()
    prefixes = (owner for name, owner in names.items() if name.endswith("-") and namespace.startswith(name))
    return names.get(namespace) or next(prefixes, None)


class _Form(Fact):
    what: str
    pattern: re.Pattern[str]


class _Credentials(Row):
    texts: tuple[_Form, ...]
    names: re.Pattern[str]
    secretive: re.Pattern[str]


def credential(text: str, variable: str = "") -> str | None:
    """Kind of credential that a value looks like ("AWS access key"), or None; `variable` is empty for arguments."""
    table = read_rows("credentials", _Credentials)
    for form in table.texts:
        if form.pattern.search(text):
            return form.what
    named = variable and table.names.search(variable) and table.secretive.fullmatch(text)
    return f"value of {variable}" if named else None
