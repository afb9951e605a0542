"""Resources of the API by the names that kubectl accepts: plural, singular, short name, with or without group."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.yaml import read_table

TABLE: Final = Path(__file__).with_name("resources.yaml")
VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
"""Verbs of all resources: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb."""
_SPECIAL: Final = ("impersonate", "bind", "escalate", "approve", "sign", "attest", "use", "proxy", "*")
"""Verbs of some resources."""


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """A resource that RBAC has rules for.

    Attributes:
        group: API group; empty for the core group.
        name: plural, and after `/` the subresource, such as `pods/exec`.
    """

    group: str
    name: str
    namespaced: bool

    def __str__(self) -> str:
        plural, slash, subresource = self.name.partition("/")
        return f"{plural}.{self.group}{slash}{subresource}" if self.group else self.name


@dataclass(frozen=True, slots=True)
class _Row:
    """A served resource of the table, with the operator that serves it and all its names."""

    resource: Resource
    operator: str | None
    names: frozenset[str]


@cache
def _rows() -> tuple[_Row, ...]:
    return tuple(_read(read_table(TABLE)))


def _read(table: Iterable[Mapping[str, Any]]) -> Iterator[_Row]:
    for served in table:
        for scope in ("cluster", "namespaced"):
            for plural, (kind, short, _) in served.get(scope, {}).items():
                resource = Resource(served["group"], plural, scope == "namespaced")
                names = frozenset({plural, kind.lower(), *short})
                yield _Row(resource, served.get("operator"), names)


def resource_of(text: str, stack: Stack | None) -> Resource:
    """The resource that a user names.

    Args:
        text: such as `pods`, `po`, `jobs.batch`, `pods/exec`; a resource with an unknown group is taken as namespaced.
        stack: a name of a resource that several of its operators serve needs a group. The core group comes first, as in
            kubectl. None for all operators, after the groups of Kubernetes.

    Raises:
        ConsoleError: the resource is unknown, or has no group and exists in several.
    """
    named, slash, subresource = text.partition("/")
    name, _, group = named.lower().partition(".")
    served = _served(stack) if stack else list(_rows())
    rows = [row for row in served if name in row.names and (not group or row.resource.group == group)]
    builtin = [row for row in rows if row.operator is None]
    found = [row.resource for row in (builtin if builtin and not stack else rows)]
    core = [resource for resource in found if not resource.group]
    if not found and group and group not in {row.resource.group for row in served}:
        found = [Resource(group, name, namespaced=True)]
    if not found:
        known_names = {str(row.resource) for row in served} | {row.resource.name for row in served}
        raise ConsoleError(f"RESOURCE: unknown resource '{text}'", nearest(named, known_names))
    if len(found) > 1 and not core:
        several = sorted(str(resource) for resource in found)
        raise ConsoleError(f"RESOURCE: {text} is in {len(found)} API groups", f"specify {' or '.join(several)}")
    chosen = (core or found)[0]
    return Resource(chosen.group, f"{chosen.name}{slash}{subresource.lower()}", chosen.namespaced)


def verb_of(text: str) -> str:
    """A verb of RBAC.

    Raises:
        ConsoleError: the verb is unknown.
    """
    known_verbs = (*VERBS, *_SPECIAL)
    if text.lower() not in known_verbs:
        raise ConsoleError(f"VERB: unknown verb '{text}'", nearest(text, known_verbs))
    return text.lower()


def _served(stack: Stack) -> list[_Row]:
    environment = Environment(stack)
    return [row for row in _rows() if row.operator is None or there(environment, row.operator)]
