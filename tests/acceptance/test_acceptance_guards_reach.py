"""Subjects of each guard, exempt users, and guards that are missing or weakened: `tenancy cluster doctor --live`."""

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from string import Template
from typing import Any, Final, TypeAlias

import pytest
import yaml
from acceptance_builders import Waves, a_binding, flat
from acceptance_guards import (
    EXPERIMENTS,
    GPU,
    NO_QUEUE,
    POLICIES,
    QUEUE,
    RESEARCH,
    Door,
    Person,
    an_object,
    job,
    job_set,
    labels,
    owned,
    pod,
    pod_group,
    pod_of,
    ray_cluster,
    ray_job,
    ray_service,
    replicas,
)
from builders import Data, planned
from repository import ROOT

from gpu_tenancy.base.json import at, int_at, text_at
from gpu_tenancy.doctor.guards import attempts, live_rows
from gpu_tenancy.doctor.results import Row
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.observability.expressions import expressions
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
    assert not [one["metadata"]["name"] for one in policies if "paramKind" in one["spec"]]


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
ACTIONS: Final = "spec.validationActions[0] differs"
RULES: Final = "spec.matchConstraints.excludeResourceRules differs"
JOBS: Final = {"apiGroups": ["batch"], "apiVersions": ["*"], "operations": ["*"], "resources": ["jobs"]}
WEAKER: list[Weaker] = [
    (BINDING[0], None, {BINDING: "missing", GUARD: "accepted"}),
    (BINDING[0], {"spec": {"validationActions": ["Audit"]}}, {BINDING: ACTIONS, GUARD: "accepted"}),
    (BINDING[0], {"spec": {"validationActions": ["Warn"]}}, {BINDING: ACTIONS, GUARD: "warning"}),
    (POLICY[0], None, {POLICY: "missing", GUARD: "accepted"}),
    (POLICY[0], {"spec": {"matchConstraints": {"excludeResourceRules": [JOBS]}}}, {POLICY: RULES, GUARD: "accepted"}),
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
    matchers = re.findall(r'(\w+)=~?"([^"]*)"', expressions((), ())["policy_changes"]())
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


IN_FORCE: Final = [*(name for name in POLICIES if name != "operators"), "gpu-requests"]  # that binds operators only
RBAC: Final = "rbac.authorization.k8s.io/v1"
CLERK: Final = "guards-of-clerks"
CHANGES: Final = ["create", "update", "patch", "delete"]
# All changes, but not to read Secrets, create tokens or change Workloads: some guards exempt users with these rights.
RIGHTS: Final[Any] = [
    {"apiGroups": ["", "apps", "batch", "networking.k8s.io", "policy"], "resources": ["*/status"], "verbs": CHANGES},
    {"apiGroups": ["apps", "batch", "networking.k8s.io", "policy"], "resources": ["*"], "verbs": CHANGES},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues", "localqueues/status"], "verbs": CHANGES},
    {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": CHANGES},
    {"apiGroups": ["ray.io"], "resources": ["*"], "verbs": CHANGES},
    {
        "apiGroups": [""],
        "resources": [
            *("limitranges", "namespaces", "namespaces/finalize", "pods", "pods/ephemeralcontainers", "resourcequotas"),
            *("secrets", "services"),
        ],
        "verbs": CHANGES,
    },
]
# To read Secrets and create tokens; `let_in` adds Kueue's rights.
OWN_RIGHTS: Final[Any] = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": CHANGES},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get"]},
    {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
]
OF_EVERYWHERE: Final = {"accounts", "owners", "priority", "secrets", "sizes", "status", "tokens"}
OF_PLATFORM: Final = {"disruption", "expose", "namespace", "network", "queue-objects"}
# Guards that ignore objects of operators for an owner that was checked.
OF_OWNED: Final = {
    *("amount", "devices", "gpu-requests", "grace", "kueue-metadata", "queue", "ratio", "scheduling", "toleration")
}
OF_OPERATORS: Final = {"namespace", "network", "owners", "queue-objects", "release", "sizes", "status"}
# Groups, and the guards that do not bind them.
FREE: Final = {
    "clerks": set[str](),
    "clerks-of-all-teams": OF_EVERYWHERE,
    "clerks-of-guards": OF_PLATFORM,
    # Everywhere, each with one verb; the last only for statuses.
    "clerks-that-create": {"accounts", "owners", "secrets", "tokens"},
    "clerks-that-update": {"priority", "sizes", "status"},
    "clerks-that-patch": {"status"},
    "system:masters": {*POLICIES},
    "system:serviceaccounts:guards-exempt": {*POLICIES},
    "system:serviceaccounts:volcano-system": OF_OPERATORS,
    "system:serviceaccounts:kubeflow-system": {"owners", "release", "sizes", "status"},
    # Their owners are not evaluated.
    "system:serviceaccounts:fluid-system": {
        *OF_OPERATORS,
        *("devices", "grace", "kueue-metadata", "ratio", "scheduling", "toleration"),
    },
}
# Kind, change and subresource.
PATCHES: Final[dict[str, tuple[str, Any, str]]] = {
    "namespace": ("Namespace", {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "baseline"}}}, ""),
    "priority": ("Job", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "ml-low"}}}, ""),
    "queue-objects": ("LocalQueue", {"metadata": {"labels": {"note": "x"}}}, ""),
    "sizes": ("Job", {"spec": {"suspend": False}}, ""),
    "status": ("Job", {"status": {"terminating": 1}}, "status"),
}


def wrong(guard: str) -> Any:
    """The attempt of `tenancy cluster doctor --live` for a guard, in the namespace of ml-research."""
    values = {"namespace": RESEARCH, "gpu": GPU, "taint": GPU, "many": "9", "class": ""}
    manifest: Any = json.loads(Template(json.dumps(attempts()[guard].create)).substitute(values))
    return {**manifest, "metadata": {**manifest["metadata"], "name": "doctor"}}


def verbs_of(verb: str) -> list[Any]:
    return [{**rule, "verbs": [verb]} for rule in (RIGHTS[:1] if verb == "patch" else RIGHTS)]


@pytest.fixture(scope="module")
def targets(cluster: Cluster, server: tuple[Any, Any]) -> Iterator[dict[str, Any]]:
    """Existing objects by kind."""
    own = job(RESEARCH, RESEARCH, pod_of(0))
    own["spec"]["suspend"] = True
    cluster.create(own)
    queue = an_object("kueue.x-k8s.io/v1beta2", "LocalQueue", RESEARCH, RESEARCH)
    found = [own, queue, an_object("v1", "Namespace", RESEARCH), server[0]]
    reference = Reference.of(server[0])
    cluster.wait_for(lambda: int_at(cluster.get(*reference) or {}, "status", "replicas") == 1, what="its status")
    yield {manifest["kind"]: manifest for manifest in found}
    cluster.delete(Reference.of(own))


@pytest.fixture(scope="module")
def clerk(cluster: Cluster, door: Door, deployed: Waves) -> Iterator[Person]:
    """A user who may impersonate users of any of the groups, with their rights."""
    assert deployed
    groups = [("Group", name) for name in FREE]
    guarding = {"apiGroups": ["admissionregistration.k8s.io"], "verbs": ["patch"]}
    guarding["resources"] = ["validatingadmissionpolicies"]
    made: list[Any] = []
    for name, rules, bound in (
        (CLERK, RIGHTS, "clerks-of-all-teams"),
        (f"{CLERK}-of-guards", [guarding], "clerks-of-guards"),
        *((f"{CLERK}-that-{verb}", verbs_of(verb), f"clerks-that-{verb}") for verb in CHANGES[:3]),
    ):
        made.append({**an_object(RBAC, "ClusterRole", name), "rules": rules})
        made.append(a_binding(name, name, ("Group", bound)))
    made.append(a_binding(CLERK, CLERK, *groups, namespace=RESEARCH))
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
    messages = {guard: person.refusal(wrong(guard)) for guard in IN_FORCE if attempts()[guard].create}
    for guard, (kind, change, subresource) in PATCHES.items():
        messages[guard] = person.patch_refusal(targets[kind], change, subresource=subresource)
    assert messages.keys() == {*IN_FORCE}
    refusing = {guard for guard, message in messages.items() if f"'gpu-tenancy-{guard}'" in message}
    assert {guard: message for guard, message in messages.items() if message and guard not in refusing} == {}
    assert refusing == messages.keys() - FREE[group]


def test_guards_do_not_bind_those_with_the_right_by_rbac(door: Door, targets: dict[str, Any], clerk: Person) -> None:
    clerks = clerk.impersonating("clerks")
    kind, change, _ = PATCHES["priority"]
    role = {**an_object(RBAC, "ClusterRole", f"{CLERK}-with-tokens"), "rules": OWN_RIGHTS}
    door.cluster.apply(role)
    with door.let_in("owner", role["metadata"]["name"], RESEARCH) as owner:
        door.cluster.wait_for(lambda: not owner.refusal(pod(RESEARCH, None, pod_of(0))), what="rights")
        for guard in ("accounts", "secrets", "tokens"):
            assert f"'gpu-tenancy-{guard}'" in clerks.refusal(wrong(guard))
            assert not owner.refusal(wrong(guard))
        assert "'gpu-tenancy-priority'" in clerks.patch_refusal(targets[kind], change)
        assert not owner.patch_refusal(targets[kind], change)
    door.cluster.delete(Reference.of(role))


def test_pod_groups_of_trainer_are_counted_by_train_jobs(clerk: Person) -> None:
    queued = pod_group(RESEARCH, "default")
    assert "uses Volcano queue default" in clerk.impersonating("clerks").refusal(queued)
    assert not clerk.impersonating("system:serviceaccounts:kubeflow-system").refusal(queued)


def test_children_of_judged_owners_are_not_judged_again(clerk: Person) -> None:
    operator, owner = clerk.impersonating("system:serviceaccounts:volcano-system"), ("batch.volcano.sh/v1alpha1", "Job")
    jobs = {guard: one.create for guard, one in attempts().items() if one.create.get("kind") == "Job"}
    judged = {guard for guard in jobs if guard in IN_FORCE and operator.refusal(owned(*owner, wrong(guard)))}
    assert judged == {"accounts", "count", "secrets"}
    assert jobs.keys() >= OF_OWNED | judged


@pytest.mark.parametrize("guard", sorted(OF_OWNED - {"gpu-requests"} | {"accounts", "secrets"}))
def test_an_update_is_judged_only_if_it_changes_what_pods_get(
    clerk: Person, kept: Callable[..., Any], guard: str
) -> None:
    """The object is older than the guards."""
    old = wrong(guard)
    old["spec"]["suspend"] = True
    kept(old)
    person = clerk.impersonating("clerks")
    note: Any = {"metadata": {"annotations": {"note": "x"}}}
    for patch in (note, {"spec": {"activeDeadlineSeconds": 60}}):
        assert not person.patch_refusal(old, patch)
    assert f"'gpu-tenancy-{guard}'" in person.patch_refusal(old, {"spec": {"template": note}})


def in_ray(**options: Any) -> list[Any]:
    """Kinds of Ray, without GPUs, with options of the cluster."""
    made = [of(RESEARCH, None, pod_of(0, restartPolicy="Always")) for of in (ray_cluster, ray_job, ray_service)]
    cluster, of_job, of_service = made
    for spec in (cluster["spec"], of_job["spec"]["rayClusterSpec"], of_service["spec"]["rayClusterConfig"]):
        spec.update(options)
    return made


def with_redis(field: str, name: str) -> list[Any]:
    key = {"valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}
    return in_ray(gcsFaultToleranceOptions={"redisAddress": "redis:6379", field: key})


def with_volume(**volume: Any) -> list[Any]:
    return [pod(RESEARCH, None, pod_of(0, volumes=[{"name": "v", **volume}]))]


# Ways to read a Secret of which researchers use none, or by volumes that the guard `devices` refuses before.
READERS: Final[dict[str, Callable[[str], list[Any]]]] = {
    "azureFile": lambda name: with_volume(azureFile={"shareName": "s", "secretName": name}),
    "cephfs": lambda name: with_volume(cephfs={"monitors": ["m"], "secretRef": {"name": name}}),
    "cinder": lambda name: with_volume(cinder={"volumeID": "v", "secretRef": {"name": name}}),
    "csi": lambda name: with_volume(csi={"driver": "x.io", "volumeAttributes": {"SecretName": name}}),
    "flexVolume": lambda name: with_volume(flexVolume={"driver": "x.io/d", "secretRef": {"name": name}}),
    "rbd": lambda name: with_volume(rbd={"monitors": ["m"], "image": "i", "secretRef": {"name": name}}),
    "storageos": lambda name: with_volume(storageos={"volumeName": "v", "secretRef": {"name": name}}),
    "Ray's token": lambda name: in_ray(authOptions={"mode": "token", "secretName": name}),
    "password of Ray's Redis": partial(with_redis, "redisPassword"),
    "user of Ray's Redis": partial(with_redis, "redisUsername"),
    "variable of Ray's autoscaler": lambda name: in_ray(
        autoscalerOptions={"env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]}
    ),
}


@pytest.mark.parametrize("way", READERS)
def test_secrets_are_not_read_past_pod_fields(clerk: Person, kept: Callable[..., Any], way: str) -> None:
    """As an account that only the guard `devices` does not bind."""
    person = clerk.impersonating("system:serviceaccounts:fluid-system")
    for hostile, honest in zip(READERS[way]("theirs"), READERS[way]("shared"), strict=True):
        assert "'gpu-tenancy-secrets'" in (message := person.refusal(hostile))
        assert "uses Secret theirs, but you may not read Secrets in this namespace" in message
        assert not person.refusal(honest)
        if hostile["kind"] == "RayCluster":
            kept(honest)
            assert "uses Secret theirs" in person.patch_refusal(honest, {"spec": hostile["spec"]})
            assert not person.patch_refusal(honest, {"metadata": {"labels": {"note": "x"}}})


SHELL: Final = {"name": "shell", "image": "a:1"}


@pytest.mark.parametrize(
    ("guard", "account", "shell"),
    [
        ("accounts", "ci", SHELL),
        ("devices", None, {**SHELL, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
        ("secrets", None, {**SHELL, "envFrom": [{"secretRef": {"name": "theirs"}}]}),
    ],
)
def test_a_container_that_is_added_to_a_pod_is_judged(
    clerk: Person, kept: Callable[..., Any], guard: str, account: str | None, shell: Any
) -> None:
    own = kept(pod(RESEARCH, None, pod_of(0, **({"serviceAccountName": account} if account else {}))))
    refusals = [
        clerk.impersonating(group).patch_refusal(
            own, {"spec": {"ephemeralContainers": [one]}}, subresource="ephemeralcontainers"
        )
        for group, one in (("clerks", shell), ("clerks", SHELL), ("clerks-that-update", shell))
    ]
    assert f"'gpu-tenancy-{guard}'" in refusals[0]
    assert (f"'gpu-tenancy-{guard}'" in refusals[2]) == (guard not in OF_EVERYWHERE)
    assert refusals[1] == (refusals[0] if shell is SHELL else "")


TOKEN: Final[Any] = {**an_object("v1", "Secret", "token", RESEARCH), "type": "kubernetes.io/service-account-token"}
TOKEN["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
CHANGED: Final = {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "baseline"}}}
PLACE: Final = f"/api/v1/namespaces/{RESEARCH}"


def test_subresources_and_updates_are_no_way_around(cluster: Cluster, clerk: Person, kept: Callable[..., Any]) -> None:
    person = clerk.impersonating("clerks")
    kept(TOKEN)
    (quota, *_) = cluster.list("v1", "ResourceQuota", namespace=RESEARCH)
    (limits, *_) = cluster.list("v1", "LimitRange", namespace=RESEARCH)
    home: Any = cluster.get("v1", "Namespace", RESEARCH)
    home["metadata"]["labels"] |= CHANGED["metadata"]["labels"]
    queue = an_object("kueue.x-k8s.io/v1beta2", "LocalQueue", RESEARCH, RESEARCH)
    kinds: Any = {"apiVersion": "v1"}
    quota, limits = {**quota, **kinds, "kind": "ResourceQuota"}, {**limits, **kinds, "kind": "LimitRange"}
    new = an_object("v1", "", "own", RESEARCH)
    note: Any = {"metadata": {"labels": {"note": "x"}}}
    messages = [
        ("tokens", person.patch_refusal(TOKEN, note)),
        ("namespace", person.patch_refusal(an_object("v1", "Namespace", RESEARCH), CHANGED, subresource="status")),
        ("namespace", str(person.asked("PUT", f"{PLACE}/finalize", home))),
        ("queue-objects", person.refusal({**new, "kind": "LimitRange", "spec": {"limits": []}})),
        ("queue-objects", person.refusal({**new, "kind": "ResourceQuota", "spec": {}})),
        *(("queue-objects", person.patch_refusal(one, note)) for one in (quota, limits)),
        *(("queue-objects", person.delete_refusal(one)) for one in (queue, quota, limits)),
        ("queue-objects", person.patch_refusal(quota, {"status": {"used": {"pods": "0"}}}, subresource="status")),
        ("queue-objects", person.patch_refusal(queue, {"status": {"pendingWorkloads": 1}}, subresource="status")),
    ]
    assert [(guard, message) for guard, message in messages if f"'gpu-tenancy-{guard}'" not in message] == []
