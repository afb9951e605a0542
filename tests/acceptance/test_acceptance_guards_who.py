"""Whom each guard binds: what it alone rejects, tried by one whom all bind, and by those whom some do not."""

import json
from collections.abc import Iterator
from string import Template
from typing import Any, Final

import pytest
from acceptance_builders import Waves
from acceptance_guards import GPU, POLICIES, RESEARCH, Door, Person, job, pod, pod_of

from gpu_tenancy.base.json import int_at
from gpu_tenancy.doctor.guards import attempts
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

RBAC: Final = "rbac.authorization.k8s.io"
CLERK: Final = "guards-of-clerks"
CHANGES: Final = ["create", "update", "patch", "delete"]
RIGHTS: Final[Any] = [
    {"apiGroups": ["", "apps", "batch", "networking.k8s.io", "policy"], "resources": ["*/status"], "verbs": CHANGES},
    {"apiGroups": ["apps", "batch", "networking.k8s.io", "policy"], "resources": ["*"], "verbs": CHANGES},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues"], "verbs": CHANGES},
    {
        "apiGroups": [""],
        "resources": ["namespaces", "namespaces/status", "pods", "pods/ephemeralcontainers", "secrets", "services"],
        "verbs": CHANGES,
    },
]
"""To change all, but not to read Secrets, create tokens or change Workloads: who may is not bound by all guards."""
OF_EVERYWHERE: Final = {"accounts", "priority", "secrets", "status", "tokens"}
OF_PLATFORM: Final = {"disruption", "expose", "namespace", "network", "queue-objects"}
OF_OPERATORS: Final = {"namespace", "network", "queue-objects", "release", "rollout", "status"}
FREE: Final = {
    "clerks": set[str](),
    "clerks-of-all-teams": OF_EVERYWHERE,
    "clerks-of-guards": OF_PLATFORM,
    "system:masters": {*POLICIES},
    "system:serviceaccounts:guards-exempt": {*POLICIES},
    "system:serviceaccounts:volcano-system": OF_OPERATORS,
    "system:serviceaccounts:kubeflow-system": {"release", "status"},
    # Their owners are not evaluated.
    "system:serviceaccounts:fluid-system": {
        *OF_OPERATORS,
        *("devices", "grace", "kueue-metadata", "ratio", "scale", "scheduling", "toleration"),
    },
}
"""Groups, and the guards that do not bind them."""
PATCHES: Final[dict[str, tuple[str, Any, str]]] = {
    "namespace": ("Namespace", {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "baseline"}}}, ""),
    "priority": ("Job", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "ml-low"}}}, ""),
    "queue-objects": ("LocalQueue", {"metadata": {"labels": {"note": "x"}}}, ""),
    "rollout": ("StatefulSet", {"spec": {"template": {"metadata": {"annotations": {"note": "x"}}}}}, ""),
    "scale": ("StatefulSet", {"spec": {"replicas": 4}}, "scale"),
    "status": ("Job", {"status": {"terminating": 1}}, "status"),
}
"""Kind, change and subresource."""


def wrong(guard: str) -> Any:
    """What `tenancy cluster doctor --live` tries for a guard, in the namespace of ml-research."""
    values = {"namespace": RESEARCH, "gpu": GPU, "taint": GPU, "many": "9", "class": ""}
    manifest: Any = json.loads(Template(json.dumps(attempts()[guard].create)).substitute(values))
    return {**manifest, "metadata": {**manifest["metadata"], "name": "doctor"}}


def _of(api: str, kind: str, name: str, namespace: str = "") -> Any:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **place}}


@pytest.fixture(scope="module")
def targets(cluster: Cluster, server: tuple[Any, Any]) -> Iterator[dict[str, Any]]:
    """What exists already, by kind."""
    own = job(RESEARCH, RESEARCH, pod_of(0))
    own["spec"]["suspend"] = True
    cluster.create(own)
    queue = _of("kueue.x-k8s.io/v1beta2", "LocalQueue", RESEARCH, RESEARCH)
    found = [own, queue, _of("v1", "Namespace", RESEARCH), server[0]]
    reference = Reference.of(server[0])
    cluster.wait_for(lambda: int_at(cluster.get(*reference) or {}, "status", "replicas") == 1, what="its status")
    yield {manifest["kind"]: manifest for manifest in found}
    cluster.delete(Reference.of(own))


@pytest.fixture(scope="module")
def clerk(cluster: Cluster, door: Door, deployed: Waves) -> Iterator[Person]:
    """Somebody who may act as somebody of any of the groups, with their rights."""
    assert deployed
    rbac, subjects = f"{RBAC}/v1", [{"kind": "Group", "apiGroup": RBAC, "name": name} for name in FREE]
    guarding = {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["patch"]}
    made: list[Any] = []
    for name, rules, bound in (
        (CLERK, RIGHTS, "clerks-of-all-teams"),
        (f"{CLERK}-of-guards", [guarding], "clerks-of-guards"),
    ):
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        only = [one for one in subjects if one["name"] == bound]
        made.append({**_of(rbac, "ClusterRole", name), "rules": rules})
        made.append({**_of(rbac, "ClusterRoleBinding", name), "subjects": only, "roleRef": role})
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": CLERK}
    made.append({**_of(rbac, "RoleBinding", CLERK, RESEARCH), "subjects": subjects, "roleRef": role})
    for manifest in made:
        cluster.apply(manifest)
    with door.let_in("clerk", "cluster-admin") as found:
        for name in FREE:
            person = found.impersonating(name)
            cluster.wait_for(lambda person=person: not person.refusal(pod(RESEARCH, None, pod_of(0))), what="rights")
        yield found
    for manifest in reversed(made):
        cluster.delete(Reference.of(manifest))


@pytest.mark.parametrize("group", FREE)
def test_each_guard_binds_all_but_those_whom_its_conditions_name(
    clerk: Person, targets: dict[str, Any], group: str
) -> None:
    person = clerk.impersonating(group)
    messages = {
        guard: person.refusal(wrong(guard)) for guard in [*POLICIES, "gpu-requests"] if attempts()[guard].create
    }
    for guard, (kind, change, subresource) in PATCHES.items():
        messages[guard] = person.patch_refusal(targets[kind], change, subresource=subresource)
    assert messages.keys() == {*POLICIES, "gpu-requests"}
    refusing = {guard for guard, message in messages.items() if f"'gpu-tenancy-{guard}'" in message}
    assert {guard: message for guard, message in messages.items() if message and guard not in refusing} == {}
    assert refusing == messages.keys() - FREE[group]
