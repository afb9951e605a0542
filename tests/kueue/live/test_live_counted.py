"""For each kind that Kueue integrates, Kueue counts the pods' resources on nodes, or the object is refused.

A table of kinds from `kinds.yaml` and of ways to write resources: Kueue's admitted amounts and the scheduled ones.
Pods beyond them are deleted by a CronJob, which leaves all of the table alone.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
from builders import GPU, Data
from kinds_by_hand import AROUND, FORMS, IN_RAY, INTEGRATED, name_of, written
from queueing import a_job, workload_of
from researchers import TEAM, Researcher, weakened
from scheduled import Scheduled

from gpu_tenancy.base.json import at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import add, amounts
from gpu_tenancy.cluster.demand import owners
from gpu_tenancy.cluster.pods import requests
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.kinds import kind_at
from gpu_tenancy.model.plan.guards import UNCOUNTED

pytestmark = [
    pytest.mark.platform,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no `kubectl` on the PATH"),
]
ONE: Final[Data] = {"cpu": "1", "memory": "1Gi", GPU: "1"}
STAYS: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
NOT_COUNTED: Final = "and Kueue would count 0; set the same number under requests"


def counted_and_held(cluster: Cluster, made: Manifest) -> tuple[dict[str, int], dict[str, int]] | None:
    """Kueue's count of an object and its pods' resources on nodes; None while a pod is pending or missing."""
    pods = [one for one in cluster.list("v1", "Pod", namespace=TEAM) if belongs(one, made)]
    uids = {text_at(made, "metadata", "uid"), *(text_at(pod, "metadata", "uid") for pod in pods)}
    counted: dict[str, int] = {}
    number = 0
    for workload in workloads_of(cluster, *uids):
        for pod_set in maps_at(workload, "status", "admission", "podSetAssignments"):
            counted = add(counted, amounts(at(pod_set, "resourceUsage")))
            number += int(str(at(pod_set, "count")))
    if not pods or len(pods) != number or not all(at(pod, "spec", "nodeName") for pod in pods):
        return None
    return counted, add(*(requests(map_at(pod, "spec")) for pod in pods))


def workloads_of(cluster: Cluster, *uids: str) -> list[Manifest]:
    found = cluster.list(KUEUE, "Workload", namespace=TEAM)
    return [workload for workload in found if not {*uids}.isdisjoint(owners(workload))]


def belongs(pod: Manifest, made: Manifest) -> bool:
    """Whether a pod is of an object, by the names that all controllers give."""
    return f"{text_at(pod, 'metadata', 'name')}-".startswith(f"{text_at(made, 'metadata', 'name')}-")


@pytest.mark.parametrize("kind", AROUND)
def test_kueue_counts_what_pods_hold_however_it_is_written(boss: Researcher, kind: str, tmp_path: Path) -> None:
    forms = ["both", "limits", "cpu-limits"] if kind == "TrainJob" else [*FORMS]
    forms = [form for form in forms if form != "small" or "Ray" in kind]  # only Ray's workers have a least size
    made: dict[str, Manifest] = {}
    try:
        for form in forms:
            if form == "small":
                with pytest.raises(ApiError, match=r"less (cpu|memory) for a Ray worker than (200m|256Mi), which the"):
                    boss.submit(written(INTEGRATED[kind], form))
                continue
            made[form] = boss.submit(written(INTEGRATED[kind], form))
        for form, one in made.items():
            what = f"the pods of {kind} {form}"
            counted, held = boss.cluster.wait_for(
                lambda one=one: counted_and_held(boss.cluster, one), timeout=60, what=what
            )
            assert counted == {resource: held.get(resource, 0) for resource in counted}, form
            assert held[GPU] > 0
            pods = [pod for pod in boss.cluster.list("v1", "Pod", namespace=TEAM) if belongs(pod, one)]
            assert {stays(pod) for pod in pods} == {INTEGRATED[kind].is_job}, form
        assert deletion(boss, tmp_path)() == ""
    finally:
        for one in made.values():
            boss.end(one)


def deletion(researcher: Researcher, folder: Path, pause: str = "0") -> Scheduled:
    """The CronJob that deletes pods beyond what Kueue counts, with seconds between its reads."""
    return Scheduled(researcher, folder, UNCOUNTED.namespace, UNCOUNTED.name, PAUSE=pause)


@pytest.fixture
def unstoppable(boss: Researcher) -> Iterator[None]:
    """Kueue cannot change the Job `deaf`."""
    metadata: Any = {"name": "test-deaf"}
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]}
    spec: Any = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [
            {"name": "deaf", "expression": "object.metadata.name == 'deaf' && !oldObject.spec.suspend"}
        ],
        "validations": [{"expression": "false", "message": "stays as it is"}],
    }
    bound: Any = {"policyName": "test-deaf", "validationActions": ["Deny"]}
    api = "admissionregistration.k8s.io/v1"
    made: list[Manifest] = [
        {"apiVersion": api, "kind": f"ValidatingAdmissionPolicy{kind}", "metadata": metadata, "spec": one}
        for kind, one in (("", spec), ("Binding", bound))
    ]
    for one in made:
        boss.cluster.apply(one)
    yield
    for one in made:
        boss.cluster.delete(Reference.of(one))


@pytest.mark.usefixtures("unstoppable")
def test_pods_that_kueue_cannot_stop_are_deleted_with_their_job(boss: Researcher, tmp_path: Path) -> None:
    cluster, jobs = boss.cluster, {name: boss.submit(a_job(name, TEAM, ONE)) for name in ("deaf", "stays")}
    for name in jobs:
        boss.running(name, 1)
    label: Manifest = {"metadata": {"labels": {"a": "b"}}}
    cluster.wait_for(lambda: refused(cluster, jobs["deaf"], label) or None, what="the policy to be in force")
    assert deletion(boss, tmp_path)() == ""
    cluster.patch(Reference.of(workload_of(cluster, "deaf", TEAM)), {"spec": {"active": False}})
    done = deletion(boss, tmp_path, "2")()
    assert done.startswith('job.batch "deaf" deleted')
    cluster.wait_for(lambda: not boss.pods("deaf") or None, what="the end of its pods")
    assert cluster.get(*Reference.of(jobs["deaf"])) is None
    events = [one for one in boss.own.list("v1", "Event", namespace=TEAM) if at(one, "reason") == "UncountedGPUs"]
    assert {text_at(one, "involvedObject", "kind") for one in events} == {"Job", "Pod"}
    (message,) = {text_at(one, "message") for one in events}
    assert message.endswith(" counts 0 of 1 nvidia.com/gpu on nodes")
    assert len(boss.pods("stays")) == 1
    boss.end(jobs["stays"])


def refused(cluster: Cluster, one: Manifest, change: Manifest) -> bool:
    try:
        cluster.patch(Reference.of(one), change)
    except ApiError:
        return True
    return False


def test_pods_that_nothing_owns_are_deleted(boss: Researcher, tmp_path: Path) -> None:
    job, other = (boss.submit(a_job(name, TEAM, ONE)) for name in ("gone", "stays"))
    (pod,) = boss.running("gone", 1)
    boss.running("stays", 1)
    workload = Reference.of(workload_of(boss.cluster, "gone", TEAM))
    boss.cluster.patch(Reference.of(pod), {"metadata": {"ownerReferences": None, "finalizers": None}})
    boss.cluster.delete(Reference.of(job))
    boss.cluster.delete(workload)
    boss.cluster.wait_for(lambda: boss.cluster.get(*workload) is None or None, what="the end of its Workload")
    assert deletion(boss, tmp_path)().startswith(f'pod "{text_at(pod, "metadata", "name")}" deleted')
    boss.cluster.wait_for(lambda: not boss.pods("gone") or None, what="the end of its pod")
    assert len(boss.pods("stays")) == 1
    boss.end(other)


def test_the_account_can_do_nothing_else(boss: Researcher, tmp_path: Path) -> None:
    run = deletion(boss, tmp_path)
    refused = {
        "get": ("secrets", "configmaps", "pods", "deployments.apps"),
        "create": ("pods", "pods/exec", "workloads.kueue.x-k8s.io", "jobs.batch", "pods/eviction"),
        "delete": ("localqueues.kueue.x-k8s.io", "deployments.apps", "statefulsets.apps", "secrets", "events"),
        "patch": ("jobs.batch", "pods", "workloads.kueue.x-k8s.io"),
    }
    assert [(verb, one) for verb, names in refused.items() for one in names if run.can(verb, one, TEAM)] == []
    assert run.can("delete", "pods", TEAM)
    assert not run.can("delete", "pods", "kube-system")
    assert not run.can("list", "pods", UNCOUNTED.namespace)


CHILDREN: Final = [INTEGRATED[kind].api for kind in ("Job", "JobSet", "RayCluster")]


def with_children(boss: Researcher, made: Manifest) -> list[Manifest]:
    """The object and what operators create of it, in their current versions."""
    apis = {(text_at(made, "apiVersion"), text_at(made, "kind")), *CHILDREN}
    return [one for api in apis for one in boss.cluster.list(*api, namespace=TEAM) if belongs(one, made)]


def sizes(one: Manifest) -> Iterator[tuple[str, Any]]:
    """JSON pointers of the fields by which an object gets pods, with other values."""
    kind = kind_at((text_at(one, "apiVersion"), text_at(one, "kind")))
    for pods in kind.pods:
        at_one = "/".join(step.field + ("/0" if step.form == "[]" else "") for step in pods.at)
        for field in (*pods.count, *pods.sizes):
            value = True if field == "suspend" else 1 if field.endswith("parallelism") else 3
            yield f"/{at_one}/{field.replace('.', '/')}", value
    path = [step.field for step in kind.suspend]
    yield f"/{'/'.join(path)}", at(one, *path) is not True


def refuse(boss: Researcher, made: Manifest, *, only: str = "") -> int:
    """Patches each size of an object and of its children; returns the number of objects."""
    found = with_children(boss, made)
    for one in found:
        child = text_at(one, "kind") != text_at(made, "kind")
        words = "only the operator of" if child else "which only Kueue may change"
        for path, value in sizes(one):
            if path.endswith(only):
                with pytest.raises(
                    ApiError,
                    match=words if path.endswith("/suspend") else f"{words}|set replicas to minReplicas|422 Invalid",
                ):
                    boss.own.amend(Reference.of(one), [{"op": "add", "path": path, "value": value}])
    return len(found)


@pytest.mark.parametrize("kind", [kind for kind in AROUND if INTEGRATED[kind].suspend])
def test_only_operators_change_sizes_and_leads_requeue(boss: Researcher, kind: str) -> None:
    cluster, queue = boss.cluster, Reference(KUEUE, "LocalQueue", TEAM, TEAM)
    cluster.patch(queue, {"spec": {"stopPolicy": "Hold"}})
    made = boss.submit(written(INTEGRATED[kind], "both"))
    try:
        uid = text_at(made, "metadata", "uid")
        (workload,) = cluster.wait_for(lambda: workloads_of(cluster, uid) or None, what="its Workload")
        refuse(boss, made, only="suspend")
        cluster.patch(queue, {"spec": {"stopPolicy": "None"}})
        counted = cluster.wait_for(lambda: counted_and_held(cluster, made), timeout=60, what="its pods")
        assert refuse(boss, made) > (kind in {"JobSet", "TrainJob", "RayJob", "RayService"})
        assert counted_and_held(cluster, made) == counted
        boss.own.patch(Reference.of(workload), {"spec": {"active": False}})
        cluster.wait_for(lambda: not boss.pods(name_of(INTEGRATED[kind], "both")) or None, what="its eviction")
        boss.own.patch(Reference.of(workload), {"spec": {"active": True}})
        assert cluster.wait_for(lambda: counted_and_held(cluster, made), timeout=60, what="its new pods") == counted
    finally:
        cluster.patch(queue, {"spec": {"stopPolicy": "None"}})
        boss.end(made)


@pytest.mark.parametrize("kind", ["StatefulSet", "LeaderWorkerSet"])
def test_a_pending_server_can_change_and_is_counted(boss: Researcher, kind: str) -> None:
    cluster, queue = boss.cluster, Reference(KUEUE, "LocalQueue", TEAM, TEAM)
    cluster.patch(queue, {"spec": {"stopPolicy": "Hold"}})
    made, name = boss.submit(written(INTEGRATED[kind], "both")), name_of(INTEGRATED[kind], "both")
    try:
        cluster.wait_for(lambda: boss.pods(name) or None, what="its pods")
        newer: Any = {"metadata": {"annotations": {"note": "newer"}}}
        spec: Any = (
            {"leaderWorkerTemplate": {"workerTemplate": newer}} if kind != "StatefulSet" else {"template": newer}
        )
        boss.own.patch(Reference.of(made), {"spec": spec})
        time.sleep(5)  # Kueue removes the gates of old pods after a second if nothing refuses it
        assert not [pod for pod in boss.pods(name) if text_at(pod, "spec", "nodeName")]
        cluster.patch(queue, {"spec": {"stopPolicy": "None"}})
        counted, held = cluster.wait_for(lambda: counted_and_held(cluster, made), timeout=60, what="its new pods")
        assert counted == {resource: held[resource] for resource in counted}
    finally:
        cluster.patch(queue, {"spec": {"stopPolicy": "None"}})
        boss.end(made)


def stays(pod: Manifest) -> bool:
    """Whether node autoscalers do not evict a pod."""
    return STAYS.items() <= map_at(pod, "metadata", "annotations").items()


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet"])
def test_whoever_sets_one_of_the_annotations_decides_about_both(boss: Researcher, kind: str) -> None:
    attempt = written(INTEGRATED[kind], "both")
    moving = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    template = next(pods.template for pods in INTEGRATED[kind].pod_sets(attempt))
    cast("Any", template)["metadata"]["annotations"] = moving
    attempt["metadata"] |= {"namespace": TEAM, "name": f"moving-{attempt['metadata']['name']}"}
    made = boss.own.create(attempt, dry_run=True)
    (found,) = [map_at(pods.template, "metadata", "annotations") for pods in INTEGRATED[kind].pod_sets(made)]
    assert found == found | moving
    assert not STAYS.keys() - moving.keys() & found.keys()


def test_no_pod_is_given_to_a_leader_worker_set(boss: Researcher) -> None:
    attempt: Any = written(INTEGRATED["StatefulSet"], "both")
    attempt["metadata"] |= {"namespace": TEAM, "name": "given"}
    boss.own.create(attempt, dry_run=True)
    metadata = attempt["spec"]["template"]["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), "leaderworkerset.sigs.k8s.io/name": "x"}
    with pytest.raises(ApiError, match=r"sets label leaderworkerset.sigs.k8s.io/name, by which an operator"):
        boss.own.create(attempt, dry_run=True)


@pytest.fixture(scope="module")
def uncompleted(boss: Researcher) -> Iterator[Researcher]:
    """The same without the policy that completes resources, as on Kubernetes before 1.36."""
    plain = written(INTEGRATED["Job"], "limits")

    def is_refused() -> bool:
        try:
            boss.own.create({**plain, "metadata": {**plain["metadata"], "namespace": TEAM}}, dry_run=True)
        except ApiError:
            return True
        return False

    with weakened(boss.cluster, "default-workloads", "completed"):
        boss.cluster.wait_for(lambda: is_refused() or None, what="the default to be gone")
        yield boss


@pytest.mark.parametrize("kind", [kind for kind in AROUND if kind not in IN_RAY])
def test_uncounted_limits_are_refused_without_defaults(uncompleted: Researcher, kind: str) -> None:
    for form in ["limits"] if kind == "TrainJob" else ["limits", "init", "sidecar"]:
        attempt = written(INTEGRATED[kind], form)
        attempt["metadata"] |= {"namespace": TEAM, "name": f"un-{attempt['metadata']['name']}"}
        if INTEGRATED[kind].counts_template:
            with pytest.raises(ApiError) as refused:
                uncompleted.own.create(attempt, dry_run=True)
            assert f"sets {GPU} under limits only" in str(refused.value)
            assert NOT_COUNTED in str(refused.value)
            continue
        made = uncompleted.own.create(attempt)
        try:
            counted, held = uncompleted.cluster.wait_for(
                lambda made=made: counted_and_held(uncompleted.cluster, made), timeout=60, what=f"the pods of {form}"
            )
            assert counted[GPU] == held[GPU] > 0
        finally:
            uncompleted.end(made)


def test_the_table_has_each_kind_that_kueue_integrates() -> None:
    assert {*AROUND} == {*INTEGRATED}
