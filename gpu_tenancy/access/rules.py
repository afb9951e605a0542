"""RBAC rules and their holders; resources have the names that kubectl accepts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, Self

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.model.catalogue import access as catalogue
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.people import Subject
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.yaml import read_table

TABLE: Final = Path(__file__).with_name("resources.yaml")
# Verbs of all resources:
# https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb.
VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
# Verbs of some resources.
_SPECIAL: Final = ("impersonate", "bind", "escalate", "approve", "sign", "attest", "use", "proxy", "*")


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """A resource of RBAC, with the subresource after `/`, such as `pods/exec`; the core group is empty."""

    group: str
    name: str
    namespaced: bool

    def __str__(self) -> str:
        plural, slash, subresource = self.name.partition("/")
        return f"{plural}.{self.group}{slash}{subresource}" if self.group else self.name


@dataclass(frozen=True, slots=True)
class _Row:
    """A served resource with its operator and all its names."""

    resource: Resource
    operator: str | None
    names: frozenset[str]


@cache
def _rows() -> tuple[_Row, ...]:
    found: list[_Row] = []
    for served in read_table(TABLE):
        for scope in ("cluster", "namespaced"):
            for plural, (kind, short, _) in served.get(scope, {}).items():
                resource = Resource(served["group"], plural, scope == "namespaced")
                found.append(_Row(resource, served.get("operator"), frozenset({plural, kind.lower(), *short})))
    return tuple(found)


def resource_of(text: str, stack: Stack | None) -> Resource:
    """The resource that a user names, such as `pods`, `po`, `jobs.batch` or `pods/exec`.

    A resource with an unknown group counts as namespaced. A name that several operators serve needs a group; the core
    group comes first, as in kubectl. Without a stack, all operators count, after Kubernetes' groups. Raises
    ConsoleError if the resource is unknown, or has no group and exists in several.
    """
    named, slash, subresource = text.partition("/")
    name, _, group = named.lower().partition(".")
    served = _rows()
    if stack:
        environment = Environment(stack)
        served = tuple(row for row in served if row.operator is None or there(environment, row.operator))
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
    """Checks a verb of RBAC. Raises ConsoleError if it is unknown."""
    known_verbs = (*VERBS, *_SPECIAL)
    if text.lower() not in known_verbs:
        raise ConsoleError(f"VERB: unknown verb '{text}'", nearest(text, known_verbs))
    return text.lower()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a role in the API server's form; without names, it is for all objects.

    `*` stands for all groups, resources or verbs, and `*/scale` for that subresource of all resources.
    """

    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, rule: catalogue.Rule) -> Self:
        """Converts a rule of the catalogue."""
        return cls(frozenset(rule.groups), frozenset(rule.resources), frozenset(rule.verbs))

    def allows(self, verb: str, resource: Resource) -> bool:
        """Whether it allows a verb for all objects of a resource."""
        subresource = resource.name.partition("/")[2]
        return not (
            self.names
            or self.verbs.isdisjoint({"*", verb})
            or self.groups.isdisjoint({"*", resource.group})
            or self.resources.isdisjoint({"*", resource.name, *([f"*/{subresource}"] if subresource else [])})
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """A role that a binding gives to a subject; `namespace` is empty for the whole cluster."""

    subject: Subject
    role: str
    namespace: str
    rules: tuple[Rule, ...]

    def allows(self, verb: str, resource: Resource, namespace: str) -> bool:
        """Whether it allows a request; the namespace is empty for cluster-scoped resources, and for all namespaces."""
        return self.namespace in {"", namespace} and any(rule.allows(verb, resource) for rule in self.rules)


ALL: Final = Rule(frozenset("*"), frozenset("*"), frozenset("*"))  # of `cluster-admin`

# Groups of all callers, or of all service accounts.
EVERYBODY: Final = frozenset({"system:authenticated", "system:unauthenticated", "system:serviceaccounts"})


def identity(subject: Subject) -> frozenset[Subject]:
    """All subjects of a caller for RBAC: itself and the groups that the API server adds."""
    return frozenset({subject, *(Subject("Group", group) for group in system_groups(subject))})


def system_groups(subject: Subject) -> Iterator[str]:
    """Groups that the API server adds to a caller, or to the members of a group."""
    yield "system:authenticated"
    if subject.kind == "ServiceAccount":
        yield "system:serviceaccounts"
        yield f"system:serviceaccounts:{subject.namespace}"


WHOLE = ""  # place of rights in the whole cluster; other places are namespaces


class Question(NamedTuple):
    """One access check; `place` is a namespace or `WHOLE`."""

    verb: str
    resource: Resource
    place: str


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A subject with a right, by a role in a place."""

    subject: Subject
    role: str
    place: str


def who_can(grants: Iterable[Grant], verb: str, resource: Resource, namespace: str | None = None) -> tuple[Holder, ...]:
    """Holders of a right, with role and place; `namespace` excludes other namespaces, None excludes none."""
    found: set[Holder] = set()
    for grant in grants:
        place = grant.namespace if namespace is None or not resource.namespaced else namespace
        if not resource.namespaced and grant.namespace:
            continue
        if grant.allows(verb, resource, place):
            found.add(Holder(grant.subject, grant.role, grant.namespace))
    return tuple(sorted(found))


def allowed(grants: Sequence[Grant], questions: Iterable[Question]) -> list[bool]:
    """Whether a caller with all these roles has each right; RBAC has no rules that deny."""
    return [any(grant.allows(*question) for grant in grants) for question in questions]
