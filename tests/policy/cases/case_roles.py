"""Cases for `workload_rules.roles`."""

from dataclasses import replace
from typing import Any, Final

from policy_builders import GONE, Break, Case, manifest

from workload_rules import roles

ROLE: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: submit, namespace: ml-research}
rules:
- {apiGroups: [""], resources: [pods, pods/exec, secrets], verbs: [get, create, delete]}
- {apiGroups: [kueue.x-k8s.io], resources: [localqueues, workloads], verbs: [get, patch, update]}
""")
TRAINER: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: trainer, labels: {example.com/suite: "true"}}
rules:
- {apiGroups: [batch], resources: [jobs], verbs: [get, create, delete]}
""")
SUITE: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: suite}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {example.com/suite: "true"}}]}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
""")
OPERATOR: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
""")
OPERATORS: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operators}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operator}
subjects:
- {kind: ServiceAccount, name: operator, namespace: gpu-operator}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: ml-platform}
""")
BINDING: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: ml-research}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: trainer}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: ml-research}
""")
_PLATFORM: Final = {"admins": ["Group:ml-platform"]}
_PROGRAM: Final = {
    "role": ROLE,
    "trainer": TRAINER,
    "suite": SUITE,
    "operator": OPERATOR,
    "operators": OPERATORS,
    "binding": BINDING,
}
_BOUND: Final = "RoleBinding ml-research/team gives it to Group ml-research"
_EDIT: Final = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}


def _rule(resources: str, verbs: str, group: str = "") -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


def _wildcard(fields: str, recipient: str = _BOUND, place: str = "ClusterRole trainer") -> str:
    return f"{place}: rules.0 has a wildcard in {fields}, and {recipient}; list what is needed"


def _grants(rights: str, recipient: str = _BOUND, place: str = "ClusterRole trainer") -> str:
    return f"{place}: rules.0 grants {rights}, and {recipient}; remove it, or list the resources under `allowed`"


def _binds(role: str, rights: str) -> str:
    return (
        f"RoleBinding ml-research/team: binds ClusterRole {role} to Group ml-research, which grants {rights}; bind a"
        " role without these rights, or list the resources under `allowed`"
    )


_OWN: Final = "its namespace is a tenant's"
_CREATE: Final = "create, delete, deletecollection, patch, update"
_EDITS: Final = (
    "impersonate on serviceaccounts; create on serviceaccounts/token; create, delete, get, patch, update on pods/proxy;"
    " create, delete, get, patch, update on services/proxy; 1 more"
)
_ADMINS: Final = (
    f"impersonate on serviceaccounts; create on serviceaccounts/token; {_CREATE} on roles.rbac.authorization.k8s.io;"
    f" {_CREATE} on rolebindings.rbac.authorization.k8s.io; 3 more"
)
_ALL: Final = (
    "impersonate on users; impersonate on groups; impersonate on serviceaccounts; create on serviceaccounts/token"
)
_FORBIDDEN: Final = (
    ("rolebindings", "create", "rbac.authorization.k8s.io", "create on rolebindings.rbac.authorization.k8s.io"),
    (
        "clusterroles",
        "bind escalate",
        "rbac.authorization.k8s.io",
        "bind, escalate on clusterroles.rbac.authorization.k8s.io",
    ),
    ("users groups", "impersonate", "", "impersonate on users; impersonate on groups"),
    ("serviceaccounts/token", "create", "", "create on serviceaccounts/token"),
    ("*/token", "create", "", "create on serviceaccounts/token"),
    ("pods/ephemeralcontainers", "get patch", "", "patch on pods/ephemeralcontainers"),
    ("nodes/proxy", "get", "", "get on nodes/proxy"),
    ("*", "get", "", "get on pods/proxy; get on services/proxy; get on nodes/proxy"),
    ("*", "get", "*", "get on pods/proxy; get on services/proxy; get on nodes/proxy"),
    ("*", "*", "", f"{_ALL}; 11 more"),
    (
        "resourcequotas limitranges namespaces nodes",
        "update",
        "",
        "update on namespaces; update on resourcequotas; update on limitranges; update on nodes",
    ),
    ("resourcequotas limitranges", "update", "", "update on resourcequotas; update on limitranges"),
    ("networkpolicies", "delete", "*", "delete on networkpolicies.networking.k8s.io"),
    ("namespaces", "patch", "", "patch on namespaces"),
    (
        "localqueues clusterqueues",
        "create",
        "kueue.x-k8s.io",
        "create on localqueues.kueue.x-k8s.io; create on clusterqueues.kueue.x-k8s.io",
    ),
    (
        "validatingadmissionpolicies",
        "delete",
        "admissionregistration.k8s.io",
        "delete on validatingadmissionpolicies.admissionregistration.k8s.io",
    ),
)

CASES: Final = (
    Case(
        name="wildcards",
        rule=roles.no_wildcard_roles,
        given=_PROGRAM,
        settings=_PLATFORM,
        also=[
            ("operator: rules.0", _rule("*", "*", "*")),
            ("operators: subjects", GONE),
            ("operators", GONE),
            ("binding: roleRef.name", "view"),
            ("role: rules.0.resourceNames", ["*"]),
            (
                "role",
                replace(
                    ROLE,
                    props=ROLE.props | {"metadata": {"name": "x", "namespace": "keda"}, "rules": [_rule("*", "*")]},
                ),
            ),
        ],
        breaks=[
            Break("trainer: rules.0.verbs", ["*"], _wildcard("verbs")),
            Break("trainer: rules.0", _rule("*", "*", "*"), _wildcard("apiGroups, resources, verbs")),
            Break("trainer: rules.0.resources", ["*/status"], _wildcard("resources")),
            *(
                Break("trainer: rules.0", {"nonResourceURLs": [path], "verbs": ["get"]}, _wildcard("nonResourceURLs"))
                for path in ("*", "/*")
            ),
            Break("role: rules.0.verbs", ["*"], _wildcard("verbs", _OWN, "Role ml-research/submit")),
            Break(
                "operators: subjects.1.name",
                "ml-research",
                _wildcard(
                    "apiGroups, resources, verbs",
                    "ClusterRoleBinding operators gives it to Group ml-research",
                    "ClusterRole operator",
                ),
            ),
        ],
        unknown={"trainer: rules.0.verbs": "ClusterRole trainer", "role: rules": "Role ml-research/submit"},
    ),
    Case(
        name="wildcards that are aggregated",
        rule=roles.no_wildcard_roles,
        given=_PROGRAM
        | {"binding": replace(BINDING, props=BINDING.props | {"roleRef": {"kind": "ClusterRole", "name": "suite"}})},
        settings=_PLATFORM,
        breaks=[
            Break("trainer: rules.0.verbs", ["*"], _wildcard("verbs")),
            Break(
                "trainer",
                replace(
                    TRAINER, props={"metadata": {"name": "trainer", "labels": _EDIT}, "rules": [_rule("jobs", "*")]}
                ),
                _wildcard("verbs", "it is aggregated to ClusterRole edit"),
            ),
        ],
    ),
    Case(
        name="a Role that only the platform's service accounts have",
        rule=roles.no_wildcard_roles,
        given={
            "role": replace(ROLE, props=ROLE.props | {"rules": [_rule("*", "*")]}),
            "binding": replace(
                BINDING,
                props=BINDING.props
                | {
                    "roleRef": {"kind": "Role", "name": "submit"},
                    "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "gpu-operator"}],
                },
            ),
        },
        breaks=[
            Break("binding", GONE, _wildcard("resources, verbs", _OWN, "Role ml-research/submit")),
            Break(
                "binding: subjects.0.namespace",
                "ml-serving",
                _wildcard(
                    "resources, verbs",
                    "RoleBinding ml-research/team gives it to ServiceAccount ml-serving/operator",
                    "Role ml-research/submit",
                ),
            ),
            Break(
                "binding: metadata.namespace",
                "ml-serving",
                _wildcard("resources, verbs", _OWN, "Role ml-research/submit"),
            ),
        ],
        unknown={"binding: subjects.0": "Role ml-research/submit"},
    ),
    Case(
        name="rights that bypass guards",
        rule=roles.tenant_roles_bounded,
        given=_PROGRAM,
        settings=_PLATFORM,
        also=[
            ("binding: roleRef.name", "view"),
            ("binding: roleRef.name", "suite"),
            ("trainer: rules.0", _rule("resourcequotas limitranges namespaces", "get list watch")),
            ("trainer: rules.0", _rule("resourcequotas", "update", "example.com")),
        ],
        breaks=[
            *(
                Break("trainer: rules.0", _rule(resources, verbs, group), _grants(rights))
                for resources, verbs, group, rights in _FORBIDDEN
            ),
            Break(
                "role: rules.0",
                _rule("resourcequotas", "*"),
                _grants(f"{_CREATE} on resourcequotas", _OWN, "Role ml-research/submit"),
            ),
            Break("trainer: rules.0", _rule("*", "*", "*") | {"resourceNames": ["x"]}, _grants(f"{_ALL}; 34 more")),
            Break("binding: roleRef.name", "edit", _binds("edit", _EDITS)),
            Break("binding: roleRef.name", "admin", _binds("admin", _ADMINS)),
        ],
        unknown={
            "trainer: rules.0.apiGroups": "ClusterRole trainer",
            "binding: roleRef.name": "RoleBinding ml-research/team",
        },
    ),
    Case(
        name="rights allowed by settings",
        rule=roles.tenant_roles_bounded,
        given=_PROGRAM,
        settings=_PLATFORM | {"allowed": ["networkpolicies.*", "serviceaccounts*", "*/proxy"]},
        also=[
            ("binding: roleRef.name", "edit"),
            ("trainer: rules.0", _rule("networkpolicies", "create", "networking.k8s.io")),
        ],
        breaks=[Break("trainer: rules.0", _rule("limitranges", "create"), _grants("create on limitranges"))],
    ),
)
