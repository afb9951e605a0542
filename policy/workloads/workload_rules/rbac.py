"""RBAC objects: roles and what they grant, bindings and their subjects.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rule_engine import Resource, Subject, UnknownValueError, View, kubernetes

RBAC: Final = "rbac.authorization.k8s.io"
PRACTICES: Final = "https://kubernetes.io/docs/concepts/security/rbac-good-practices/"
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
