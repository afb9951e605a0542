"""Roles and bindings of a running cluster, and its own answers (SubjectAccessReview)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self

from gpu_tenancy.access.answers import WHOLE, Ask, Holder, who_can
from gpu_tenancy.access.resources import VERBS, Resource
from gpu_tenancy.access.rules import Grant, Rule, system_groups
from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.plan.people import Subject

_RBAC: Final = "rbac.authorization.k8s.io/v1"
_ANONYMOUS: Final = "system:unauthenticated"
EVERYBODY: Final = frozenset({"system:authenticated", _ANONYMOUS, "system:serviceaccounts"})
"""Groups of all callers, or of all service accounts."""


def grants(cluster: Cluster) -> tuple[Grant, ...]:
    """All roles that bindings of a cluster give.

    Raises:
        ApiError: the caller may not list roles and bindings of the whole cluster.
    """
    kinds = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        cluster_roles, roles, *bindings = pool.map(partial(cluster.list, _RBAC), kinds)
    rules = {_key(role): tuple(rules_of(maps_at(role, "rules"))) for role in (*cluster_roles, *roles)}
    return tuple(grant for listed in bindings for binding in listed for grant in _granted(binding, rules))


def _key(role: Manifest) -> tuple[str, str]:
    return text_at(role, "metadata", "namespace"), text_at(role, "metadata", "name")


def rules_of(rules: Iterable[Mapping[str, Json]]) -> Iterator[Rule]:
    """Rules of a role, or of a SelfSubjectRulesReview."""
    for rule in rules:
        yield Rule(*(_set(rule, key) for key in ("apiGroups", "resources", "verbs", "resourceNames")))


def _set(rule: Mapping[str, Json], key: str) -> frozenset[str]:
    values = at(rule, key)
    return frozenset(str(value) for value in values) if isinstance(values, list) else frozenset()


def _granted(binding: Manifest, rules: Mapping[tuple[str, str], tuple[Rule, ...]]) -> Iterator[Grant]:
    namespace = text_at(binding, "metadata", "namespace")
    role = text_at(binding, "roleRef", "name")
    home = namespace if text_at(binding, "roleRef", "kind") == "Role" else ""
    for found in maps_at(binding, "subjects"):
        if subject := subject_of(found, namespace):
            yield Grant(subject, role, namespace, rules.get((home, role), ()))


def subject_of(subject: Mapping[str, Json], namespace: str) -> Subject | None:
    """A subject of a binding; None for a kind that RBAC does not know."""
    name = text_at(subject, "name")
    match text_at(subject, "kind"):
        case "ServiceAccount":
            return Subject("ServiceAccount", name, text_at(subject, "namespace") or namespace)
        case "User":
            return Subject("User", name)
        case "Group":
            return Subject("Group", name)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody as a SubjectAccessReview names them.

    Attributes:
        user: empty for the members of a group, whoever they are.
        groups: all groups of the caller.
    """

    user: str
    groups: tuple[str, ...]

    @classmethod
    def of(cls, who: Subject, groups: Iterable[str] = ()) -> Self:
        """A subject with the groups that its directory gives to it, and those that the API server gives to it."""
        own = [who.name] if who.kind == "Group" else []
        if own == [_ANONYMOUS]:
            return cls("", (_ANONYMOUS,))
        return cls(username(who), tuple(sorted({*own, *groups, *system_groups(who)})))


class Question(NamedTuple):
    """What a SubjectAccessReview asks; the place is a namespace or `WHOLE`."""

    verb: str
    resource: Resource
    place: str


def who_can_live(cluster: Cluster, verb: str, resource: Resource, namespace: str | None) -> tuple[Holder, ...]:
    """Who may do something by the roles and bindings of a cluster, confirmed by SubjectAccessReviews."""
    found = who_can(grants(cluster), verb, resource, namespace)

    def confirmed(holder: Holder) -> bool:
        return review(cluster, Caller.of(holder.subject), Question(verb, resource, holder.place))

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return tuple(holder for holder, yes in zip(found, pool.map(confirmed, found), strict=True) if yes)


def asker(cluster: Cluster, caller: Caller, resources: Iterable[Resource], namespaces: Sequence[str]) -> Ask:
    """What the API server answers for somebody; it is asked for everything at once."""
    questions = [
        Question(verb, resource, place)
        for resource in resources
        for place in (WHOLE, *(namespaces if resource.namespaced else ()))
        for verb in VERBS
    ]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        answers = pool.map(partial(review, cluster, caller), questions)
        known = dict(zip(questions, answers, strict=True))
    return lambda verb, resource, place: known[Question(verb, resource, place)]


def review(cluster: Cluster, caller: Caller, question: Question) -> bool:
    """A SubjectAccessReview.

    Raises:
        ApiError: the one who asks may not ask for others.
    """
    verb, resource, place = question
    plural, _, subresource = resource.name.partition("/")
    attributes: dict[str, Json] = {
        "verb": verb,
        "group": resource.group,
        "resource": plural,
        "subresource": subresource,
        "namespace": place,
    }
    spec: dict[str, Json] = {"resourceAttributes": attributes, "user": caller.user, "groups": [*caller.groups]}
    asked: Manifest = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return at(cluster.create(asked), "status", "allowed") is True


def username(who: Subject) -> str:
    """The name of a user or service account for the API server; empty for a group."""
    if who.kind == "ServiceAccount":
        return f"system:serviceaccount:{who.namespace}:{who.name}"
    return who.name if who.kind == "User" else ""
