"""RBAC: roles and their rights, bindings and their subjects, and subjects that are tenants'.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import Field

from rule_engine import Resource, Stack, UnknownValueError, UnknownValues, View, located_at, read_table
from workload_rules.objects import always, matches_any, name, objects, selects
from workload_rules.pods import Tenants, namespace_of

RBAC: Final = "rbac.authorization.k8s.io"
_ACCOUNT: Final = "system:serviceaccount:"  # prefix of the user name of a service account
_ACCOUNTS: Final = "system:serviceaccounts:"  # prefix of the group of all service accounts of a namespace
_EVERYBODY: Final = {
    ("Group", "system:authenticated"): "all users",
    ("Group", "system:unauthenticated"): "everybody who can reach the API server",
    ("User", "system:anonymous"): "everybody who can reach the API server",
    ("Group", "system:serviceaccounts"): "all service accounts",
}

ROLES: Final = objects("roles", f"{RBAC}:Role", f"{RBAC}:ClusterRole")
BINDINGS: Final = objects("bindings of roles", f"{RBAC}:RoleBinding", f"{RBAC}:ClusterRoleBinding")
ROLES_AND_BINDINGS: Final = objects(
    "roles and their bindings",
    *(f"{RBAC}:{kind}" for kind in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")),
)


def home_of(rbac: Resource) -> str:
    """The namespace of a role or a binding; empty if it has none because of its kind."""
    return "" if rbac.kind.startswith("Cluster") else namespace_of(rbac)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A rule of a role."""

    role: Resource
    view: View

    @property
    def label(self) -> str:
        """Where it is in its role: `rules.0`."""
        return ".".join(self.view.path)

    def values(self, field: str) -> frozenset[str]:
        """The values of one of its lists, read once for all bindings of its role."""
        return self.role.once((field, self.view.path), lambda: frozenset(self.view.texts(field)))

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


def is_aggregated(role: Resource) -> bool:
    """Whether a controller writes the rules of a role, from the rules of ClusterRoles that it selects."""
    return role.props.has("aggregationRule")


def rules(role: Resource) -> Iterator[PolicyRule]:
    """The rules of one role; none if a controller writes them."""
    if is_aggregated(role):
        return
    yield from (PolicyRule(role, view) for view in role.props.items("rules"))


@dataclass(frozen=True, slots=True)
class BoundSubject:
    """A subject of a binding: a `User`, a `Group` or a `ServiceAccount`, the last one also by its user name."""

    kind: str
    name: str
    home: str  # namespace of a service account, or of the group of all service accounts of a namespace; else empty

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
    kind, own_name = view.text("kind"), view.text("name")
    if kind == "ServiceAccount":
        return BoundSubject(kind, own_name, view.text("namespace"))
    if kind == "User" and own_name.startswith(_ACCOUNT):
        namespace, _, account = own_name.removeprefix(_ACCOUNT).partition(":")
        return BoundSubject("ServiceAccount", account, namespace)
    home = own_name.removeprefix(_ACCOUNTS) if kind == "Group" and own_name.startswith(_ACCOUNTS) else ""
    return BoundSubject(kind, own_name, home)


def role_key(role: Resource) -> str:
    """Kind, namespace and name of a role."""
    return _key(role.kind, home_of(role), name(role))


def role_ref(binding: Resource) -> str:
    """Kind, namespace and name of the role that a binding binds; it is unknown for a patch without it."""
    if not binding.props.has("roleRef"):
        raise UnknownValueError((*binding.props.path, "roleRef"), "is not set")
    kind = binding.props.text("roleRef", "kind")
    return _key(kind, home_of(binding) if kind == "Role" else "", binding.props.text("roleRef", "name"))


def _key(kind: str, namespace: str, own_name: str) -> str:
    return f"{kind} {namespace}/{own_name}" if namespace else f"{kind} {own_name}"


@cache
def built_in_roles() -> dict[str, Resource]:
    """The ClusterRoles that the API server creates, by their key."""
    rows = read_table(Path(__file__).with_name("built_in_roles.yaml"))
    token = f"kubernetes:{RBAC}/v1:ClusterRole"
    roles = [Resource(token, name=row["metadata"]["name"], _props=View(row)) for row in rows]
    return {role_key(role): role for role in roles}


def is_built_in(role: Resource) -> bool:
    """Whether the API server creates a role."""
    return built_in_roles().get(role_key(role)) is role


def rules_of(binding: Resource, stack: Stack) -> Iterator[PolicyRule]:
    """The rules that a binding gives to its subjects, also those of aggregated ClusterRoles.

    Of the ClusterRoles that an aggregated one selects, those of this stack and the built-in ones are known; raises
    UnknownValueError for any other role.
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
            raise UnknownValueError((*role.props.path, "aggregationRule"), why)


def aggregating(role: Resource, stack: Stack) -> list[Resource]:
    """The ClusterRoles into which a ClusterRole is aggregated, directly or through others."""

    def members(aggregated: Resource) -> frozenset[Resource]:
        return stack.once(("members", aggregated), lambda: frozenset(_closure([aggregated], stack)))

    aggregated = stack.once("aggregated", lambda: [other for other, _ in _candidates(stack) if is_aggregated(other)])
    return [other for other in aggregated if other is not role and role in members(other)]


def _closure(roles: Iterable[Resource], stack: Stack) -> Iterable[Resource]:
    """Roles, and the ClusterRoles that are aggregated into them."""
    closure: dict[Resource, None] = {}
    pending = list(roles)
    while pending:
        role = pending.pop()
        if role not in closure:
            closure[role] = None
            pending += _selected(role, stack)
    return closure


def _selected(role: Resource, stack: Stack) -> list[Resource]:
    """The ClusterRoles that the aggregation rule of a role selects; none without such a rule."""

    def find() -> list[Resource]:
        selectors = role.props.items("aggregationRule", "clusterRoleSelectors")
        return [other for other, labels in _candidates(stack) if any(selects(one, labels) for one in selectors)]

    return stack.once(("selected", role), find) if is_aggregated(role) else []


def _candidates(stack: Stack) -> list[tuple[Resource, dict[str, str]]]:
    """The ClusterRoles of the stack and the built-in ones, with their labels, unless their labels are unknown."""

    def find() -> list[tuple[Resource, dict[str, str]]]:
        in_stack = [pair for pair in stack.known_values(ROLES, _labels) if pair[0].kind == "ClusterRole"]
        return [*in_stack, *((role, _labels(role)) for role in built_in_roles().values())]

    return stack.once("ClusterRoles", find)


def _labels(role: Resource) -> dict[str, str]:
    return role.props.string_map("metadata", "labels")


class Administered(Tenants):
    """Selects the subjects that are tenants'."""

    admins: list[str] = Field(["Group:system:masters"])
    """Subjects that are not tenants, as patterns of KIND:NAME: `Group:ml-platform`, `User:*@ops.example.com`,
    `ServiceAccount:argocd/*`. Service accounts of the namespaces in `system` and `platform` are none either."""

    def tenants(self, binding: Resource) -> Iterator[BoundSubject]:
        """The subjects of a binding that are tenants', known ones first.

        Users and groups in a RoleBinding of a system namespace are taken for the platform team's.
        """
        unknown_values = UnknownValues()
        subjects: list[BoundSubject] = []
        for view in binding.props.items("subjects"):
            with unknown_values.collected():
                subject = subject_of(view)
                if self._is_tenant(subject, binding):
                    subjects.append(subject)
        yield from subjects
        unknown_values.raise_first()

    def _is_tenant(self, subject: BoundSubject, binding: Resource) -> bool:
        if matches_any(subject.id, self.admins):
            return False
        if subject.everybody:
            return True
        if subject.home:
            return self.tenant(subject.home)
        return not home_of(binding) or self.tenant(home_of(binding))


class Reviewed(Administered):
    """Selects the subjects that are tenants', and roles that are not evaluated."""

    reviewed: list[str] = Field([])
    """ClusterRoles that are created outside this stack and that you have reviewed, as patterns of names. Those that the
    API server creates are known."""

    def given(
        self, binding: Resource, stack: Stack, rule_name: str, matches: Callable[[PolicyRule], bool]
    ) -> list[PolicyRule]:
        """The matching rules that a binding gives to tenants, found once for all bindings of a role.

        `rule_name` is the policy rule with these settings. Unknown rules raise only if no known one matches.
        """
        binding.props.has("subjects")  # noted, so that a patch of them is about what the object's role gives
        key = (rule_name, role_ref(binding))
        matching, unknown_values = stack.once(key, lambda: self._matching(binding, stack, matches))
        if not (matching or unknown_values.errors) or not any(self.tenants(binding)):
            return []
        if not matching:
            unknown_values.raise_first()
        return matching

    def _matching(
        self, binding: Resource, stack: Stack, matches: Callable[[PolicyRule], bool]
    ) -> tuple[list[PolicyRule], UnknownValues]:
        unknown_values = UnknownValues()
        matching: list[PolicyRule] = []
        try:
            for rule in rules_of(binding, stack):
                with unknown_values.collected(), located_at(rule.role):
                    if matches(rule):
                        matching.append(rule)
        except UnknownValueError:
            with unknown_values.collected():
                if not matches_any(binding.props.text("roleRef", "name"), self.reviewed):
                    raise
        return matching, unknown_values
