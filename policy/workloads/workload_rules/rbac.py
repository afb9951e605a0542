"""RBAC: roles and what they grant, bindings, what they give and to whom; subjects that are tenants'.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import Field

from rule_engine import (
    Resource,
    Stack,
    Subject,
    UnknownValueError,
    UnknownValues,
    View,
    kubernetes,
    located_at,
    read_table,
)
from workload_rules.objects import always, matches_any, selects
from workload_rules.pods import Tenants

RBAC: Final = "rbac.authorization.k8s.io"
_ACCOUNT: Final = "system:serviceaccount:"
"""Prefix of the user name of a service account."""
_ACCOUNTS: Final = "system:serviceaccounts:"
"""Prefix of the group of all service accounts of a namespace."""
_EVERYBODY: Final = {
    ("Group", "system:authenticated"): "all users",
    ("Group", "system:unauthenticated"): "everybody who can reach the API server",
    ("User", "system:anonymous"): "everybody who can reach the API server",
    ("Group", "system:serviceaccounts"): "all service accounts",
}


@dataclass(frozen=True, slots=True, eq=False)
class ApiObject:
    """An object.

    Attributes:
        resource: the resource that has it.
        view: its properties.
        kind: its kind: `Role`.
        is_built_in: whether the API server creates it.
    """

    resource: Resource
    view: View
    kind: str
    is_built_in: bool = False

    @property
    def place(self) -> str:
        """Kind, namespace and name."""
        return self.resource.place

    @property
    def name(self) -> str:
        """Its name; empty if Pulumi or the API server generates it."""
        return self.view.text("metadata", "name")

    @property
    def namespace(self) -> str:
        """Its namespace; empty if it has none because of its kind."""
        if self.kind.startswith("Cluster"):
            return ""
        return self.view.text("metadata", "namespace", default="default")


def api_objects(name: str, group: str, *kinds: str) -> Subject[ApiObject]:
    """The subject of all objects of these kinds.

    Args:
        name: its name in the documentation.
        group: their API group.
        kinds: their kinds.
    """
    return Subject(name, kubernetes(*(f"{group}:{kind}" for kind in kinds)), _objects)


def _objects(resource: Resource) -> list[ApiObject]:
    return resource.once("objects", lambda: [ApiObject(resource, resource.props, resource.kind)])


ROLES: Final = api_objects("roles", RBAC, "Role", "ClusterRole")
BINDINGS: Final = api_objects("bindings of roles", RBAC, "RoleBinding", "ClusterRoleBinding")
ROLES_AND_BINDINGS: Final = api_objects(
    "roles and their bindings", RBAC, "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"
)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A rule of a role.

    Attributes:
        role: the role that has it.
        view: its fields.
    """

    role: ApiObject
    view: View

    @property
    def label(self) -> str:
        """Where it is in its role: `rules.0`."""
        return ".".join(self.view.path)

    def values(self, field: str) -> frozenset[str]:
        """The values of one of its lists, read once for all bindings of its role.

        Raises:
            UnknownValueError: one is unknown.
        """
        return self.role.resource.once((field, self.view.path), lambda: frozenset(self.view.texts(field)))

    def grants(self, verb: str) -> bool:
        """Whether it has a verb, or all verbs."""
        return not {verb, "*"}.isdisjoint(self.values("verbs"))

    def covers(self, group: str, resource: str) -> bool:
        """Whether it is about a resource, or a subresource `RESOURCE/SUBRESOURCE`, of an API group."""
        if {group, "*"}.isdisjoint(self.values("apiGroups")):
            return False
        _, slash, subresource = resource.partition("/")
        covering = {resource, "*", f"*/{subresource}"} if slash else {resource, "*"}
        return not covering.isdisjoint(self.values("resources"))

    @property
    def is_everything(self) -> bool:
        """Whether it grants every verb on every resource of every API group."""
        fields = ("apiGroups", "resources", "verbs")
        return all("*" in self.values(field) for field in fields) and not self.values("resourceNames")


def is_aggregated(role: ApiObject) -> bool:
    """Whether a controller writes the rules of a role, from those of the ClusterRoles that it selects."""
    return role.view.has("aggregationRule")


def rules(role: ApiObject) -> Iterator[PolicyRule]:
    """The rules of one role; none if a controller writes them."""
    if is_aggregated(role):
        return
    for view in role.view.items("rules"):
        yield PolicyRule(role, view)


@dataclass(frozen=True, slots=True)
class BoundSubject:
    """A subject of a binding.

    Attributes:
        kind: `User`, `Group` or `ServiceAccount`; the last one also if the binding has its user name.
        name: its name.
        home: the namespace of a service account, or of the group of all service accounts of a namespace; else empty.
    """

    kind: str
    name: str
    home: str

    @property
    def label(self) -> str:
        """Kind and name as messages show them: `ServiceAccount ml-research/workload`."""
        return self.id.replace(":", " ", 1)

    @property
    def id(self) -> str:
        """Kind and name as settings have them: `ServiceAccount:ml-research/workload`."""
        return f"{self.kind}:{self.home}/{self.name}" if self.kind == "ServiceAccount" else f"{self.kind}:{self.name}"

    @property
    def everybody(self) -> str:
        """Who it is, if that is everybody; else empty."""
        return _EVERYBODY.get((self.kind, self.name), "")

    @property
    def is_group_of_accounts(self) -> bool:
        """Whether it is all service accounts of a namespace."""
        return self.kind == "Group" and bool(self.home)


def subject_of(view: View) -> BoundSubject:
    """One of the subjects of a binding."""
    kind, name = view.text("kind"), view.text("name")
    if kind == "ServiceAccount":
        return BoundSubject(kind, name, view.text("namespace"))
    if kind == "User" and name.startswith(_ACCOUNT):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        return BoundSubject("ServiceAccount", account, namespace)
    home = name.removeprefix(_ACCOUNTS) if kind == "Group" and name.startswith(_ACCOUNTS) else ""
    return BoundSubject(kind, name, home)


def role_key(role: ApiObject) -> str:
    """Kind, namespace and name of a role."""
    return _key(role.kind, role.namespace, role.name)


def role_ref(binding: ApiObject) -> str:
    """Kind, namespace and name of the role that a binding binds.

    Raises:
        UnknownValueError: it is unknown, or the binding is a patch that does not have it.
    """
    if not binding.view.has("roleRef"):
        raise UnknownValueError((*binding.view.path, "roleRef"), "is not set")
    kind = binding.view.text("roleRef", "kind")
    return _key(kind, binding.namespace if kind == "Role" else "", binding.view.text("roleRef", "name"))


def _key(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


@cache
def built_in_roles() -> dict[str, ApiObject]:
    """The ClusterRoles that the API server creates, by their key."""
    rows = read_table(Path(__file__).with_name("built_in_roles.yaml"))
    token = f"kubernetes:{RBAC}/v1:ClusterRole"
    roles = [
        ApiObject(Resource(token, name=row["metadata"]["name"]), View(row), "ClusterRole", is_built_in=True)
        for row in rows
    ]
    return {role_key(role): role for role in roles}


def rules_of(binding: ApiObject, stack: Stack) -> Iterator[PolicyRule]:
    """The rules that a binding gives to its subjects, also those of aggregated ClusterRoles.

    Of the ClusterRoles that an aggregated one selects, those of this stack and the built-in ones are known.

    Raises:
        UnknownValueError: the role is unknown, or neither in this stack nor built-in.
    """
    reference = role_ref(binding)
    roles = stack.matching(ROLES, always, (role_key, reference))
    roles += [built_in_roles()[reference]] if reference in built_in_roles() else []
    if not roles:
        raise UnknownValueError(("roleRef", "name"), f"references {reference}, which is not in this stack")
    for role in _closure(roles, stack):
        with located_at(role):
            yield from rules(role)
        if is_aggregated(role) and not _selected(role, stack):
            why = f"of {role.place} selects no ClusterRole of this stack"
            raise UnknownValueError((*role.view.path, "aggregationRule"), why)


def aggregating(role: ApiObject, stack: Stack) -> list[ApiObject]:
    """The ClusterRoles into which a ClusterRole is aggregated, directly or through others."""
    aggregated = stack.once("aggregated", lambda: [other for other, _ in _candidates(stack) if is_aggregated(other)])
    return [other for other in aggregated if other is not role and role in _members(other, stack)]


def _members(role: ApiObject, stack: Stack) -> frozenset[ApiObject]:
    return stack.once(("members", role), lambda: frozenset(_closure([role], stack)))


def _closure(roles: Iterable[ApiObject], stack: Stack) -> Iterable[ApiObject]:
    """Roles, and the ClusterRoles that are aggregated into them."""
    closure: dict[ApiObject, None] = {}
    pending = list(roles)
    while pending:
        role = pending.pop()
        if role not in closure:
            closure[role] = None
            pending += _selected(role, stack)
    return closure


def _selected(role: ApiObject, stack: Stack) -> list[ApiObject]:
    """The ClusterRoles that the aggregation rule of a role selects; none without such a rule."""

    def find() -> list[ApiObject]:
        selectors = role.view.items("aggregationRule", "clusterRoleSelectors")
        return [other for other, labels in _candidates(stack) if any(selects(one, labels) for one in selectors)]

    return stack.once(("selected", role), find) if is_aggregated(role) else []


def _candidates(stack: Stack) -> list[tuple[ApiObject, dict[str, str]]]:
    """The ClusterRoles of the stack and the built-in ones, with their labels; without those with unknown labels."""

    def find() -> list[tuple[ApiObject, dict[str, str]]]:
        in_stack = [pair for pair in stack.known_values(ROLES, _labels) if pair[0].kind == "ClusterRole"]
        return [*in_stack, *((role, _labels(role)) for role in built_in_roles().values())]

    return stack.once("ClusterRoles", find)


def _labels(role: ApiObject) -> dict[str, str]:
    return role.view.string_map("metadata", "labels")


class Administered(Tenants):
    """Selects the subjects that are tenants'."""

    admins: list[str] = Field(["Group:system:masters"])
    """Subjects that are not tenants, as patterns of KIND:NAME: `Group:ml-platform`, `User:*@ops.example.com`,
    `ServiceAccount:argocd/*`. Service accounts of the namespaces in `system` and `platform` are none either."""

    def tenants(self, binding: ApiObject) -> Iterator[BoundSubject]:
        """The subjects of a binding that are tenants', known ones first.

        Users and groups in a RoleBinding of a system namespace are taken for the platform team's.

        Raises:
            UnknownValueError: a further subject is unknown.
        """
        unknown_values = UnknownValues()
        subjects: list[BoundSubject] = []
        for view in binding.view.items("subjects"):
            with unknown_values.collected():
                subject = subject_of(view)
                if self._is_tenant(subject, binding):
                    subjects.append(subject)
        yield from subjects
        unknown_values.raise_first()

    def _is_tenant(self, subject: BoundSubject, binding: ApiObject) -> bool:
        if matches_any(subject.id, self.admins):
            return False
        if subject.everybody:
            return True
        if subject.home:
            return self.tenant(subject.home)
        return not binding.namespace or self.tenant(binding.namespace)


class Reviewed(Administered):
    """Selects the subjects that are tenants', and roles that are not evaluated."""

    reviewed: list[str] = Field([])
    """ClusterRoles that are created outside this stack and that you have reviewed, as patterns of names. Those that the
    API server creates are known."""

    def given(
        self, binding: ApiObject, stack: Stack, rule_name: str, matches: Callable[[PolicyRule], bool]
    ) -> list[PolicyRule]:
        """The rules that match among those that a binding gives to tenants.

        Args:
            binding: the binding.
            stack: for its role, of which the matching rules are found once for all bindings.
            rule_name: the policy rule with these settings.
            matches: whether a rule of a role matters.

        Raises:
            UnknownValueError: none is known to match, and an unknown one can; or whether a tenant has it is unknown.
        """
        binding.view.has("subjects")  # noted, so that a patch of them is about what the object's role gives
        key = (rule_name, role_ref(binding))
        matching, unknown_values = stack.once(key, lambda: self._matching(binding, stack, matches))
        if not (matching or unknown_values.errors) or not any(self.tenants(binding)):
            return []
        if not matching:
            unknown_values.raise_first()
        return matching

    def _matching(
        self, binding: ApiObject, stack: Stack, matches: Callable[[PolicyRule], bool]
    ) -> tuple[list[PolicyRule], UnknownValues]:
        unknown_values = UnknownValues()
        matching: list[PolicyRule] = []
        with unknown_values.collected():
            for rule in self._rules_of(binding, stack):
                with unknown_values.collected(), located_at(rule.role):
                    if matches(rule):
                        matching.append(rule)
        return matching, unknown_values

    def _rules_of(self, binding: ApiObject, stack: Stack) -> Iterator[PolicyRule]:
        try:
            yield from rules_of(binding, stack)
        except UnknownValueError:
            if not matches_any(binding.view.text("roleRef", "name"), self.reviewed):
                raise
