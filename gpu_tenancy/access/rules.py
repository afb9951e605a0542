"""The rules of RBAC: who may do something."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from gpu_tenancy.access.resources import Resource
from gpu_tenancy.model.catalogue import access as catalogue
from gpu_tenancy.model.plan.people import Subject


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a role, as the API server has it.

    Attributes:
        groups: API groups; `*` for all.
        resources: resources and subresources; `*` for all, `*/scale` for that subresource of all.
        verbs: `*` for all.
        names: objects that it is limited to; empty for all.
    """

    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, rule: catalogue.Rule) -> Self:
        """A rule of the catalogue."""
        return cls(frozenset(rule.groups), frozenset(rule.resources), frozenset(rule.verbs))

    def allows(self, verb: str, resource: Resource) -> bool:
        """Whether it allows a verb for all objects of a resource."""
        subresource = resource.name.partition("/")[2]
        wanted = {"*", resource.name, *([f"*/{subresource}"] if subresource else [])}
        return not (
            self.names
            or self.verbs.isdisjoint({"*", verb})
            or self.groups.isdisjoint({"*", resource.group})
            or self.resources.isdisjoint(wanted)
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """A role that a binding gives to a subject.

    Attributes:
        namespace: where; empty for the whole cluster.
    """

    subject: Subject
    role: str
    namespace: str
    rules: tuple[Rule, ...]

    def allows(self, verb: str, resource: Resource, namespace: str) -> bool:
        """Whether it allows a request.

        Args:
            verb: of the request.
            resource: of the request.
            namespace: empty for cluster-scoped resources, and for all namespaces together.
        """
        return self.namespace in {"", namespace} and any(rule.allows(verb, resource) for rule in self.rules)


ALL: Final = Rule(frozenset("*"), frozenset("*"), frozenset("*"))
"""The rule of `cluster-admin`."""


EVERYBODY: Final = frozenset({"system:authenticated", "system:unauthenticated", "system:serviceaccounts"})
"""Groups of all callers, or of all service accounts."""


def identity(subject: Subject) -> frozenset[Subject]:
    """All subjects that a caller is for RBAC: itself and the groups that the API server gives to it."""
    return frozenset({subject, *(Subject("Group", group) for group in system_groups(subject))})


def system_groups(subject: Subject) -> Iterator[str]:
    """Groups that the API server itself gives to a caller, or to the members of a group."""
    yield "system:authenticated"
    if subject.kind == "ServiceAccount":
        yield "system:serviceaccounts"
        yield f"system:serviceaccounts:{subject.namespace}"


WHOLE = ""
"""The place of rights in the whole cluster; other places are namespaces."""


class Question(NamedTuple):
    """Whether somebody may do something; the place is a namespace or `WHOLE`."""

    verb: str
    resource: Resource
    place: str


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Somebody who may do what was asked."""

    subject: Subject
    role: str
    place: str


def who_can(grants: Iterable[Grant], verb: str, resource: Resource, namespace: str | None = None) -> tuple[Holder, ...]:
    """Who may do something, each with the role and the place.

    Args:
        grants: roles of everybody.
        verb: such as `create`.
        resource: of any group.
        namespace: leaves out rights in other namespaces; None for all places.
    """
    found: set[Holder] = set()
    for grant in grants:
        place = grant.namespace if namespace is None or not resource.namespaced else namespace
        if not resource.namespaced and grant.namespace:
            continue
        if grant.allows(verb, resource, place):
            found.add(Holder(grant.subject, grant.role, grant.namespace))
    return tuple(sorted(found))


def allowed(grants: Sequence[Grant], questions: Iterable[Question]) -> list[bool]:
    """Whether a caller who has all these roles may do something; RBAC has no rules that refuse."""
    return [any(grant.allows(*question) for grant in grants) for question in questions]
