"""Roles and bindings of a running cluster, and its own answers: SubjectAccessReview, and who the caller is."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from gpu_tenancy.access.resources import Resource
from gpu_tenancy.access.rules import Grant, Holder, Question, Rule, system_groups, who_can
from gpu_tenancy.base.json import Json, at, list_at, map_at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.plan.people import Subject

RBAC: Final = "rbac.authorization.k8s.io/v1"
_ANONYMOUS: Final = "system:unauthenticated"


def grants(cluster: Cluster) -> tuple[Grant, ...]:
    """All roles that bindings of a cluster give.

    Raises:
        ApiError: the caller may not list roles and bindings of the whole cluster.
    """
    kinds = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        cluster_roles, roles, *bindings = pool.map(partial(cluster.list, RBAC), kinds)
    rules = rules_by_role((*cluster_roles, *roles))
    return tuple(grant for listed in bindings for binding in listed for grant in granted(binding, rules))


def rules_by_role(roles: Iterable[Manifest]) -> dict[tuple[str, str], tuple[Rule, ...]]:
    """Rules by namespace, which is empty for a ClusterRole, and name."""
    return {
        (text_at(role, "metadata", "namespace"), text_at(role, "metadata", "name")): tuple(
            rules_of(maps_at(role, "rules"))
        )
        for role in roles
    }


def rules_of(rules: Iterable[Mapping[str, Json]]) -> Iterator[Rule]:
    """Rules of a role."""
    for rule in rules:
        yield Rule(*(frozenset(list_at(rule, key)) for key in ("apiGroups", "resources", "verbs", "resourceNames")))


def granted(binding: Manifest, rules: Mapping[tuple[str, str], tuple[Rule, ...]]) -> Iterator[Grant]:
    """What a binding gives, a grant for each subject; without rules where those of its role are unknown."""
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
    def of(cls, who: Subject) -> Self:
        """A subject with the groups that the API server gives to it."""
        own = [who.name] if who.kind == "Group" else []
        if own == [_ANONYMOUS]:
            return cls("", (_ANONYMOUS,))
        return cls(username(who), tuple(sorted({*own, *system_groups(who)})))


def who_can_live(cluster: Cluster, verb: str, resource: Resource, namespace: str | None) -> tuple[Holder, ...]:
    """Who may do something by the roles and bindings of a cluster, confirmed by SubjectAccessReviews."""
    found = who_can(grants(cluster), verb, resource, namespace)

    def confirmed(holder: Holder) -> bool:
        return review(cluster, Caller.of(holder.subject), Question(verb, resource, holder.place))

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return tuple(holder for holder, yes in zip(found, pool.map(confirmed, found), strict=True) if yes)


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


@dataclass(frozen=True, slots=True)
class Me:
    """The caller as the API server knows it (SelfSubjectReview)."""

    user: str
    groups: tuple[str, ...]


def who_am_i(cluster: Cluster) -> Me:
    """Who the API server thinks that the caller is.

    Raises:
        ApiError: it does not accept the caller's credentials.
    """
    answer = cluster.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    user = map_at(answer, "status", "userInfo")
    return Me(text_at(user, "username"), tuple(list_at(user, "groups")))
