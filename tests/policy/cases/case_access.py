"""Cases for `workload_rules.access`."""

from dataclasses import replace
from typing import Any, Final

from policy_builders import GONE, Break, Case, changed, manifest

from workload_rules import access

ADMINS: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: admins}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: ml-platform}
- {kind: ServiceAccount, name: operator, namespace: gpu-operator}
""")
ALL: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: root, labels: {example.com/suite: "true"}}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
""")
SUITE: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: suite}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {example.com/suite: "true"}}]}
""")
READER: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [pods, configmaps], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [secrets], verbs: [get], resourceNames: [webhook-certificate]}
- {apiGroups: [""], resources: [secrets], verbs: [create]}
""")
TEAM: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: ml-research}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: ml-research}
""")
READERS: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {kind: ServiceAccount, name: exporter, namespace: ml-research}
- {kind: ServiceAccount, name: operator, namespace: gpu-operator}
""")
LISTED: Final = manifest("""
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBindingList
metadata: {name: bindings}
items:
- metadata: {name: viewers, namespace: ml-serving}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: ml-serving}]
""")
TOKEN: Final = manifest("""
apiVersion: v1
kind: Secret
metadata: {name: robot, namespace: ml-research}
type: Opaque
""")
ACCOUNT: Final = manifest("""
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: ml-research}
imagePullSecrets: [{name: registry}]
""")
_LIST: Final = {"admins": ["Group:ml-platform"]}
_TEAM: Final = "RoleBinding ml-research/team"
_READERS: Final = "ClusterRoleBinding readers"
_DISCOVERY: Final = {
    "roleRef": {"kind": "ClusterRole", "name": "system:discovery"},
    "subjects": [{"kind": "Group", "name": "system:authenticated"}],
}
_IN_SYSTEM: Final = TEAM.props | {
    "metadata": {"name": "team", "namespace": "kube-system"},
    "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "name": name}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name}


def account(namespace: str, name: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def _admin(place: str, role: str, label: str) -> str:
    return (
        f"{place}: binds ClusterRole {role}, which can do everything, to {label}; bind a role with the required rights,"
        f" or list {label.replace(' ', ':')} under `admins`"
    )


def _cluster_admin(label: str) -> str:
    return _admin("ClusterRoleBinding admins", "cluster-admin", label)


def _secrets(label: str, role: str = "reader", place: str = _READERS) -> str:
    return (
        f"{place}: gives {label} ClusterRole {role}, which reads the Secrets of all namespaces; create a RoleBinding in"
        f" each namespace that needs it, or list {label.replace(' ', ':')} under `admins`"
    )


def _all(label: str, who: str, role: str = "reader", place: str = _TEAM) -> str:
    return f"{place}: binds ClusterRole {role} to {label}: {who}; name the subjects that need it"


def _rule(**fields: Any) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]} | fields


_STATIC: Final = "kubernetes.io/service-account-token"
_MANAGER: Final = "system:kube-controller-manager"
_ANYBODY: Final = "everybody who can reach the API server"
_EXPORTER: Final = "ServiceAccount ml-research/exporter"

CASES: Final = (
    Case(
        name="administrators of the cluster",
        rule=access.no_cluster_admin,
        given={"admins": ADMINS, "all": ALL, "suite": SUITE, "reader": READER, "team": TEAM, "listed": LISTED},
        settings=_LIST,
        also=[
            ("admins: subjects", GONE),
            ("admins: subjects.0", account("kube-system", "addons")),
            ("team: metadata.namespace", "kube-system"),
            ("all: rules.1.resourceNames", ["one"]),
        ],
        breaks=[
            Break("admins: subjects.0.name", "ml-research", _cluster_admin("Group ml-research")),
            Break(
                "admins: subjects",
                [user("rosa"), account("ml-research", "workload"), user("system:serviceaccount:ml-serving:workload")],
                tuple(
                    _cluster_admin(label)
                    for label in (
                        "User rosa",
                        "ServiceAccount ml-research/workload",
                        "ServiceAccount ml-serving/workload",
                    )
                ),
            ),
            Break("admins: subjects.1.namespace", "ml-serving", _cluster_admin("ServiceAccount ml-serving/operator")),
            Break("team: roleRef.name", "cluster-admin", _admin(_TEAM, "cluster-admin", "Group ml-research")),
            Break("team: roleRef.name", "root", _admin(_TEAM, "root", "Group ml-research")),
            Break("team: roleRef.name", "suite", _admin(_TEAM, "suite", "Group ml-research")),
            Break(
                "listed: items.0.roleRef.name",
                "root",
                _admin("RoleBinding ml-serving/viewers", "root", "Group ml-serving"),
            ),
            Break(
                "all: metadata.labels",
                {"rbac.authorization.k8s.io/aggregate-to-view": "true"},
                _admin("RoleBinding ml-serving/viewers", "view", "Group ml-serving"),
            ),
        ],
        unknown={"admins: subjects.1": "ClusterRoleBinding admins", "team: roleRef": _TEAM, "reader: rules.1": _TEAM},
    ),
    Case(
        name="roles that are not in the stack",
        rule=access.no_cluster_admin,
        given={"reader": READER, "team": TEAM},
        settings={"reviewed": ["reviewed-*"]},
        also=[("team: roleRef.name", "reviewed-viewer")],
    ),
    Case(
        name="subjects in system namespaces",
        rule=access.no_cluster_admin,
        given={"admins": ADMINS},
        settings=_LIST,
        also=[("team", replace(TEAM, props=_IN_SYSTEM | {"subjects": [group("ml-serving")]}))],
        breaks=[
            Break(
                "team",
                replace(TEAM, props=_IN_SYSTEM | {"subjects": [account("ml-research", "robot")]}),
                _admin("RoleBinding kube-system/team", "cluster-admin", "ServiceAccount ml-research/robot"),
            ),
            Break(
                "team",
                replace(TEAM, props=_IN_SYSTEM | {"subjects": [group("system:authenticated")]}),
                "RoleBinding kube-system/team: binds ClusterRole cluster-admin, which can do everything, to Group"
                " system:authenticated; bind a role with the required rights, or list Group:system:authenticated under"
                " `admins`",
            ),
        ],
    ),
    Case(
        name="everybody",
        rule=access.no_binding_to_everybody,
        given={"admins": ADMINS, "team": TEAM, "readers": READERS},
        also=[
            ("team: subjects.0", group("system:serviceaccounts:ml-research")),
            ("team: subjects.0", group("system:serviceaccounts:kueue-system")),
            ("readers", replace(READERS, props=READERS.props | _DISCOVERY)),
        ],
        breaks=[
            Break("team: subjects.0", group("system:authenticated"), _all("Group system:authenticated", "all users")),
            Break("team: subjects.0", group("system:unauthenticated"), _all("Group system:unauthenticated", _ANYBODY)),
            Break("team: subjects.0", user("system:anonymous"), _all("User system:anonymous", _ANYBODY)),
            Break(
                "team: subjects.0",
                group("system:serviceaccounts"),
                _all("Group system:serviceaccounts", "all service accounts"),
            ),
            Break(
                "team: subjects.0",
                group("system:serviceaccounts:ml-serving"),
                _all("Group system:serviceaccounts:ml-serving", "all service accounts of namespace ml-serving"),
            ),
            Break(
                "readers: subjects",
                [account("ml-research", "a"), group("system:serviceaccounts:ml-research")],
                _all(
                    "Group system:serviceaccounts:ml-research",
                    "all service accounts of namespace ml-research",
                    place=_READERS,
                ),
            ),
        ],
        unknown={"team: subjects.0.name": _TEAM},
    ),
    Case(
        name="a role for everybody by settings",
        rule=access.no_binding_to_everybody,
        given={"team": TEAM},
        settings={"roles": ["reader"]},
        also=[("team: subjects.0", group("system:authenticated"))],
        breaks=[
            Break(
                "team",
                changed(
                    changed({"team": TEAM}, "team: subjects.0", group("system:authenticated")),
                    "team: roleRef.name",
                    "view",
                )["team"],
                _all("Group system:authenticated", "all users", "view"),
            )
        ],
    ),
    Case(
        name="bindings that read the Secrets of all namespaces",
        rule=access.no_cluster_wide_secrets,
        given={"reader": READER, "readers": READERS, "team": TEAM, "admins": ADMINS},
        settings=_LIST,
        also=[
            ("readers: subjects", [group("ml-platform")]),
            ("readers: subjects", []),
            ("readers: roleRef.name", "view"),
            ("team: roleRef.name", "edit"),
            ("admins: subjects.0.name", "ml-research"),
        ],
        breaks=[
            Break("reader: rules.0", _rule(), _secrets(_EXPORTER)),
            Break("reader: rules.0", _rule(verbs=["watch"]), _secrets(_EXPORTER)),
            Break("reader: rules.0", _rule(resources=["*"], verbs=["list"]), _secrets(_EXPORTER)),
            Break("reader: rules.0", _rule(apiGroups=["*"], verbs=["*"]), _secrets(_EXPORTER)),
            Break("readers: roleRef.name", "edit", _secrets(_EXPORTER, "edit")),
            Break("readers: roleRef.name", "admin", _secrets(_EXPORTER, "admin")),
            Break("readers: roleRef.name", _MANAGER, _secrets(_EXPORTER, _MANAGER)),
        ],
        unknown={"reader: rules.0.verbs": _READERS},
    ),
    Case(
        name="static tokens",
        rule=access.no_static_tokens,
        given={"token": TOKEN, "account": ACCOUNT},
        settings={"allowed": ["ci/*"]},
        also=[
            ("token: type", "bootstrap.kubernetes.io/token"),
            ("account: secrets", []),
            (
                "token",
                replace(TOKEN, props=TOKEN.props | {"metadata": {"name": "a", "namespace": "ci"}, "type": _STATIC}),
            ),
        ],
        breaks=[
            Break(
                "token: type",
                _STATIC,
                "Secret ml-research/robot: is a token without an expiry date; remove it, and request tokens with"
                " `kubectl create token`",
            ),
            Break(
                "account: secrets",
                [{"name": "robot-token"}],
                "ServiceAccount ml-research/robot: lists Secrets in `secrets`; remove them, and mount Secrets as"
                " volumes",
            ),
        ],
        unknown={"token: type": "Secret ml-research/robot"},
    ),
)
