"""Attempts of a tenant to avoid the queues, each refused with its fix, and similar allowed objects."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from acceptance_guards import (
    EXPERIMENTS,
    FOREIGN,
    GPU,
    NO_QUEUE,
    PRODUCTION,
    QUEUE,
    RESEARCH,
    TOLERATION,
    Door,
    Person,
    gang,
    job,
    job_set,
    labels,
    leader_worker_set,
    network_policy,
    owned,
    pod,
    pod_group,
    pod_of,
    pytorch_job,
    ray_cluster,
    ray_job,
    replicas,
    train_job,
    workload,
)

from components.guards import cel
from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.kinds import WorkloadKind

Kept: TypeAlias = Callable[..., Any]
KUEUE = "kueue.x-k8s.io"
OWN_GANG = "ml-research-l4"
GATES = [{"name": f"{KUEUE}/admission"}]


@pytest.fixture(scope="module")
def gated(cluster: Cluster, tenant: Person) -> Iterator[Any]:
    """A pod with GPUs and the gates of Kueue's webhook and of another owner."""
    labelled = pod(RESEARCH, RESEARCH, pod_of(schedulingGates=[*GATES, {"name": "example.com/own"}]))
    labelled["metadata"]["labels"] |= {f"{KUEUE}/managed": "true", "note": "x"}
    labelled["metadata"]["annotations"] = {f"{KUEUE}/role-hash": "a1b2"}
    labelled["metadata"]["name"] = "gated"
    assert not tenant.refusal(labelled), "so far it is one that waits for its queue"
    cluster.create(labelled)
    yield labelled
    cluster.delete(Reference.of(labelled), grace=0)


GATED: Any = yaml.safe_load(Path(__file__).with_name("gated.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", GATED, ids=[f"{number}" for number in range(len(GATED))])
def test_only_kueue_takes_a_pod_out_of_its_hands(tenant: Person, gated: Any, case: Any) -> None:
    message = tenant.patch_refusal(gated, case["patch"])
    assert case["words"] in message if "words" in case else not message, message


def test_kueue_admits_the_pod_and_copies_jobs(door: Door, cluster: Cluster, tenant: Person, gated: Any) -> None:
    """The manager of MultiKueue has a ServiceAccount in its namespace, and creates jobs of Workloads in the workers."""
    copy = job(RESEARCH, RESEARCH)
    of_manager = {f"{KUEUE}/prebuilt-workload-name": "job-x-1a2b3", f"{KUEUE}/multikueue-origin": "hub"}
    copy["metadata"]["labels"] |= of_manager
    with door.let_in("manager", "cluster-admin", home="kueue-system") as manager:
        free: Any = {"metadata": {"labels": {f"{KUEUE}/podset": "main"}}, "spec": {"schedulingGates": None}}
        cluster.wait_for(lambda: not manager.patch_refusal(gated, free), what="its rights")
        assert not manager.refusal(copy)
    assert "kueue.x-k8s.io" in tenant.refusal(copy)


RAY = " of each pod template with GPUs"


@pytest.mark.parametrize("make", [ray_cluster, ray_job, pytorch_job])
def test_unqueued_kinds_have_the_queue_on_their_pods(foreign: None, tenant: Person, make: Callable[..., Any]) -> None:
    assert foreign is None
    for attempt in (make(RESEARCH, None), make(RESEARCH, RESEARCH)):
        assert f"{NO_QUEUE} under metadata.labels{RAY}" in tenant.refusal(attempt)
    assert "requests GPUs in queue ml-serving" in tenant.refusal(make(RESEARCH, None, inside="ml-serving"))
    pinned = make(RESEARCH, None, pod_of(nodeName="l4-0"), inside=RESEARCH)
    assert "sets nodeName l4-0" in tenant.refusal(pinned)
    assert not tenant.refusal(make(RESEARCH, None, inside=RESEARCH))
    assert not tenant.refusal(make(RESEARCH, None, pod_of(0)))


@pytest.mark.parametrize("kind", [kind for kind in cel.KINDS if f"{kind.plural}.{kind.group}" in FOREIGN], ids=cel.key)
def test_so_have_kinds_that_no_stack_installs(foreign: None, tenant: Person, kind: WorkloadKind) -> None:
    assert foreign is None
    name, version = FOREIGN[f"{kind.plural}.{kind.group}"]

    def made(queue: str | None) -> Any:
        value: Any = {"metadata": {"labels": labels(queue)}, "spec": pod_of()}
        for step in reversed(kind.pods[0].path):
            value = {step.field: {"Worker": value} if step.form == "{}" else value}
        metadata = {"name": "x", "namespace": RESEARCH}
        return {**value, "apiVersion": f"{kind.group}/{version}", "kind": name, "metadata": metadata}

    assert f"{NO_QUEUE} under metadata.labels{RAY}" in tenant.refusal(made(None))
    assert not tenant.refusal(made(RESEARCH))


def test_a_kind_that_kueue_cannot_count_has_no_gpus(foreign: None, tenant: Person) -> None:
    assert foreign is None
    words = "Kueue does not queue LeaderWorkerSets on this cluster; use a Job, a JobSet or a StatefulSet"
    for attempt in (leader_worker_set(RESEARCH, RESEARCH), leader_worker_set(RESEARCH, None, inside=RESEARCH)):
        assert words in tenant.refusal(attempt)
    assert not tenant.refusal(leader_worker_set(RESEARCH, None, pod_of(0)))


LIMITS_ONLY: Any = {"name": "c", "image": "a:1", "resources": {"limits": {GPU: "1"}}}
BOTH: Any = {**LIMITS_ONLY, "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}


def limited(container: Any = BOTH, **spec: Any) -> Any:
    return {"restartPolicy": "Never", "containers": [container], "tolerations": [TOLERATION], **spec}


def alone(place: str = " in container c") -> str:
    return f"sets {GPU} under limits only{place}, and Kueue would count 0; set the same number under requests"


@pytest.mark.parametrize(
    ("spec", "container"),
    [
        (limited(LIMITS_ONLY), "c"),
        (limited(initContainers=[{**LIMITS_ONLY, "name": "before"}]), "before"),
        (limited(initContainers=[{**LIMITS_ONLY, "name": "beside", "restartPolicy": "Always"}]), "beside"),
    ],
    ids=["containers", "init containers", "sidecars"],
)
def test_gpus_as_limits_alone_are_refused_in_templates(tenant: Person, spec: Any, container: str) -> None:
    counted = replicas("StatefulSet", RESEARCH, RESEARCH, spec=spec)
    for attempt in (job(RESEARCH, RESEARCH, spec), job_set(RESEARCH, RESEARCH, spec), counted):
        assert alone(f" in container {container}") in tenant.refusal(attempt)
        # Where no container gets 0 GPUs by default, Kueue takes the limits.
        elsewhere = {
            **attempt,
            "metadata": {**attempt["metadata"], "namespace": EXPERIMENTS, "labels": {QUEUE: EXPERIMENTS}},
        }
        assert not tenant.refusal(elsewhere)
    assert not tenant.refusal(job(RESEARCH, RESEARCH, limited()))
    # The pods of these are counted themselves, with the requests that the API server adds.
    assert not tenant.refusal(replicas("Deployment", RESEARCH, RESEARCH, spec=spec))


def test_a_train_jobs_gpus_as_limits_alone_are_refused(tenant: Person) -> None:
    attempt = train_job(RESEARCH, RESEARCH)
    del attempt["spec"]["trainer"]["resourcesPerNode"]["requests"]
    assert alone("") in tenant.refusal(attempt)
    assert not tenant.refusal(train_job(RESEARCH, RESEARCH))


def test_a_queued_job_may_not_come_to_have_gpus_as_limits_alone(tenant: Person, kept: Kept) -> None:
    own = job(RESEARCH, RESEARCH)
    own["spec"] |= {"suspend": True, "parallelism": 1}
    kept(own, "later")
    container: Any = dict(own["spec"]["template"]["spec"]["containers"][0])
    container["resources"] = {"limits": {GPU: "1"}, "requests": {"cpu": "1"}}
    patch: Any = {"spec": {"template": {"spec": {"containers": [container]}}}}
    assert alone() in tenant.patch_refusal(own, patch)


def test_a_container_for_debugging_gets_no_gpus(cluster: Cluster, door: Door, tenant: Person, kept: Kept) -> None:
    assert tenant
    own = kept(pod(RESEARCH, None, pod_of(0)), "debugged")

    def debugging(value: str) -> Any:
        container = {"name": "d", "image": "a:1", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}
        return {"spec": {"ephemeralContainers": [container]}}

    # Kubernetes' own `edit` may not add them.
    with door.let_in("debugger", "cluster-admin", RESEARCH) as person:
        cluster.wait_for(lambda: not person.refusal(job(RESEARCH, RESEARCH)), what="rights")
        words = "sets NVIDIA_VISIBLE_DEVICES in container d, which adds devices that no queue counts"
        assert words in person.patch_refusal(own, debugging("all"), subresource="ephemeralcontainers")
        assert not person.patch_refusal(own, debugging("none"), subresource="ephemeralcontainers")


@pytest.fixture(scope="module")
def running(cluster: Cluster, tenant: Person) -> Iterator[tuple[Any, Any]]:
    own = job(RESEARCH, RESEARCH)
    own["metadata"]["name"] = "counted"
    tenant.cluster.create(own)
    chosen = "batch.kubernetes.io/job-name=counted"
    (found, *_) = cluster.wait_for(
        lambda: cluster.list("v1", "Pod", namespace=RESEARCH, labels=chosen) or None, what="its pod"
    )
    yield own, {**found, "apiVersion": "v1", "kind": "Pod"}
    tenant.cluster.delete(Reference.of(own))


def test_a_pod_stays_with_the_job_that_kueue_counts_it_by(tenant: Person, running: tuple[Any, Any]) -> None:
    own, child = running
    words = "of a pod that belongs to Job counted, by which Kueue counts its GPUs; leave it as it is"
    unowned = tenant.patch_refusal(child, {"metadata": {"ownerReferences": None}})
    assert f"changes metadata.ownerReferences {words}" in unowned or NO_QUEUE in unowned
    words = f"changes metadata.labels {words}"
    for label in ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"):
        assert words in tenant.patch_refusal(child, {"metadata": {"labels": {label: "other"}}})
        assert words in tenant.patch_refusal(child, {"metadata": {"labels": {label: None}}})
    assert not tenant.patch_refusal(child, {"metadata": {"labels": {"note": "x"}, "annotations": {"note": "x"}}})
    assert "adds finalizer example.com/own" in tenant.patch_refusal(
        child, {"metadata": {"finalizers": ["example.com/own"]}}
    )
    words = "is deleted without its pods, whose GPUs no queue would count; delete it without --cascade=orphan"
    assert words in tenant.delete_refusal(own, propagationPolicy="Orphan")
    assert words in tenant.delete_refusal(own, orphanDependents=True)
    assert not tenant.delete_refusal(own, propagationPolicy="Background")
    assert not tenant.delete_refusal(own, propagationPolicy="Foreground")
    assert "sets finalizer orphan" in tenant.patch_refusal(own, {"metadata": {"finalizers": ["orphan"]}})


def test_pods_of_a_gang_stay_with_what_volcano_counts_them_by(cluster: Cluster, tenant: Person, kept: Kept) -> None:
    own, group = kept(gang(PRODUCTION, OWN_GANG)), kept(pod_group(PRODUCTION, OWN_GANG))
    uid = text_at(cluster.get(own["apiVersion"], "Job", "g", PRODUCTION) or {}, "metadata", "uid")
    owner = {"apiVersion": own["apiVersion"], "kind": "Job", "name": "g", "uid": uid}
    gates = [{"name": "example.com/own"}]
    child = pod(PRODUCTION, PRODUCTION, pod_of(priorityClassName="ml-critical", schedulingGates=gates))
    child["metadata"] |= {"name": "g-w-0", "ownerReferences": [{**owner, "controller": True}]}
    made = cluster.create(child)
    words = "changes metadata.ownerReferences of a pod that belongs to Job g, by which Volcano counts its GPUs"
    ghost = {"scheduling.k8s.io/group-name": "ghost"}
    assert words in tenant.patch_refusal(made, {"metadata": {"ownerReferences": None, "annotations": ghost}})
    words = "of a pod that belongs to Job g, by which Volcano counts its GPUs"
    assert f"changes metadata.annotations {words}" in tenant.patch_refusal(made, {"metadata": {"annotations": ghost}})
    elsewhere = {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}
    assert f"changes spec.nodeSelector or spec.affinity {words}" in tenant.patch_refusal(made, elsewhere)
    assert not tenant.patch_refusal(made, {"metadata": {"labels": {"note": "x"}}})
    assert "is deleted without its pods" in tenant.delete_refusal(own, propagationPolicy="Orphan")
    assert not tenant.delete_refusal(own, propagationPolicy="Background")
    assert not tenant.delete_refusal(group)
    cluster.patch(Reference.of(group), {"status": {"running": 2}})
    assert "is deleted while its pods run, whose GPUs Volcano would not count" in tenant.delete_refusal(group)
    cluster.delete(Reference.of(made), grace=0)


def test_the_pods_of_a_job_without_gpus_may_outlive_it(tenant: Person, kept: Kept) -> None:
    own = kept(job(RESEARCH, None, pod_of(0)), "light")
    assert not tenant.delete_refusal(own, propagationPolicy="Orphan")


def test_only_spec_active_of_workloads_can_be_changed(tenant: Person, kept: Kept) -> None:
    words = "creates a Workload, which only Kueue may create; create a Job with the queue label"
    assert words in tenant.refusal(workload("w"))
    own = kept(workload("own", active=True, priority=10))
    words = "changes a Workload, of which only spec.active may be changed; change the Job"
    for patch in (
        {"spec": {"priority": 1_000_000}},
        {"metadata": {"annotations": {f"{KUEUE}/priority-boost": "9"}}},
        {"metadata": {"labels": {QUEUE: "x"}}},
        {"metadata": {"finalizers": ["example.com/own"]}},
        {"spec": {"queueName": "ml-serving"}},
    ):
        assert words in tenant.patch_refusal(own, patch), patch
    assert not tenant.patch_refusal(own, {"spec": {"active": False}})
    admitted = {"type": "Admitted", "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status: Any = {"status": {"conditions": [{**admitted, "message": ""}]}}
    words = "changes workloads/status, which belong to the platform"
    assert words in tenant.patch_refusal(own, status, subresource="status")


def test_queues_and_quotas_are_the_platforms(cluster: Cluster, door: Door, tenant: Person) -> None:
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "mine", "namespace": RESEARCH},
        "spec": {"clusterQueue": "ml-serving"},
    }
    words = "changes localqueues, which belong to the platform; change the team in the stack"
    assert words in tenant.refusal(queue)
    own = {**queue, "metadata": {"name": RESEARCH, "namespace": RESEARCH}}
    assert words in tenant.patch_refusal(own, {"metadata": {"labels": {"x": "y"}}})
    assert words in tenant.delete_refusal(own)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "budget", "namespace": RESEARCH}}
    # `edit` has no right to change quotas. Whoever has all rights in the namespace is refused here.
    with door.let_in("chief", "cluster-admin", RESEARCH) as chief:
        cluster.wait_for(lambda: not chief.refusal(job(RESEARCH, RESEARCH)), what="rights")
        words = "changes resourcequotas, which belong to the platform"
        assert words in chief.patch_refusal(quota, {"spec": {"hard": {"pods": "1000"}}})
        assert words in chief.delete_refusal(quota)
        facts: Any = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESEARCH}}
        for patch in (
            {"metadata": {"annotations": {"guards.gpu-tenancy.dev/volcano-queues": "ml-serving-l4"}}},
            {"metadata": {"annotations": {"guards.gpu-tenancy.dev/max-gpus-per-container": None}}},
            {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}},
            {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}},
        ):
            message = chief.patch_refusal(facts, patch)
            assert "of the Namespace, which belongs to the platform; change the team in the stack" in message, patch
        assert not chief.patch_refusal(facts, {"metadata": {"annotations": {"note": "x"}, "labels": {"note": "x"}}})


def test_the_platforms_network_policies_stay(foreign: None, tenant: Person) -> None:
    assert foreign is None
    closed = network_policy(RESEARCH, "default-deny")
    words = "changes a NetworkPolicy of the platform; change network of the team in the stack"
    assert words in tenant.delete_refusal(closed)
    assert words in tenant.patch_refusal(closed, {"metadata": {"labels": None}})
    assert words in tenant.patch_refusal(closed, {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}})


@pytest.mark.parametrize(
    "name",
    [
        *("ciliumnetworkpolicies.cilium.io", "networkpolicies.crd.antrea.io", "networkpolicies.crd.projectcalico.org"),
        *("networkpolicies.projectcalico.org", "fqdnnetworkpolicies.networking.gke.io"),
        *("applicationnetworkpolicies.networking.k8s.aws", "policyendpoints.networking.k8s.aws"),
    ],
)
def test_policies_of_network_plugins_are_the_platforms(foreign: None, tenant: Person, kept: Kept, name: str) -> None:
    assert foreign is None
    kind, version = FOREIGN[name]
    metadata = {"name": "own", "namespace": RESEARCH}
    own: Any = {"apiVersion": f"{name.partition('.')[2]}/{version}", "kind": kind, "metadata": metadata, "spec": {}}
    words = f"changes {name}, which only the platform may; use a NetworkPolicy, or network of the team in the stack"
    assert words in tenant.refusal(own)
    kept(own)
    assert words in tenant.patch_refusal(own, {"spec": {"note": "x"}})
    assert words in tenant.delete_refusal(own)


@pytest.mark.parametrize(
    ("api", "kind", "of_stack"),
    [
        ("data.fluid.io/v1alpha1", "AlluxioRuntime", False),
        ("data.fluid.io/v1alpha1", "DataLoad", False),
        ("ray.io/v1", "RayCluster", True),
        ("keda.sh/v1alpha1", "ScaledJob", False),
        ("kubeflow.org/v1", "PyTorchJob", False),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", True),
    ],
)
def test_tenants_cannot_forge_owners_that_kueue_skips(tenant: Person, api: str, kind: str, *, of_stack: bool) -> None:
    owner = {"apiVersion": api, "kind": kind, "name": "x", "uid": "1", "controller": True}
    for attempt in (
        job(RESEARCH, RESEARCH, ownerReferences=[owner]),
        {
            **replicas("StatefulSet", RESEARCH, RESEARCH),
            "metadata": job(RESEARCH, RESEARCH, ownerReferences=[owner])["metadata"],
        },
    ):
        words = f"sets {kind} x as its controller, so the queue would not count it; remove metadata.ownerReferences"
        assert words in tenant.refusal(attempt)
    assert not tenant.refusal(job(RESEARCH, RESEARCH, ownerReferences=[{**owner, "controller": False}]))
    refused = tenant.refusal(job(RESEARCH, None, pod_of(0), ownerReferences=[owner]))
    assert bool(refused) == of_stack, "operators that no stack installs create children without GPUs"


def test_children_of_an_unevaluated_kind_are_evaluated(cluster: Cluster, door: Door, tenant: Person) -> None:
    assert tenant

    with door.let_in("controllers", "cluster-admin", home="volcano-system") as volcano:
        own = gang(RESEARCH, OWN_GANG)
        cluster.wait_for(lambda: not volcano.refusal(own), what="rights")
        elsewhere = gang(RESEARCH, "default")
        words = "uses Volcano queue default, which is not a queue of this namespace"
        assert words in volcano.refusal(elsewhere)
        assert words in volcano.refusal(owned("flow.volcano.sh/v1alpha1", "JobFlow", elsewhere))
        assert not volcano.refusal(owned("flow.volcano.sh/v1alpha1", "JobFlow", own))
        # The queue of a CronJob, and that of the pods' own owner, was judged before.
        assert not volcano.refusal(owned("batch.volcano.sh/v1alpha1", "CronJob", elsewhere))
        of_queued = owned("batch/v1", "Job", pod_group(RESEARCH, "default"))
        assert not volcano.refusal(of_queued)


def test_priority_classes_are_judged_in_every_template(tenant: Person) -> None:
    sets = job_set(PRODUCTION, PRODUCTION, pod_of(1, priorityClassName="ml-high"))
    assert not tenant.refusal(sets)
    inside: Any = sets["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    inside["metadata"] = {"labels": {"kueue.x-k8s.io/priority-class": "ml-low"}}
    assert "uses priority class ml-low, which is not allowed in this namespace" in tenant.refusal(sets)


def test_pods_name_the_class_that_a_quota_requires(tenant: Person) -> None:
    sets = job_set(PRODUCTION, PRODUCTION, pod_of(1, priorityClassName="ml-high"))
    (other,) = job_set(PRODUCTION, PRODUCTION)["spec"]["replicatedJobs"]
    sets["spec"]["replicatedJobs"].append({**other, "name": "other"})
    assert "sets no priority class, which the quota of this namespace requires" in tenant.refusal(sets)
    assert not tenant.refusal(train_job(PRODUCTION, PRODUCTION))
