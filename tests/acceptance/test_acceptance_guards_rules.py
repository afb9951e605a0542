"""Tolerations, names and requests that a team's workloads may have, at their limits."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, TypeAlias

import pytest
from acceptance_guards import (
    EXPERIMENTS,
    GPU,
    NO_QUEUE,
    ON_L4,
    PRODUCTION,
    QUEUE,
    RESEARCH,
    TOLERATION,
    Door,
    Person,
    bounded,
    gang,
    job,
    job_set,
    labels,
    network_policy,
    pod,
    pod_group,
    pod_of,
    replicas,
    train_job,
)

from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

ANY = {"operator": "Exists"}
Kept: TypeAlias = Callable[..., Any]
NOTE: Any = {"metadata": {"annotations": {"note": "x"}}}


@pytest.mark.parametrize(
    ("toleration", "words"),
    [
        (TOLERATION, "tolerates nvidia.com/gpu but requests no GPU; remove the toleration"),
        (ANY, "tolerates every taint, so maintenance would not stop it; set the keys of the taints of its nodes"),
    ],
)
def test_gpu_tolerations_without_gpus_are_refused(tenant: Person, toleration: Any, words: str) -> None:
    spec = pod_of(0, tolerations=[{"key": "dedicated", "operator": "Exists"}, toleration])
    for manifest in (
        pod(RESEARCH, None, spec),
        job(RESEARCH, RESEARCH, spec),
        replicas("Deployment", RESEARCH, RESEARCH, spec=spec),
        job_set(RESEARCH, RESEARCH, spec),
        gang(RESEARCH, "ml-research-l4", spec),
    ):
        assert tenant.refusal(manifest).endswith(f"denied request: {words}")
    message = tenant.refusal(pod(RESEARCH, RESEARCH, pod_of(1, tolerations=[toleration])))
    assert (words in message) if toleration is ANY else not message
    assert not tenant.refusal(pod(RESEARCH, None, pod_of(0, tolerations=spec["tolerations"][:1])))


STARTING: Any = pod_of(0, initContainers=[{**pod_of()["containers"][0], "name": "i"}])
CLAIMING: Any = pod_of(0, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])

BESIDE: Any = {"name": "beside", "image": "a:1"}


def with_amounts(*fields: str, gpus: str = "1", **spec: Any) -> Any:
    """A pod with GPUs under limits or requests only, and a container without."""
    found = pod_of(**spec)
    found["containers"] = [{**BESIDE, "name": "c", "resources": {field: {GPU: gpus} for field in fields}}, BESIDE]
    return found


@pytest.mark.parametrize(
    "manifest",
    [
        job(EXPERIMENTS, None, STARTING),
        job(EXPERIMENTS, None, with_amounts("limits")),
        job_set(EXPERIMENTS, None, with_amounts("requests")),
    ],
    ids=["init containers", "limits", "requests"],
)
def test_gpus_of_any_container_are_counted(tenant: Person, manifest: Any) -> None:
    tolerating = deepcopy(manifest)
    template = tolerating["spec"]
    if "replicatedJobs" in template:
        template = template["replicatedJobs"][0]["template"]["spec"]
    for tolerations, label, words in (
        ([TOLERATION], {}, "requests GPUs without a queue; set label"),
        ([], {QUEUE: EXPERIMENTS}, f"requests {GPU} but does not tolerate taint {GPU} of its nodes"),
        ([TOLERATION], {QUEUE: EXPERIMENTS}, ""),
    ):
        template["template"]["spec"]["tolerations"] = tolerations
        tolerating["metadata"]["labels"] = label
        message = tenant.refusal(tolerating)
        assert words in message if words else not message, message


@pytest.mark.parametrize("at", ["patches", "jobs"])
def test_one_of_several_parts_of_a_runtime_has_the_gpus(tenant: Person, at: str) -> None:
    training = train_job(RESEARCH, RESEARCH)
    other = deepcopy(training["spec"]["runtimePatches"][0]) | {"manager": "example.com/other"}
    runtime = other["trainingRuntimeSpec"]["template"]["spec"]
    runtime["replicatedJobs"] = [{"name": "dataset-initializer", "template": {"spec": {}}}]
    if at == "patches":
        training["spec"]["runtimePatches"].append(other)
    else:
        training["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].extend(
            runtime["replicatedJobs"]
        )
    assert not tenant.refusal(training)


def test_missing_gpu_tolerations_are_refused_with_a_place(tenant: Person) -> None:
    words = f"requests {GPU} but does not tolerate taint {GPU} of its nodes, so it would be pending for ever; set"
    message = tenant.refusal(job(RESEARCH, RESEARCH, STARTING))
    assert words in message
    assert message.endswith("in the spec of the pods with GPUs")
    training = train_job(RESEARCH, RESEARCH)
    assert not tenant.refusal(training)
    del training["spec"]["runtimePatches"]
    message = tenant.refusal(training)
    assert words in message
    assert "in the pods of the runtime: spec.runtimePatches" in message


def test_a_gpu_of_zero_is_none_and_a_claim_of_a_device_is_one(tenant: Person) -> None:
    spec = pod_of(0, tolerations=[TOLERATION])
    spec["containers"][0]["resources"]["limits"][GPU] = "0"
    assert "requests no GPU" in tenant.refusal(job(RESEARCH, RESEARCH, spec))
    assert NO_QUEUE in tenant.refusal(job(RESEARCH, None, CLAIMING))


def test_the_queues_own_class_is_bound_likewise(tenant: Person) -> None:
    jumping = job(PRODUCTION, PRODUCTION, pod_of(priorityClassName="ml-high"))
    assert not tenant.refusal(jumping)
    jumping["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "ml-low"
    assert "uses priority class ml-low, which is not allowed in this namespace" in tenant.refusal(jumping)


BEFORE: Any = [{**pod_of(8)["containers"][0], "name": "before"}]


@pytest.mark.parametrize(
    "manifest",
    [
        job(PRODUCTION, PRODUCTION, pod_of(4, priorityClassName="ml-high")),
        job(EXPERIMENTS, EXPERIMENTS, pod_of(8, initContainers=BEFORE)),
        job(EXPERIMENTS, None, with_amounts("limits", "requests", gpus="0", tolerations=[])),
        job(RESEARCH, RESEARCH, {**STARTING, "tolerations": [TOLERATION]}),
        job(RESEARCH, RESEARCH, {**CLAIMING, "tolerations": [TOLERATION]}),
    ],
    ids=["the maximum of a container", "init containers that end", "no GPUs", "of init containers", "by claims"],
)
def test_gpus_within_the_bounds_are_admitted(tenant: Person, manifest: Any) -> None:
    assert not tenant.refusal(manifest)


def test_gpus_that_no_node_has_are_refused(tenant: Person) -> None:
    spec = pod_of(0)
    part = "nvidia.com/mig-1g.10gb"
    for amounts in spec["containers"][0]["resources"].values():
        amounts[part] = "1"
    message = tenant.refusal(job(EXPERIMENTS, EXPERIMENTS, spec))
    assert f"requests {part} in container c, which no node has; request nvidia.com/gpu" in message


def test_limits_beyond_the_ratio_are_refused_early(tenant: Person) -> None:
    # ml-research has requests of 64 cpus and limits of 128.
    for cpu in (("2", "4"), ("1500m", None), ("2", None)):
        assert not tenant.refusal(job(RESEARCH, RESEARCH, bounded(cpu=cpu)))
    words = (
        "sets no limit of cpu for a request of 500m in container c, so LimitRange containers sets 2, with which its"
        " pods would be rejected; set limits.cpu: 500m"
    )
    assert words in tenant.refusal(job(RESEARCH, RESEARCH, bounded(cpu=("500m", None))))


@pytest.mark.parametrize(
    "requests",
    [
        {"cpu": "3"},
        {"memory": "200Mi"},
        {"cpu": "6", "memory": "12Gi"},
        {"cpu": "100m", "memory": "1Gi"},
        {"cpu": "6", "memory": "200Mi"},
    ],
)
def test_suggested_limits_are_accepted(tenant: Person, requests: Any) -> None:
    """As in most examples of Kueue, without defaults that complete them."""
    for make in (job, job_set):
        spec = pod_of(0)
        resources: Any = {"requests": requests}
        spec["containers"][0]["resources"] = resources
        said = tenant.refusal(make(RESEARCH, RESEARCH, spec))
        assert "sets no limit of" in said
        assert "so LimitRange containers sets" in said
        resources["limits"] = dict(re.findall(r"limits\.(cpu|memory): (\w+)", said.rpartition("; set ")[2]))
        assert resources["limits"] == requests
        assert not tenant.refusal(make(RESEARCH, RESEARCH, spec))


def test_a_running_pod_cannot_add_a_forbidden_toleration(cluster: Cluster, tenant: Person, kept: Kept) -> None:
    own = kept(pod(EXPERIMENTS, None, pod_of(0)))
    now: Any = cluster.get(*Reference.of(own))
    tolerating: Any = {"spec": {"tolerations": [*now["spec"]["tolerations"], TOLERATION]}}
    assert "tolerates nvidia.com/gpu but requests no GPU" in tenant.patch_refusal(own, tolerating)
    assert not tenant.patch_refusal(own, NOTE)


def test_a_forged_owner_reference_does_not_bypass_the_queue(cluster: Cluster, tenant: Person) -> None:
    running = cluster.get("batch/v1", "Job", "nightly", RESEARCH) or {}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": text_at(running, "metadata", "uid")}
    message = tenant.refusal(pod(RESEARCH, None, ownerReferences=[{**owner, "controller": True}]))
    assert NO_QUEUE in message
    message = tenant.refusal(pod(RESEARCH, RESEARCH, ownerReferences=[{**owner, "controller": True}]))
    assert (
        "sets Job nightly as its controller, so the queue would not count it; remove metadata.ownerReferences"
        in message
    )
    # An owner that only deletes with itself, and one that Kueue does not know, change nothing of what is counted.
    assert not tenant.refusal(pod(RESEARCH, RESEARCH, ownerReferences=[owner]))
    other = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "1", "controller": True}
    assert not tenant.refusal(job(RESEARCH, RESEARCH, ownerReferences=[other]))


def test_a_gang_that_was_in_its_queue_may_not_leave_it(tenant: Person, kept: Kept) -> None:
    own = kept(pod_group(RESEARCH, "ml-research-l4"))
    assert "uses Volcano queue default" in tenant.patch_refusal(own, {"spec": {"queue": "default"}})


# What is just inside of a guard, and just outside.

GROUP = "scheduling.k8s.io/group-name"
GANG_QUEUE = "scheduling.volcano.sh/queue-name"


def limited(gpus: int) -> Any:
    """A pod with GPUs as limits only, which the API server uses as requests."""
    spec = pod_of(gpus)
    spec["containers"] = [{"name": "more", "image": "a:1", "resources": {"limits": {GPU: str(gpus)}}}]
    return spec


MANY = "requests 16 nvidia.com/gpu in one pod, but the largest node has 8"


def test_gpus_that_are_requests_only_are_counted(tenant: Person) -> None:
    def requesting(number: int) -> Any:
        found = train_job(EXPERIMENTS, EXPERIMENTS, number)
        del found["spec"]["trainer"]["resourcesPerNode"]["limits"]
        return found

    assert MANY in tenant.refusal(requesting(16))
    assert not tenant.refusal(requesting(8))


def test_gpus_as_limits_count_for_the_container_maximum(tenant: Person) -> None:
    def serving(number: int) -> Any:
        return replicas("Deployment", PRODUCTION, PRODUCTION, spec={**limited(number), "priorityClassName": "ml-high"})

    assert "requests 6 nvidia.com/gpu in container more, but the maximum of a container" in tenant.refusal(serving(6))
    assert not tenant.refusal(serving(4))


OTHER: Any = "guards-of-facts"


@pytest.fixture(scope="module")
def newcomer(door: Door, tenant: Person) -> Iterator[Person]:
    """An editor of a namespace with other facts than the stack's teams have."""
    assert tenant
    facts = {
        "default_limits": "cpu=1,memory=2Gi",
        "max_gpus_per_container": "nvidia.com/gpu=4,nvidia.com/mig-1g.10gb=1",
        "priority_classes": "ml-high",
        "schedulers": "default-scheduler,volcano",
        "volcano_queues": "one,two",
    }
    with door.newcomer("carl", "edit", OTHER, **facts) as carl:
        yield carl


FACTS: dict[str, tuple[Any, str, Any]] = {
    "a maximum for two resources": (job(OTHER, OTHER, pod_of(5)),
        "requests 5 nvidia.com/gpu in container c, but the maximum of a container in this namespace is 4",
        job(OTHER, OTHER, pod_of(4))),
    "default limits of their own": (job(OTHER, None, bounded(cpu=("1500m", None))),
        "sets no limit of cpu for a request of 1500m in container c, so LimitRange containers sets 1",
        job(OTHER, None, bounded(cpu=("1", None)))),
    "one priority class": (job(OTHER, OTHER, pod_of(priorityClassName="ml-low")),
        "uses priority class ml-low, which is not allowed in this namespace; set one of ml-high",
        job(OTHER, OTHER, pod_of(priorityClassName="ml-high"))),
    "two Volcano queues": (gang(OTHER, "three"),
        "uses Volcano queue three, which is not a queue of this namespace; set spec.queue: one or two",
        gang(OTHER, "two")),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_a_namespace_are_lists_of_any_length(newcomer: Person, name: str) -> None:
    attempt, words, twin = FACTS[name]
    assert words in newcomer.refusal(attempt)
    assert not newcomer.refusal(twin)


def test_old_jobs_are_judged_when_their_pods_change(cluster: Cluster, newcomer: Person) -> None:
    own = job(OTHER, OTHER, limited(1))
    own["spec"]["suspend"] = True
    newcomer.cluster.create(own)
    namespace = Reference("v1", "Namespace", OTHER)
    cluster.patch(namespace, {"metadata": {"annotations": {"guards.gpu-tenancy.dev/default-gpus": "0"}}})
    words = "sets nvidia.com/gpu under limits only in container more, and Kueue would count 0"
    newcomer.wait_for_refusal(job(OTHER, OTHER, limited(1)), words)
    assert not newcomer.patch_refusal(own, NOTE)
    assert words in newcomer.patch_refusal(own, {"spec": {"template": NOTE}})


def test_a_deprecated_field_names_a_service_account_too(member: Any) -> None:
    one: Person = member("researchers")
    words = "sets service account ci, whose rights its pod would have; set serviceAccountName: workload"
    assert words in one.refusal(job_set(RESEARCH, RESEARCH, pod_of(0, serviceAccount="ci")))
    assert not one.refusal(job_set(RESEARCH, RESEARCH, pod_of(0, serviceAccount="workload")))


def test_a_pod_without_gpus_names_no_queue_of_another_team(tenant: Person) -> None:
    def queued(queue: str) -> Any:
        return pod(RESEARCH, None, pod_of(0, schedulerName="volcano"), annotations={GANG_QUEUE: queue})

    assert "uses Volcano queue ml-serving-l4" in tenant.refusal(queued("ml-serving-l4"))
    assert not tenant.refusal(queued("ml-research-l4"))
    assert not tenant.refusal(pod(RESEARCH, None, pod_of(0), annotations={GROUP: "podgroup-1"}))


def test_pods_stay_in_their_volcano_group(tenant: Person, kept: Kept) -> None:
    joining = {GANG_QUEUE: "ml-research-l4", GROUP: "podgroup-1"}
    own = kept(pod(RESEARCH, None, pod_of(schedulerName="volcano", nodeSelector=ON_L4), annotations=joining))
    later = job(RESEARCH, RESEARCH)
    later["spec"] |= {"suspend": True}
    later["spec"]["template"]["metadata"] = {"annotations": {GROUP: "podgroup-1"}}
    kept(later)
    words = "joins PodGroup {}, which Volcano created for another workload"
    assert not tenant.patch_refusal(own, {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "ml-low"}}})
    other = {"metadata": {"annotations": {GROUP: "podgroup-2"}}}
    assert words.format("podgroup-2") in tenant.patch_refusal(own, other)
    assert words.format("podgroup-1") in tenant.patch_refusal(later, {"spec": {"template": NOTE}})


@pytest.mark.parametrize("seconds", [0, 601])
def test_old_pods_of_any_grace_period_can_be_deleted(tenant: Person, kept: Kept, seconds: int) -> None:
    own = pod(RESEARCH, RESEARCH, pod_of(terminationGracePeriodSeconds=seconds, nodeName="l4-0"))
    own["metadata"]["labels"] = labels(RESEARCH, which="ending")
    kept(own, "ending")
    assert [tenant.patch_refusal(own, NOTE), tenant.delete_refusal(own)] == ["", ""]
    status, answer = tenant.asked("DELETE", f"/api/v1/namespaces/{RESEARCH}/pods?labelSelector=which%3Dending")
    assert status == 200, answer


def test_owners_without_controller_do_not_count_pods(cluster: Cluster, tenant: Person, kept: Kept) -> None:
    counted: Any = cluster.get("batch/v1", "Job", "nightly", RESEARCH)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": counted["metadata"]["uid"]}
    own = kept(pod(RESEARCH, RESEARCH, ownerReferences=[owner]), "beside")
    assert not tenant.patch_refusal(own, {"metadata": {"labels": {"app": "other"}}})


def test_a_pod_without_gpus_changes_its_queue(tenant: Person, kept: Kept) -> None:
    plain = kept(pod(RESEARCH, None, pod_of(0, nodeName="l4-0")), "plain")
    assert "is in queue ml-serving" in tenant.patch_refusal(plain, {"metadata": {"labels": {QUEUE: "ml-serving"}}})
    assert not tenant.patch_refusal(plain, {"metadata": {"labels": {QUEUE: RESEARCH}}})


def test_a_tenant_changes_and_deletes_its_own_network_policies(tenant: Person, kept: Kept) -> None:
    own = kept(network_policy(RESEARCH, "of-a-tenant"))
    assert not tenant.patch_refusal(own, NOTE)
    assert not tenant.delete_refusal(own)
    assert "allows traffic beyond the namespace" in tenant.patch_refusal(own, {"spec": {"ingress": [{}]}})


def test_only_namespaces_of_teams_are_guarded(door: Door, tenant: Person) -> None:
    assert tenant
    # One of a team, a system namespace that says so, and one that does not.
    names, marked = (RESEARCH, "kube-public", "guards-keeper"), Reference("v1", "Namespace", "kube-public")
    with door.let_in("keeper", "cluster-admin", *names) as keeper:
        changed: Any = {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "baseline"}}}
        theirs, system, other = (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names
        )
        door.cluster.patch(marked, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "gpu-tenancy"}}})
        for one in (system, other):
            door.cluster.wait_for(lambda one=one: not keeper.patch_refusal(one, changed), what="rights")
        door.cluster.patch(marked, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
        words = "of the Namespace, which belongs to the platform"
        assert f"changes pod-security.kubernetes.io/warn {words}" in keeper.patch_refusal(theirs, changed)
        queue: Any = {"metadata": {"annotations": {GANG_QUEUE: "ml-serving-l4"}}}
        assert f"changes {GANG_QUEUE} {words}" in keeper.patch_refusal(theirs, queue)


def test_a_server_deletes_no_claims_with_itself(tenant: Person) -> None:
    """Kubernetes makes a StatefulSet the owner of claims that exist."""
    own = replicas("StatefulSet", RESEARCH, RESEARCH)
    own["spec"] |= {"replicas": 0, "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}
    assert "deletes claims with itself, also of others" in tenant.refusal(own)
    own["spec"]["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Retain"}
    assert not tenant.refusal(own)
