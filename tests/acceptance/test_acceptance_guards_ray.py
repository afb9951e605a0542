"""Guards where KubeRay and LeaderWorkerSet run: what Kueue would not count, beside what is like it and allowed."""

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
    pod_of,
    ray_cluster,
    ray_job,
    ray_service,
)

from gpu_tenancy.kube.client import Cluster

TEAM: Final = "guards-of-ray"
NO_QUEUE: Final = f"requests GPUs without a queue; set label kueue.x-k8s.io/queue-name: {TEAM} under metadata.labels"
OUTLIVING: Final = "GPUs when the job has ended and no queue counts them; remove it"


@pytest.fixture(scope="module")
def person(cluster: Cluster, door: Door) -> Iterator[Person]:
    """Somebody who may edit a team's namespace in a cluster with both operators, whose guards deny."""
    sections = sections_of("local")
    operators = {**sections.get("operators", {}), "kuberay": "installed", "lws": "installed"}
    guards = guards_of({**sections, "operators": operators, "guards": "deny"})
    with door.newcomer("bob", "edit", TEAM) as bob, in_force(cluster, guards):
        yield bob


def ray(make: Callable[..., Any] = ray_job, spec: Any | None = None, **fields: Any) -> Any:
    """An object of KubeRay in the team's queue, with more fields of its spec."""
    found = make(TEAM, TEAM, spec)
    return {**found, "spec": {**found["spec"], **fields}}


@pytest.mark.parametrize("make", [ray_cluster, ray_job, leader_worker_set])
def test_the_queue_is_on_the_object_and_not_on_its_pods(person: Person, make: Callable[..., Any]) -> None:
    for attempt in (make(TEAM, None), make(TEAM, None, inside=TEAM)):
        assert NO_QUEUE in person.refusal(attempt)
    assert not person.refusal(make(TEAM, TEAM))
    assert not person.refusal(make(TEAM, None, pod_of(0)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"ttlSecondsAfterFinished": 60},
            f"sets spec.ttlSecondsAfterFinished, for which its pods would keep their {OUTLIVING}",
        ),
        (
            {"deletionStrategy": {"onSuccess": {"policy": "DeleteNone"}, "onFailure": {"policy": "DeleteNone"}}},
            f"sets spec.deletionStrategy, by which its pods could keep their {OUTLIVING}",
        ),
        (
            {"clusterSelector": {"ray.io/cluster": "r"}, "submitterPodTemplate": {"spec": pod_of()}},
            "sets spec.clusterSelector, and Kueue does not count the pods of such a RayJob; set spec.rayClusterSpec",
        ),
    ],
    ids=["a time to live", "a deletion strategy", "another cluster"],
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
def test_a_worker_group_has_no_more_pods_than_kueue_counts(person: Person, make: Callable[..., Any]) -> None:
    attempt = ray(make, **({"upgradeStrategy": {"type": "None"}} if make is ray_service else {}))
    assert not person.refusal(attempt)
    inner = {ray_cluster: "", ray_job: "rayClusterSpec", ray_service: "rayClusterConfig"}[make]
    (group,) = (attempt["spec"][inner] if inner else attempt["spec"])["workerGroupSpecs"]
    group["minReplicas"] = 4
    group["maxReplicas"] = 4
    assert "sets minReplicas of worker group w above its replicas, and Kueue counts replicas only" in (
        person.refusal(attempt)
    )


@pytest.mark.parametrize("make", [ray_cluster, ray_job, ray_service])
def test_a_queued_cluster_does_not_grow_by_itself(person: Person, make: Callable[..., Any]) -> None:
    attempt = ray(make, **({"upgradeStrategy": {"type": "None"}} if make is ray_service else {}))
    inner = {ray_cluster: "", ray_job: "rayClusterSpec", ray_service: "rayClusterConfig"}[make]
    of_cluster = attempt["spec"][inner] if inner else attempt["spec"]
    of_cluster["enableInTreeAutoscaling"] = False
    assert not person.refusal(attempt)
    of_cluster["enableInTreeAutoscaling"] = True
    assert "sets enableInTreeAutoscaling, and Kueue queues only Ray clusters with a fixed number of pods" in (
        person.refusal(attempt)
    )


def test_the_options_of_the_autoscaler_are_a_container(person: Person) -> None:
    seen = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    found = ray(ray_cluster, autoscalerOptions=seen)
    assert "sets NVIDIA_VISIBLE_DEVICES" in person.refusal(found)
    asking = ray_cluster(TEAM, TEAM, pod_of(0))
    asking["spec"]["autoscalerOptions"] = {"resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}
    assert "set tolerations: [{key: nvidia.com/gpu" in person.refusal(asking), "the container has no tolerations"
    harmless = deepcopy(asking)
    harmless["spec"]["autoscalerOptions"] = {"env": [{"name": "LOG", "value": "info"}]}
    assert not person.refusal(harmless)


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
