"""Access in a running cluster, without a stack's file.

Sources: readable roles and bindings, SubjectAccessReview, and SelfSubjectReview.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from gpu_tenancy.access.rules import ALL, EVERYBODY, Grant, Holder, Question, Resource, Rule, system_groups, who_can
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, list_at, map_at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.catalogue import access as catalogue
from gpu_tenancy.model.plan.people import ADMIN, AUDITOR, PREFIX, Subject

RBAC: Final = "rbac.authorization.k8s.io/v1"
_KINDS: Final = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
_ANONYMOUS: Final = "system:unauthenticated"


def grants(cluster: Cluster) -> tuple[Grant, ...]:
    """All roles that bindings of a cluster give. Raises ApiError if the caller may not list roles and bindings."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        cluster_roles, roles, *bindings = pool.map(partial(cluster.list, RBAC), _KINDS)
    rules = rules_by_role((*cluster_roles, *roles))
    return tuple(grant for listed in bindings for binding in listed for grant in granted(binding, rules))


def rules_by_role(roles: Iterable[Manifest]) -> dict[tuple[str, str], tuple[Rule, ...]]:
    """Rules by namespace (empty for a ClusterRole) and name."""
    found: dict[tuple[str, str], tuple[Rule, ...]] = {}
    keys = ("apiGroups", "resources", "verbs", "resourceNames")
    for role in roles:
        rules = (Rule(*(frozenset(list_at(rule, key)) for key in keys)) for rule in maps_at(role, "rules"))
        found[text_at(role, "metadata", "namespace"), text_at(role, "metadata", "name")] = tuple(rules)
    return found


def granted(binding: Manifest, rules: Mapping[tuple[str, str], tuple[Rule, ...]]) -> Iterator[Grant]:
    """Grants of a binding, one for each subject; without rules if the role's rules are unknown."""
    namespace, role = text_at(binding, "metadata", "namespace"), _role_of(binding)
    for found in maps_at(binding, "subjects"):
        match text_at(found, "kind"):
            case "ServiceAccount" | "User" | "Group" as kind:  # RBAC does not know other kinds.
                place = (text_at(found, "namespace") or namespace) if kind == "ServiceAccount" else ""
                yield Grant(Subject(kind, text_at(found, "name"), place), role[1], namespace, rules.get(role, ()))
            case _:
                pass


def _role_of(binding: Manifest) -> tuple[str, str]:
    of_namespace = text_at(binding, "roleRef", "kind") == "Role"
    return text_at(binding, "metadata", "namespace") if of_namespace else "", text_at(binding, "roleRef", "name")


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller as the API server names it, with all groups; for members of a group, the user is empty."""

    user: str
    groups: tuple[str, ...]

    @classmethod
    def of(cls, who: Subject) -> Self:
        """A subject with the groups that the API server adds."""
        own = [who.name] if who.kind == "Group" else []
        if own == [_ANONYMOUS]:
            return cls("", (_ANONYMOUS,))
        return cls(username(who), tuple(sorted({*own, *system_groups(who)})))


def who_can_live(cluster: Cluster, verb: str, resource: Resource, namespace: str | None) -> tuple[Holder, ...]:
    """Holders of a right by roles and bindings of a cluster, confirmed by SubjectAccessReviews."""
    found = who_can(grants(cluster), verb, resource, namespace)

    def confirmed(holder: Holder) -> bool:
        return review(cluster, Caller.of(holder.subject), Question(verb, resource, holder.place))

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return tuple(holder for holder, yes in zip(found, pool.map(confirmed, found), strict=True) if yes)


def review(cluster: Cluster, caller: Caller, question: Question) -> bool:
    """Asks for a SubjectAccessReview. Raises ApiError if the caller may not ask for other users."""
    verb, resource, place = question
    plural, _, subresource = resource.name.partition("/")
    target = {"group": resource.group, "resource": plural, "subresource": subresource, "namespace": place}
    attributes: dict[str, Json] = {"verb": verb, **target}
    spec: dict[str, Json] = {"resourceAttributes": attributes, "user": caller.user, "groups": [*caller.groups]}
    asked: Manifest = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return at(cluster.create(asked), "status", "allowed") is True


def username(who: Subject) -> str:
    """Name of a user or service account for the API server; empty for a group."""
    if who.kind == "ServiceAccount":
        return f"system:serviceaccount:{who.namespace}:{who.name}"
    return who.name if who.kind == "User" else ""


def who_am_i(cluster: Cluster) -> Caller:
    """The caller as the API server sees it (SelfSubjectReview). Raises ApiError if it rejects the credentials."""
    answer = cluster.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    user = map_at(answer, "status", "userInfo")
    return Caller(text_at(user, "username"), tuple(list_at(user, "groups")))


_ASK: Final = f"ask a user with the role {AUDITOR}"


@dataclass(frozen=True, slots=True)
class Seen:
    """Readable grants, with notes on grants that are missing and the people to ask."""

    grants: tuple[Grant, ...]
    notes: tuple[str, ...]


def is_tenant(holder: Holder, namespace: str) -> bool:
    """Whether a holder is not part of the control plane or of an operator, by name; empty `namespace` is for all."""
    who = holder.subject
    if who.kind == "ServiceAccount":
        return not namespace or namespace in {who.namespace, holder.place}
    return who.name in EVERYBODY or not who.name.startswith("system:")


def seen(cluster: Cluster, namespace: str) -> Seen:
    """Grants in the namespace of a team and in the whole cluster; only some callers may read all namespaces ("").

    ClusterRoles of this program that the caller may not read have the rules of this version. Raises ConsoleError if the
    caller may not list the bindings there, ApiError for any other rejection.
    """

    def listed(kind: str) -> tuple[Manifest, ...] | None:
        try:
            return cluster.list(RBAC, kind, namespace=namespace)
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            return None

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        whole_roles, own_roles, whole, own = pool.map(listed, _KINDS)
    if own is None:
        where, fix = (namespace, _ASK) if namespace else ("the whole cluster", f"specify your team with -n, or {_ASK}")
        raise ConsoleError(f"you may not list RoleBindings in {where}", fix)
    rules = rules_by_role((*(whole_roles or ()), *(own_roles or ())))
    bindings = (*(whole or ()), *own)
    unread = {_role_of(binding) for binding in bindings} - rules.keys()
    known: dict[tuple[str, str], tuple[Rule, ...]] = {}
    if whole_roles is None:
        known = {("", f"{PREFIX}{name}"): tuple(map(Rule.of, catalogue.rules_of(name))) for name in catalogue.roles()}
        known["", ADMIN] = (ALL,)
    rules |= {role: known[role] for role in unread & known.keys()}
    notes: list[str] = []
    if whole is None:
        notes.append(f"rights in the whole cluster not shown: you may not list ClusterRoleBindings; {_ASK}")
    if assumed := ", ".join(sorted(name for _, name in unread & known.keys())):
        notes.append(f"rules of {assumed} are those of this version of tenancy: you may not list ClusterRoles")
    if left := ", ".join(sorted(name for _, name in unread - known.keys())):
        notes.append(f"rights by {left} not shown: the role does not exist, or you may not read it; {_ASK}")
    return Seen(tuple(grant for binding in bindings for grant in granted(binding, rules)), tuple(notes))
