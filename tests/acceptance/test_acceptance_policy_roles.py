"""What the workload pack takes for granted by a role, against the API server's own roles and decisions."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from rule_engine import Resource, View
from workload_rules.bindings import built_in_roles
from workload_rules.rbac import ApiObject, rules
from workload_rules.roles import FORBIDDEN

RBAC: Final = "rbac.authorization.k8s.io/v1"
ODD: Final[dict[str, Any]] = {
    "apiVersion": RBAC,
    "kind": "ClusterRole",
    "metadata": {"name": "odd-patterns"},
    "rules": [
        {"apiGroups": [""], "resources": ["*/token", "pods/*", "nodes"], "verbs": ["create", "get"]},
        {"apiGroups": ["*"], "resources": ["networkpolicies", "roles"], "verbs": ["*"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["*"], "verbs": ["delete"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*/*"], "verbs": ["update"]},
    ],
}
"""Patterns of resources that RBAC knows, and some that it does not."""


def role(manifest: dict[str, Any]) -> ApiObject:
    return ApiObject(Resource(f"kubernetes:{RBAC}:ClusterRole"), View(manifest), "ClusterRole")


@pytest.fixture(scope="module")
def bound(cluster: Cluster) -> Iterator[str]:
    """A user who has the odd role in the whole cluster."""
    binding: dict[str, Any] = {
        "apiVersion": RBAC,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "odd-patterns"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "odd-patterns"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "odd-user"}],
    }
    for manifest in (ODD, binding):
        cluster.apply(manifest)
    # The authorizer learns of a binding a moment later.
    cluster.wait_for(lambda: allowed(cluster, "odd-user", "get", "", "nodes"), what="the role of odd-user")
    yield "odd-user"
    for kind in ("ClusterRoleBinding", "ClusterRole"):
        cluster.delete(Reference(RBAC, kind, "odd-patterns"))


def allowed(cluster: Cluster, user: str, verb: str, group: str, resource: str) -> bool:
    name, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": name, "subresource": subresource}
    review: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer: Any = cluster.create(review)
    return bool(answer["status"]["allowed"])


def test_built_in_roles_are_those_of_the_api_server(cluster: Cluster) -> None:
    """Without those of feature gates that are off by default, and rules that controllers aggregate."""
    roles: Any = cluster.list(RBAC, "ClusterRole")
    live: dict[str, Any] = {item["metadata"]["name"]: item for item in roles}
    for name, known in ((known.name, known) for known in built_in_roles().values()):
        assert isinstance(known.view.value, dict)
        table: dict[str, Any] = known.view.value
        assert table.get("aggregationRule") == live[name].get("aggregationRule"), name
        if "rules" in table:
            assert table["rules"] == live[name]["rules"], name
        labels = {key: label for key, label in live[name]["metadata"]["labels"].items() if "aggregate-to" in key}
        assert table["metadata"].get("labels", {}) == labels, name


def test_a_rule_grants_what_the_api_server_decides(cluster: Cluster, bound: str) -> None:
    granted = list(rules(role(ODD)))
    decisions: dict[tuple[str, str], bool] = {}
    expected: dict[tuple[str, str], bool] = {}
    for text, verbs in FORBIDDEN.items():
        path, slash, subresource = text.partition("/")
        name, _, group = path.partition(".")
        resource = f"{name}{slash}{subresource}"
        for verb in verbs:
            expected[text, verb] = any(rule.grants(verb) and rule.covers(group, resource) for rule in granted)
            decisions[text, verb] = allowed(cluster, bound, verb, group, resource)
    assert decisions == expected
    assert {True, False} == set(decisions.values())
