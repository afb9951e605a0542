"""Subjects of each guard, and guards that are missing or weakened: `tenancy cluster doctor --live`."""

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any, Final, TypeAlias

import pytest
import yaml
from acceptance_builders import Waves, flat
from acceptance_guards import (
    EXPERIMENTS,
    NO_QUEUE,
    POLICIES,
    QUEUE,
    RESEARCH,
    Door,
    Person,
    job,
    job_set,
    labels,
    owned,
    pod,
    pod_group,
    pod_of,
    replicas,
)
from builders import Data, planned
from repository import ROOT

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.doctor.guards import live_rows
from gpu_tenancy.doctor.results import Row
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.observability.expressions import Expressions
from gpu_tenancy.model.plan import Plan


def test_old_objects_can_be_scaled_and_annotated(cluster: Cluster, tenant: Person) -> None:
    # The administrator is in system:masters, whom no rule judges: as if this were older than they.
    old = replicas("Deployment", EXPERIMENTS, None)
    old["spec"]["replicas"] = 0
    cluster.apply(old)
    reference = Reference.of(old)
    tenant.cluster.patch(reference, {"spec": {"replicas": 1}})
    tenant.cluster.patch(reference, {"metadata": {"annotations": {"note": "x"}}})
    with pytest.raises(ApiError, match="requests GPUs without a queue"):
        tenant.cluster.patch(reference, {"spec": {"template": {"metadata": {"labels": {"changed": "yes"}}}}})
    tenant.cluster.patch(reference, {"metadata": {"labels": {QUEUE: EXPERIMENTS}}})
    cluster.delete(reference)


def test_controllers_create_children_of_evaluated_objects(cluster: Cluster, tenant: Person) -> None:
    tenant.cluster.apply({**replicas("Deployment", EXPERIMENTS, EXPERIMENTS), "metadata": metadata("web")})
    tenant.cluster.apply({**job(EXPERIMENTS, EXPERIMENTS), "metadata": metadata("batch")})
    for name in ("web", "batch"):
        (made, *_) = cluster.wait_for(lambda name=name: pods_of(cluster, name) or None, what=f"the pod of {name}")
        assert at(made, "metadata", "labels", QUEUE) is None, "its owner has the queue; here no Kueue passes it on"
    for api, kind, name in (("apps/v1", "Deployment", "web"), ("batch/v1", "Job", "batch")):
        tenant.cluster.delete(Reference(api, kind, name, EXPERIMENTS))


def pods_of(cluster: Cluster, name: str) -> list[Any]:
    pods = cluster.list("v1", "Pod", namespace=EXPERIMENTS)
    return [one for one in pods if text_at(one, "metadata", "name").startswith(f"{name}-")]


def metadata(name: str) -> Any:
    return {"name": name, "namespace": EXPERIMENTS, "labels": labels(EXPERIMENTS)}


def test_every_object_of_the_stack_passed_and_its_pods_were_made(cluster: Cluster, deployed: Waves) -> None:
    for manifest in flat(deployed):
        assert cluster.exists(*Reference.of(manifest)), manifest["metadata"]
    for namespace, name, count in (("ml-serving", "model-server", 3), (RESEARCH, "nightly", 4)):
        chosen = f"app.kubernetes.io/name={name}"
        cluster.wait_for(
            lambda namespace=namespace, chosen=chosen, count=count: (
                len(cluster.list("v1", "Pod", namespace=namespace, labels=chosen)) >= count
            ),
            what=f"the pods of {name}",
        )


TRAIN_JOB = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
OF_GANG = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "g", "uid": "1"}
LIMITED = pod_of()
del LIMITED["containers"][0]["resources"]["requests"]

OTHERS = {
    "kubeflow-system": [
        (owned(*TRAIN_JOB, job_set(RESEARCH, None)), ""),
        (owned(*TRAIN_JOB, job_set(RESEARCH, None, LIMITED)), "sets nvidia.com/gpu under limits only in container c"),
        (owned("jobset.x-k8s.io/v1alpha2", "JobSet", job(RESEARCH, None)), ""),
        (job(RESEARCH, None), NO_QUEUE),
        (owned("example.com/v1", "Other", job_set(RESEARCH, None)), NO_QUEUE),
        (owned(*TRAIN_JOB, job_set(RESEARCH, None, pod_of(schedulerName="mine"))), "sets schedulerName mine"),
        # Of the TrainJob, which Kueue counts.
        (owned(*TRAIN_JOB, pod_group(RESEARCH, "default")), ""),
        (owned(*TRAIN_JOB, pod_group(RESEARCH, "ml-serving-l4")), "uses Volcano queue ml-serving-l4"),
    ],
    "volcano-system": [
        (owned("batch.volcano.sh/v1alpha1", "Job", pod(RESEARCH, None, pod_of(schedulerName="volcano"))), ""),
        (pod(RESEARCH, None), NO_QUEUE),
        # An owner that is no controller.
        (pod(RESEARCH, None, ownerReferences=[OF_GANG]), NO_QUEUE),
    ],
    "guards-others": [(pod(RESEARCH, None), NO_QUEUE)],
    # What is in no queue is not counted at all.
    "guards-exempt": [(pod(RESEARCH, None), ""), (job(RESEARCH, None, LIMITED), "")],
}


@pytest.mark.parametrize("home", OTHERS)
def test_operators_create_children_of_judged_owners(cluster: Cluster, door: Door, deployed: Waves, home: str) -> None:
    assert deployed
    with door.let_in("operator", "cluster-admin", home=home) as operator:
        cluster.wait_for(lambda: not operator.refusal(job(RESEARCH, RESEARCH)), what="rights")
        for manifest, words in OTHERS[home]:
            message = operator.refusal(manifest)
            assert words in message if words else not message, message


def test_system_namespaces_are_never_judged(cluster: Cluster, door: Door, namespace: str, deployed: Waves) -> None:
    assert deployed
    label = {"app.kubernetes.io/managed-by": "gpu-tenancy"}
    teams: Any = {"metadata": {"labels": label}}
    nobodys: Any = {"metadata": {"labels": dict.fromkeys(label)}}
    system = Reference("v1", "Namespace", "kube-system")
    for name in ("kube-system", namespace):
        cluster.wait_for(lambda name=name: cluster.exists("v1", "ServiceAccount", "default", name), what="accounts")
    broken = pod_of(
        0,
        tolerations=[{"operator": "Exists"}],
        schedulerName="mine",
        nodeName="n",
        priorityClassName="system-node-critical",
    )
    with door.let_in("visitor", "cluster-admin") as visitor:
        cluster.wait_for(lambda: not visitor.refusal(job("kube-system", None)), what="rights")
        cluster.patch(system, teams)
        assert not visitor.refusal(job("kube-system", None, broken))
        cluster.patch(system, nobodys)
        assert not visitor.refusal(job(namespace, None, broken))
        cluster.patch(Reference("v1", "Namespace", namespace), teams)
        visitor.wait_for_refusal(job(namespace, None), "requests GPUs without a queue", what="the label to count")


def test_rights_come_from_the_policys_spec_alone(deployed: Waves) -> None:
    policies: list[Any] = [deepcopy(one) for one in flat(deployed) if one["kind"] == "ValidatingAdmissionPolicy"]
    assert {one["metadata"]["name"].removeprefix("gpu-tenancy-") for one in policies} == {*POLICIES, "gpu-requests"}
    # Its parameters are Workloads, which tenants cannot change.
    assert [one["metadata"]["name"] for one in policies if "paramKind" in one["spec"]] == ["gpu-tenancy-rollout"]


# Guards that are missing or weakened.

METRICS: Final = ROOT / "tests" / "observability" / "metrics.yaml"
NAME = "gpu-tenancy-scheduling"
BINDING = ("ValidatingAdmissionPolicyBinding", NAME)
POLICY = ("ValidatingAdmissionPolicy", NAME)
GUARD = ("guard", f"scheduling in {RESEARCH}")


@pytest.fixture(scope="module")
def plan(sections: Data) -> Plan:
    return planned(sections)


def missing(rows: list[Row]) -> dict[tuple[str, str], str]:
    return {(row.check, row.subject): row.available for row in rows if row.verdict == "missing"}


def asked(cluster: Cluster, plan: Plan, deployed: Waves, team: str = RESEARCH) -> list[Row]:
    return [*live_rows(cluster, plan, flat(deployed), team)]


def test_guards_that_are_in_force_are_ok_in_every_namespace(cluster: Cluster, plan: Plan, deployed: Waves) -> None:
    rows = asked(cluster, plan, deployed, "")
    assert missing(rows) == {}
    tried = {row.subject.partition(" ")[0]: row for row in rows if row.check == "guard" and row.verdict == "OK"}
    assert {"accounts", "amount", "devices", "queue", "release", "scheduling", "secrets", "tokens"} <= tried.keys()
    by_rbac, by_guard = (f"not asked: denied first by {who}; policy as in the stack" for who in ("RBAC", NAME))
    assert {row.available for row in tried.values()} <= {"denied", by_rbac, by_guard}
    assert tried["scheduling"].available == "denied"
    assert tried["disruption"].available == by_rbac


@contextmanager
def changed(cluster: Cluster, deployed: Waves, kind: str, patch: Any, name: str = NAME) -> Generator[None]:
    own = next(one for one in flat(deployed) if (one["kind"], one["metadata"]["name"]) == (kind, name))  # type: ignore[index]
    if patch is None:
        cluster.delete(Reference.of(own))
    else:
        cluster.patch(Reference.of(own), patch)
    try:
        yield
    finally:
        cluster.delete(Reference.of(own))  # an apply would merge lists with those of the patch
        cluster.apply(own)


# Kind, patch (None for a deletion), and missing guards then.
Weaker: TypeAlias = tuple[str, Any, dict[tuple[str, str], str]]
WEAKER: list[Weaker] = [
    (BINDING[0], None, {BINDING: "missing", GUARD: "accepted"}),
    (
        BINDING[0],
        {"spec": {"validationActions": ["Audit"]}},
        {BINDING: "spec.validationActions[0] differs", GUARD: "accepted"},
    ),
    (
        BINDING[0],
        {"spec": {"validationActions": ["Warn"]}},
        {BINDING: "spec.validationActions[0] differs", GUARD: "warning"},
    ),
    (POLICY[0], None, {POLICY: "missing", GUARD: "accepted"}),
    (
        POLICY[0],
        {
            "spec": {
                "matchConstraints": {
                    "excludeResourceRules": [
                        {"apiGroups": ["batch"], "apiVersions": ["*"], "operations": ["*"], "resources": ["jobs"]}
                    ]
                }
            }
        },
        {POLICY: "spec.matchConstraints.excludeResourceRules differs", GUARD: "accepted"},
    ),
]


@pytest.mark.parametrize("weaker", WEAKER)
def test_deleted_and_weakened_guards_are_found(cluster: Cluster, plan: Plan, deployed: Waves, weaker: Weaker) -> None:
    kind, patch, expected = weaker
    with changed(cluster, deployed, kind, patch):
        seen: dict[tuple[str, str], str] = {}

        def found() -> bool:
            seen.clear()
            seen.update(missing(asked(cluster, plan, deployed)))
            return seen == expected

        with suppress(WaitTimeoutError):
            cluster.wait_for(found, timeout=20)
        assert seen == expected
    cluster.wait_for(lambda: not missing(asked(cluster, plan, deployed)), what="the guard to be in force again")


def test_guards_behind_rbac_are_judged_by_their_policy(cluster: Cluster, plan: Plan, deployed: Waves) -> None:
    with changed(cluster, deployed, POLICY[0], {"spec": {"failurePolicy": "Ignore"}}, "gpu-tenancy-disruption"):
        rows = asked(cluster, plan, deployed)
    assert missing(rows) == {(POLICY[0], "gpu-tenancy-disruption"): "spec.failurePolicy differs"}
    (row,) = (row for row in rows if row.subject == f"disruption in {RESEARCH}")
    assert (row.available, row.verdict) == ("not asked: denied first by RBAC", "unknown")


def test_metrics_count_changes_of_guards(cluster: Cluster, door: Door, deployed: Waves) -> None:
    with changed(cluster, deployed, BINDING[0], {"spec": {"validationActions": ["Audit"]}}):
        pass
    with door.let_in("prometheus", "cluster-admin") as prometheus:
        every = prometheus.send("GET", "/metrics").data.decode().splitlines()
        lines = [line for line in every if line.startswith("apiserver_request_total{")]
    series = [dict[str, str](re.findall(r'(\w+)="([^"]*)"', line)) for line in lines]
    (table,) = (row for row in yaml.safe_load(METRICS.read_bytes()) if row["from"] == "kube-apiserver")
    assert {name for labels in series for name in labels} == {*table["metrics"]["apiserver_request_total"]}
    matchers = re.findall(r'(\w+)=~?"([^"]*)"', Expressions.policy_changes())
    counted = [one for one in series if all(re.fullmatch(value, one[name]) for name, value in matchers)]
    changes = {("PATCH", "validatingadmissionpolicybindings"), ("DELETE", "validatingadmissionpolicybindings")}
    assert {(one["verb"], one["resource"]) for one in counted} >= changes


def test_no_guard_is_missing_without_impersonation(door: Door, plan: Plan, deployed: Waves) -> None:
    with door.let_in("watcher", "view", RESEARCH, home="test-watcher") as watcher:
        rows = asked(watcher.cluster, plan, deployed)
    assert missing(rows) == {}
    assert {row.subject for row in rows if row.verdict != "unknown"} <= {"queue-objects in 1 namespace"}
    fixes = {row.fix for row in rows}
    assert "grant get on validatingadmissionpolicy in admissionregistration.k8s.io" in fixes
    assert "run it as somebody who may impersonate users and groups, on a stack whose teams have members" in fixes


def test_a_namespace_that_lost_its_label_is_found(cluster: Cluster, plan: Plan, deployed: Waves) -> None:
    namespace = Reference("v1", "Namespace", EXPERIMENTS)
    label = "app.kubernetes.io/managed-by"
    cluster.patch(namespace, {"metadata": {"labels": {label: "somebody"}}})
    try:
        subject = ("guard", f"scheduling in {EXPERIMENTS}")
        cluster.wait_for(
            lambda: missing(asked(cluster, plan, deployed, EXPERIMENTS)).get(subject) == "accepted", what="no guard"
        )
    finally:
        cluster.patch(namespace, {"metadata": {"labels": {label: "gpu-tenancy"}}})
    cluster.wait_for(lambda: not missing(asked(cluster, plan, deployed, EXPERIMENTS)), what="the guards to be back")
