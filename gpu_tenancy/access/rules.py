"""The rules of RBAC: https://kubernetes.io/docs/reference/access-authn-authz/rbac/."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.access.resources import Resource
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


def identity(subject: Subject, groups: Iterable[str] = ()) -> frozenset[Subject]:
    """All subjects that a caller is for RBAC: itself and its groups."""
    more = {Subject("Group", group) for group in groups}
    return frozenset({subject, *more, *(Subject("Group", group) for group in system_groups(subject))})


def system_groups(subject: Subject) -> Iterator[str]:
    """Groups that the API server itself gives to a caller, or to the members of a group."""
    yield "system:authenticated"
    if subject.kind == "ServiceAccount":
        yield "system:serviceaccounts"
        yield f"system:serviceaccounts:{subject.namespace}"


def allowed(grants: Iterable[Grant], verb: str, resource: Resource, namespace: str) -> bool:
    """Whether a caller who has all these roles may do something; RBAC has no rules that refuse."""
    return any(grant.allows(verb, resource, namespace) for grant in grants)
