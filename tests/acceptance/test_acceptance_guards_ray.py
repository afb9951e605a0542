"""Guards with KubeRay and LeaderWorkerSet: objects that Kueue would not count, and similar allowed objects."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

import pytest
from acceptance_builders import sections_of
from acceptance_guards import (
    GPU,
    Door,
    Person,
    guards_of,
    in_force,
    leader_worker_set,
    owned,
    pod,
    pod_of,
    ray_cluster,
    ray_job,
    ray_service,
    replicas,
)

from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

TEAM: Final = "guards-of-ray"
REDIS: Final[Any] = {"redisAddress": "redis:6379"}
KUBERAY: Final = "ray.io/kuberay-operator"
GROUP: Final = "leaderworkerset.sigs.k8s.io/name"
NEWER: Final[Any] = {"spec": {"leaderWorkerTemplate": {"workerTemplate": {"metadata": {"labels": {"note": "x"}}}}}}
NO_QUEUE: Final = f"requests GPUs without a queue; set label kueue.x-k8s.io/queue-name: {TEAM} under metadata.labels"
OUTLIVING: Final = "by which pods could keep GPUs that no queue counts; remove it"


@pytest.fixture(scope="module")
def person(cluster: Cluster, door: Door) -> Iterator[Person]:
    """An editor of a team's namespace in a cluster with both operators, whose guards deny."""
    sections = sections_of("local")
    operators = {**sections.get("operators", {}), "kuberay": "installed", "lws": "installed"}
    # 30 seconds is what a pod has that sets none.
    guards = guards_of({**sections, "operators": operators, "guards": {"action": "deny", "grace": {"jobs": "30s"}}})
    with door.newcomer("bob", "edit", TEAM) as bob, in_force(cluster, guards):
        yield bob


def ray(make: Callable[..., Any] = ray_job, spec: Any | None = None, **fields: Any) -> Any:
    found = make(TEAM, TEAM, spec)
    return {**found, "spec": {**found["spec"], **fields}}


@pytest.mark.parametrize("make", [ray_cluster, ray_job, leader_worker_set])
def test_the_queue_is_on_the_object_and_not_on_its_pods(person: Person, make: Callable[..., Any]) -> None:
    for attempt in (make(TEAM, None), make(TEAM, None, inside=TEAM)):
        assert NO_QUEUE in person.refusal(attempt)
    assert not person.refusal(make(TEAM, TEAM))
    assert not person.refusal(make(TEAM, None, pod_of(0)))


def test_pods_of_a_group_are_left_to_it_by_nobody_but_kueue(person: Person) -> None:
    def suspended_by(parent: str) -> Any:
        found = leader_worker_set(TEAM, TEAM)
        metadata = found["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]
        metadata["annotations"] = {"kueue.x-k8s.io/pod-suspending-parent": parent}
        return found

    assert "sets annotation kueue.x-k8s.io/pod-suspending-parent" in person.refusal(suspended_by("x"))
    assert not person.refusal(suspended_by("leaderworkerset.x-k8s.io/leaderworkerset"))


def test_a_leader_worker_set_deletes_no_claims_with_itself(person: Person) -> None:
    own = leader_worker_set(TEAM, TEAM)
    retention = own["spec"]["leaderWorkerTemplate"]["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Delete"}
    assert "deletes claims with itself, also of others" in person.refusal(own)
    retention["whenDeleted"] = "Retain"
    assert not person.refusal(own)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ttlSecondsAfterFinished": 60}, f"sets spec.ttlSecondsAfterFinished, {OUTLIVING}"),
        (
            {"deletionStrategy": {"onSuccess": {"policy": "DeleteNone"}, "onFailure": {"policy": "DeleteNone"}}},
            f"sets spec.deletionStrategy, {OUTLIVING}",
        ),
        (
            {"clusterSelector": {"ray.io/cluster": "r"}, "submitterPodTemplate": {"spec": pod_of()}},
            f"sets spec.clusterSelector, {OUTLIVING}",
        ),
        ({"submissionMode": "InteractiveMode"}, "sets spec.submissionMode: InteractiveMode, in which KubeRay does not"),
    ],
    ids=["a time to live", "a deletion strategy", "another cluster", "no job yet"],
)
def test_no_pod_of_a_ray_job_runs_outside_of_its_queue(person: Person, fields: Any, words: str) -> None:
    assert words in person.refusal(ray(**fields))
    assert OUTLIVING in person.refusal(ray(ttlSecondsAfterFinished=1))
    assert not person.refusal(ray(ttlSecondsAfterFinished=0))
    without = {name: value for name, value in fields.items() if name != "submitterPodTemplate"}
    assert not person.refusal(ray(spec=pod_of(0), **without)), "nothing is counted of a job without GPUs"


def test_a_service_has_one_cluster_during_an_upgrade_too(person: Person) -> None:
    words = (
        "would run a second Ray cluster during an upgrade, whose GPUs no queue counts; set spec.upgradeStrategy.type"
    )
    assert words in person.refusal(ray(ray_service))
    assert words in person.refusal(ray(ray_service, upgradeStrategy={"type": "NewCluster"}))
    assert not person.refusal(ray(ray_service, upgradeStrategy={"type": "None"}))
    assert not person.refusal(ray(ray_service, pod_of(0)))


@pytest.mark.parametrize("make", [ray_cluster, ray_job, ray_service])
def test_a_queued_cluster_has_the_pods_that_kueue_counts(person: Person, make: Callable[..., Any]) -> None:
    attempt = ray(make, **({"upgradeStrategy": {"type": "None"}} if make is ray_service else {}))
    inner = {ray_cluster: "", ray_job: "rayClusterSpec", ray_service: "rayClusterConfig"}[make]
    of_cluster = attempt["spec"][inner] if inner else attempt["spec"]
    of_cluster["enableInTreeAutoscaling"] = False
    assert not person.refusal(attempt)
    of_cluster["enableInTreeAutoscaling"] = True
    assert "sets enableInTreeAutoscaling, and Kueue queues only Ray clusters with a fixed number of pods" in (
        person.refusal(attempt)
    )
    del of_cluster["enableInTreeAutoscaling"]
    assert not person.refusal(attempt)
    (group,) = of_cluster["workerGroupSpecs"]
    group["minReplicas"] = 4
    group["maxReplicas"] = 4
    assert "sets minReplicas of worker group w above its replicas, and Kueue counts replicas only" in (
        person.refusal(attempt)
    )


@pytest.mark.parametrize("make", [ray_cluster, ray_job, ray_service])
@pytest.mark.parametrize(
    ("requested", "lacking"),
    [
        ({"cpu": "100m", "memory": "1Gi"}, "cpu"),
        ({"memory": "255Mi"}, "memory"),
        ({"cpu": "0.2", "memory": "256Mi"}, ""),
    ],
)
def test_ray_workers_request_what_kuberay_adds(person: Person, make: Any, requested: Any, lacking: str) -> None:
    pods = pod_of(1)
    pods["containers"][0]["resources"] = {"requests": {GPU: "1", **requested}, "limits": {GPU: "1", **requested}}
    attempt = ray(make, pods, **({"upgradeStrategy": {"type": "None"}} if make is ray_service else {}))
    refused = person.refusal(attempt)
    assert f"requests less {lacking} for a Ray worker than 2" in refused if lacking else not refused


def test_the_pods_of_a_running_cluster_stay_as_counted(
    cluster: Cluster, person: Person, kept: Callable[..., Any]
) -> None:
    own, pending = kept(ray(ray_cluster), "running"), kept(ray(ray_cluster, suspend=True), "pending")
    stopping = kept(ray(ray_cluster, suspend=True), "stopping")  # KubeRay has not deleted its pods yet
    cluster.patch(Reference.of(stopping), {"status": {"state": "ready"}}, subresource="status")
    (group,) = deepcopy(own["spec"]["workerGroupSpecs"])
    group["template"]["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
    without = deepcopy(group)
    without["template"]["spec"] = pod_of(0)
    for what, change in (
        ("its pods", {"spec": {"workerGroupSpecs": [group]}}),
        ("its pods", {"spec": {"workerGroupSpecs": [without]}}),
        ("managedBy", {"spec": {"managedBy": KUBERAY}}),
        ("gcsFaultToleranceOptions", {"spec": {"gcsFaultToleranceOptions": REDIS}}),
        ("ray.io/ft-enabled", {"metadata": {"annotations": {"ray.io/ft-enabled": "false"}}}),
        ("ray.io/originated-from-crd", {"metadata": {"labels": {"ray.io/originated-from-crd": "RayJob"}}}),
        ("rayStartParams", {"spec": {"headGroupSpec": {"rayStartParams": {"labels": "x"}}}}),
        (
            "its worker groups",
            {"spec": {"workerGroupSpecs": [{**own["spec"]["workerGroupSpecs"][0], "groupName": "x"}]}},
        ),
    ):
        assert f"changes {what} while it runs" in person.patch_refusal(own, change)
        assert f"changes {what} while it runs" in person.patch_refusal(stopping, change)
        assert not person.patch_refusal(pending, change)
    (group,) = deepcopy(own["spec"]["workerGroupSpecs"])
    group["scaleStrategy"] = {"workersToDelete": ["w-0"]}
    assert not person.patch_refusal(own, {"spec": {"workerGroupSpecs": [group]}})
    assert not person.patch_refusal(own, {"metadata": {"annotations": {"note": "x"}, "labels": {"note": "x"}}})


def test_a_running_job_or_service_of_ray_keeps_its_settings(person: Person, kept: Callable[..., Any]) -> None:
    job = kept(ray(ray_job))
    assert "changes managedBy while it runs" in person.patch_refusal(job, {"spec": {"managedBy": KUBERAY}})
    options = {"rayClusterSpec": {"gcsFaultToleranceOptions": REDIS}}
    assert "changes gcsFaultToleranceOptions while it runs" in person.patch_refusal(job, {"spec": options})
    service = kept(ray(ray_service, upgradeStrategy={"type": "None"}))
    assert not person.patch_refusal(service, {"spec": {"serveConfigV2": "applications: []"}})


def test_init_containers_of_a_fault_tolerant_head_have_no_gpus(person: Person) -> None:
    """KubeRay runs them again in a Job, to clean up Redis."""

    def with_init(gpus: int, **options: Any) -> Any:
        found = ray(ray_cluster, **options)
        spec = {**pod_of(1), "initContainers": [{**pod_of(gpus)["containers"][0], "name": "before"}]}
        found["spec"]["headGroupSpec"]["template"]["spec"] = spec
        return found

    refused = person.refusal(with_init(1, gcsFaultToleranceOptions=REDIS))
    assert "requests GPUs in init container before of a head with fault tolerance" in refused
    assert not person.refusal(with_init(0, gcsFaultToleranceOptions=REDIS))
    assert not person.refusal(with_init(1))


def test_servers_and_ray_clusters_are_never_orphaned(person: Person, kept: Callable[..., Any]) -> None:
    """Their GPUs may have been in the template before."""
    words = "is deleted without its pods"
    cluster = kept(ray_cluster(TEAM, TEAM, pod_of(0)))
    for own in (cluster, kept(replicas("StatefulSet", TEAM, TEAM, spec=pod_of(0)))):
        assert words in person.delete_refusal(own, propagationPolicy="Orphan")
        assert not person.delete_refusal(own, propagationPolicy="Background")


def test_a_cluster_does_not_begin_to_grow_by_an_update(person: Person, kept: Callable[[Any], Any]) -> None:
    own = kept(ray(ray_cluster, suspend=True))
    words = "sets enableInTreeAutoscaling, and Kueue queues only Ray clusters with a fixed number of pods"
    assert words in person.patch_refusal(own, {"spec": {"enableInTreeAutoscaling": True}})
    assert not person.patch_refusal(own, {"spec": {"enableInTreeAutoscaling": False}})


def test_the_autoscaler_has_the_priority_class_of_its_head(person: Person, door: Door) -> None:
    assert person
    where, spec = "guards-of-classes", pod_of(priorityClassName="ml-high")
    found = ray_cluster(where, where, spec)
    found["spec"]["autoscalerOptions"] = {"env": [{"name": "LOG", "value": "info"}]}
    head = found["spec"]["headGroupSpec"]["template"]["spec"]
    with door.newcomer("dora", "edit", where, priority_class_required="true") as dora:
        assert "sets no priority class, which the quota of this namespace requires" in dora.refusal(found)
        head["priorityClassName"] = "ml-high"
        assert not dora.refusal(found)


def test_the_options_of_the_autoscaler_are_a_container(person: Person) -> None:
    found = ray(ray_cluster, autoscalerOptions={"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]})
    assert "sets NVIDIA_VISIBLE_DEVICES" in person.refusal(found)
    asking = ray_cluster(TEAM, TEAM, pod_of(0))
    asking["spec"]["autoscalerOptions"] = {"resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}
    assert "set tolerations: [{key: nvidia.com/gpu" in person.refusal(asking), "the container has no tolerations"
    harmless = deepcopy(asking)
    harmless["spec"]["autoscalerOptions"] = {"env": [{"name": "LOG", "value": "info"}]}
    assert not person.refusal(harmless)


@pytest.mark.parametrize("make", [ray_cluster, ray_job, leader_worker_set])
def test_what_is_counted_is_deleted_with_its_pods(
    person: Person, kept: Callable[[Any], Any], make: Callable[..., Any]
) -> None:
    own = kept(make(TEAM, TEAM))
    assert "is deleted without its pods" in person.delete_refusal(own, propagationPolicy="Orphan")
    assert not person.delete_refusal(own, propagationPolicy="Background")


def test_a_group_keeps_the_names_of_its_containers(person: Person, kept: Callable[[Any], Any]) -> None:
    own = kept(leader_worker_set(TEAM, TEAM, pod_of()))
    assert not person.patch_refusal(own, NEWER)
    (container,) = own["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
    renamed = {"workerTemplate": {"spec": {"containers": [{**container, "name": "other"}]}}}
    renaming = person.patch_refusal(own, {"spec": {"leaderWorkerTemplate": renamed}})
    assert "changes the names of its containers" in renaming


def test_no_pod_of_a_group_outlives_it(person: Person) -> None:
    def group(field: str, value: Any, gpus: int = 1) -> Any:
        found = leader_worker_set(TEAM, TEAM if gpus else None, pod_of(gpus))
        place = found["spec"]["leaderWorkerTemplate"]["workerTemplate"] if field == "metadata" else found["spec"]
        place[field] = value
        return found

    finalized = {"finalizers": ["example.com/own"]}
    words = "sets finalizer example.com/own, by which its pods would run without a queue or keep quota; remove it"
    assert words in person.refusal(group("metadata", finalized))
    assert not person.refusal(group("metadata", finalized, 0))
    assert not person.refusal(group("metadata", {"labels": {"note": "x"}}))
    index = "leaderworkerset.sigs.k8s.io/group-index"
    assert f"sets label {index}" in person.refusal(group("metadata", {"labels": {index: "0"}}))
    behind = {"rollingUpdateConfiguration": {"partition": 1}, "type": "RollingUpdate"}
    assert "leaves groups at their old revision by partition 1" in person.refusal(group("rolloutStrategy", behind))
    assert not person.refusal(group("rolloutStrategy", behind, 0))


def test_nothing_keeps_the_quota_of_a_preempted_ray_cluster(person: Person) -> None:
    own, pruned, kept = (ray_cluster(TEAM, TEAM) for _ in range(3))
    for time, refused in (("601", True), ("-1", True), ("600", False)):
        own["metadata"]["annotations"] = {"ray.io/gcs-ft-deletion-timeout": time}
        assert ("could keep its quota; set at most 600" in person.refusal(own)) == refused
    pruned["apiVersion"] = "ray.io/v1alpha1"
    for group in (pruned["spec"]["headGroupSpec"], *pruned["spec"]["workerGroupSpecs"]):
        group["rayStartParams"] = {}
    assert "is written in version v1alpha1, which can lack fields; write it as ray.io/v1" in person.refusal(pruned)
    kept["spec"]["headGroupSpec"]["template"]["metadata"] = {"finalizers": ["example.com/own"]}
    assert "sets finalizer example.com/own, by which its pods" in person.refusal(kept)


def test_the_parts_of_a_group_stay_with_it(cluster: Cluster, person: Person, kept: Callable[..., Any]) -> None:
    """A leader without GPUs, and a pod with GPUs that belongs to it, as the controller creates them."""
    in_group = {"labels": {"app": "x", GROUP: "l"}}
    leader, other = pod(TEAM, None, pod_of(0)), kept(pod(TEAM, None, pod_of(0)), "other")
    leader["metadata"] |= in_group
    kept(leader, "leader")
    uid = text_at(cluster.get(*Reference.of(leader)) or {}, "metadata", "uid")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "leader", "uid": uid, "controller": True}
    worker, stray = (
        pod(TEAM, TEAM, pod_of(schedulingGates=[{"name": "example.com/own"}]), ownerReferences=[owner]) for _ in "ab"
    )
    worker["metadata"] |= {**in_group, "finalizers": ["example.com/first"]}
    kept(worker, "worker")
    kept(stray, "stray")
    words = "is deleted without its pods, whose GPUs no queue would count"
    try:
        assert words in person.delete_refusal(leader, propagationPolicy="Orphan")
        assert not person.delete_refusal(leader, propagationPolicy="Background")
        assert not person.delete_refusal(other, propagationPolicy="Orphan")
        assert not person.delete_refusal(worker, propagationPolicy="Background")
        words = "changes metadata.labels of a pod that belongs to Pod leader, by which Kueue counts its GPUs"
        assert words in person.patch_refusal(worker, {"metadata": {"labels": {"app": "other"}}})
        refused = person.patch_refusal(worker, {"metadata": {"labels": {GROUP: "other"}}})  # by one of three guards
        assert any(one in refused for one in (words, NO_QUEUE, f"sets label {GROUP}"))
        words = "changes metadata.finalizers of a pod that belongs to Pod leader"
        more: Any = {"metadata": {"finalizers": ["example.com/first", "example.com/own"]}}
        assert words in person.patch_refusal(worker, more)
        assert not person.patch_refusal(worker, {"metadata": {"labels": {"note": "x"}}})
        # Kueue counts it by itself, whatever it belongs to.
        assert not person.patch_refusal(stray, more)
        assert not person.patch_refusal(stray, {"metadata": {"labels": {"app": "other"}}})
    finally:
        cluster.patch(Reference.of(worker), {"metadata": {"finalizers": None}})


def test_kuberay_creates_what_belongs_to_an_evaluated_job(door: Door, person: Person) -> None:
    assert NO_QUEUE in person.refusal(ray_cluster(TEAM, None))
    with door.let_in("operator", "cluster-admin", home="kuberay-system") as operator:
        made = owned("ray.io/v1", "RayJob", ray_cluster(TEAM, None))
        person.cluster.wait_for(lambda: not operator.refusal(made), what="its rights")
        # It was evaluated as part of its owner, also for amounts and places.
        broken = ray_cluster(TEAM, None, pod_of(16, nodeName="x"))
        assert not operator.refusal(owned("ray.io/v1", "RayJob", broken))
        assert "sets nodeName x" in operator.refusal(ray_cluster(TEAM, TEAM, pod_of(nodeName="x")))
        assert NO_QUEUE in operator.refusal(ray_cluster(TEAM, None))
