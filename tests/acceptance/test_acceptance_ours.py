"""Errors of tutorials: the API server's answer, this program's objects instead, and its own error.

Some the server accepts without an error, which is why the model must refuse them.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from acceptance_builders import (
    STACKS,
    a_pod,
    admitted,
    declared,
    in_waves,
    moved,
    only,
    refusal,
    refused_soon,
    resources,
)
from builders import GPU, Data, errors, job, server, stack, team
from rendered_stacks import stack_of_repository

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kueue import Cohort, FlavorQuotas, Quota, ResourceGroup
from gpu_tenancy.model.plan.queues import checked_cohort

KUEUE = "kueue.x-k8s.io"
HIGH, LOW = "mistakes-high", "mistakes-low"


def with_team(**sections: object) -> Data:
    gpus = {"h100": {"guaranteed": 8, "limit": 16}}
    return stack(
        priorities={HIGH: 5, LOW: 1}, cohorts={"org": {}}, teams={"a": team(gpus=gpus, cohort="org", **sections)}
    )


SCALED = server(replicas={"min": 1, "max": 4}, scaleOn={"cpu": 70})


@pytest.fixture(scope="module")
def ours() -> tuple[KubernetesObject, ...]:
    """A team that admits pods of one priority class, with a server under an autoscaler."""
    bounds = {"max": {"gpu": 8}}
    return declared(with_team(priority=HIGH, compute={"priorities": [HIGH]}, containers=bounds, serving={"s": SCALED}))


@pytest.fixture
def home(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A namespace for pods, and the classes that they name."""
    for name, value in ((HIGH, 5), (LOW, 1)):
        manifest: Any = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        cluster.apply({**manifest, "value": value})
    cluster.wait_for(lambda: cluster.exists("v1", "ServiceAccount", "default", namespace), what="the account")
    yield namespace
    for name in (HIGH, LOW):
        cluster.delete(Reference("scheduling.k8s.io/v1", "PriorityClass", name))


def of_class(pod: Any, priority: str) -> Any:
    return {**pod, "spec": {**pod["spec"], "priorityClassName": priority}}


def put(cluster: Cluster, quota: Any) -> None:
    """Applies a quota, and waits until its controller has counted: it refuses every pod until then."""
    cluster.apply(quota)
    cluster.wait_for(lambda: at(cluster.get(*Reference.of(quota)) or {}, "status", "hard"), what="the quota to count")


def test_quotas_count_gpus_as_requests(cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str) -> None:
    quota = moved(only(ours, "ResourceQuota", "budget"), home)
    assert quota["spec"]["hard"][f"requests.{GPU}"] == "16"
    uncounted: Any = {**quota, "spec": {"hard": {f"limits.{GPU}": "16", "pods": "9"}}}
    nine = {GPU: 9}

    cluster.apply(uncounted)
    for name in ("first", "second"):
        cluster.create(a_pod(home, name, limits=nine))
    cluster.wait_for(lambda: _used(cluster, quota).get("pods") == "2", what="both pods counted")
    assert f"limits.{GPU}" not in _used(cluster, quota)

    cluster.apply(quota)
    cluster.wait_for(lambda: _used(cluster, quota).get(f"requests.{GPU}") == "18", what="the GPUs counted")
    words = f"exceeded quota: budget, requested: requests.{GPU}=1, used: requests.{GPU}=18, limited: requests.{GPU}=16"
    refused_soon(cluster, words, a_pod(home, "third", limits={GPU: 1}))
    (problem,) = errors(with_team(compute={f"limits.{GPU}": 8}))
    assert "a ResourceQuota ignores this key" in problem


def _used(cluster: Cluster, quota: Any) -> dict[str, Any]:
    used = at(cluster.get(*Reference.of(quota)) or {}, "status", "used")
    return used if isinstance(used, dict) else {}


@pytest.mark.parametrize(
    "resource", ["services", "requests.storage", "requests.ephemeral-storage", "persistentvolumeclaims"]
)
def test_scoped_quotas_have_only_pods_and_compute(
    cluster: Cluster, ours: tuple[KubernetesObject, ...], namespace: str, resource: str
) -> None:
    quota = moved(only(ours, "ResourceQuota", "budget-compute"), namespace)
    cluster.apply(quota, dry_run=True)
    quota["spec"]["hard"] = {**quota["spec"]["hard"], resource: "1"}
    assert "unsupported scope applied to resource" in refusal(lambda: cluster.apply(quota, dry_run=True))


def test_scoped_quotas_admit_only_their_class(cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str) -> None:
    pod = a_pod(home, limits={"cpu": 1, "memory": "1Gi", GPU: 1})
    put(cluster, moved(only(ours, "ResourceQuota", "budget-compute"), home))
    admitted(cluster, of_class(pod, LOW))  # alone, it leaves every other pod without a limit
    for one in ours:
        if one.kind == "ResourceQuota":
            put(cluster, moved(dict(one.manifest), home))
    admitted(cluster, of_class(pod, HIGH))
    for other in (of_class(pod, LOW), pod):
        words = "exceeded quota: budget-no-other-priority, requested: pods=1, used: pods=0, limited: pods=0"
        refused_soon(cluster, words, other)
    (problem,) = errors(with_team(priority=LOW, compute={"priorities": [HIGH]}, training={"j": job()}))
    assert f"{LOW} is not among the priority classes that the namespace allows ({HIGH})" in problem


def test_limit_ranges_add_no_gpus_because_of_their_defaults(
    cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str
) -> None:
    bounds = moved(only(ours, "LimitRange"), home)
    little = a_pod(home, limits={"cpu": 1})

    def given() -> str | None:
        return resources(admitted(cluster, little))["limits"].get(GPU)

    cluster.apply(bounds)
    cluster.wait_for(lambda: given() == "0", what="our bounds")
    (container,) = bounds["spec"]["limits"]
    careless: Any = {**bounds, "spec": {"limits": [{"type": "Container", "max": {GPU: container["max"][GPU]}}]}}
    cluster.apply(careless, force=True)
    cluster.wait_for(lambda: given() == "8", what="eight GPUs for a pod that asked for none")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"requests": {GPU: 1}, "limits": {GPU: 2}}, f"must be equal to {GPU} limit"),
        ({"requests": {GPU: 1}, "limits": {}}, "Limit must be set for non overcommitable resources"),
        ({"limits": {GPU: "0.5"}}, "must be an integer"),
        ({"limits": {GPU: "500m"}}, "must be an integer"),
    ],
    ids=["another limit", "no limit", "half a GPU", "500m of a GPU"],
)
def test_gpus_are_whole_and_equal_in_request_and_limit(
    cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str, asked: dict[str, Any], words: str
) -> None:
    deployment = moved(only(ours, "Deployment"), home)
    template = deployment["spec"]["template"]
    pod: Any = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": home},
        "spec": template["spec"],
    }
    pod["spec"].pop("serviceAccountName", None)
    admitted(cluster, pod)
    pod["spec"]["containers"][0]["resources"] = asked
    assert words in refusal(lambda: admitted(cluster, pod))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cohortName": None}, "borrowingLimit must be nil when cohort"),
        ({"cohort": "org"}, ".spec.cohort: field not declared in schema"),
        ({"admissionChecks": ["a"]}, ".spec.admissionChecks: field not declared in schema"),
        (
            {"preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}},
            "reclaimWithinCohort=Never",
        ),
        ({"preemption": {"withinClusterQueue": "Any"}}, "Unsupported value"),
    ],
    ids=[
        "a borrowing limit without a cohort",
        "v1beta1's cohort",
        "v1beta1's admission checks",
        "borrowing by force alone",
        "preemption of any of its own",
    ],
)
def test_our_queue_is_accepted_and_refused_with(
    cluster: Cluster, ours: tuple[KubernetesObject, ...], change: dict[str, Any], words: str
) -> None:
    queue = only(ours, "ClusterQueue")
    cluster.apply(queue, dry_run=True)
    spec = {key: value for key, value in {**queue["spec"], **change}.items() if value is not None}
    assert words in refusal(lambda: cluster.apply({**queue, "spec": spec}, dry_run=True))


def test_the_plan_rejects_what_only_kueues_webhook_would_reject(
    cluster: Cluster, ours: tuple[KubernetesObject, ...]
) -> None:
    queue, root = only(ours, "ClusterQueue"), only(ours, "Cohort", "org")
    assert "parentName" not in root["spec"]
    root["spec"] = {"resourceGroups": queue["spec"]["resourceGroups"]}
    cluster.apply(root, dry_run=True)
    borrows = (ResourceGroup((FlavorQuotas("h100", {GPU: Quota(8, 8)}),)),)
    with pytest.raises(ValueError, match="Kueue rejects a borrowingLimit for a root cohort"):
        checked_cohort(Cohort("org", None, borrows))


def test_every_queue_has_a_cohort_to_reclaim_from(cluster: Cluster, ours: tuple[KubernetesObject, ...]) -> None:
    lone = only(ours, "ClusterQueue")
    lone["spec"] |= {"preemption": {"reclaimWithinCohort": "Any"}, "resourceGroups": []}
    del lone["spec"]["cohortName"]
    cluster.apply(lone, dry_run=True)
    for stack_name in STACKS:
        objects = stack_of_repository(stack_name).objects
        cohorts = {one.name for one in objects if one.kind == "Cohort"}
        assert {text_at(one.manifest, "spec", "cohortName") for one in objects if one.kind == "ClusterQueue"} <= cohorts


@pytest.mark.parametrize("name", STACKS)
def test_every_object_of_kueue_is_of_its_present_version(name: str) -> None:
    versions = {text_at(one, "apiVersion") for wave in in_waves(stack_of_repository(name).objects) for one in wave}
    assert {version for version in versions if version.startswith(KUEUE)} == {f"{KUEUE}/v1beta2"}


def test_references_to_missing_objects_are_rejected(
    cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str
) -> None:
    nowhere = moved(only(ours, "LocalQueue"), home)
    nowhere["spec"]["clusterQueue"] = "nobodys"
    cluster.create(nowhere, dry_run=True)
    queue = only(ours, "ClusterQueue")
    queue["spec"]["cohortName"] = "nobodys"
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "nobodys"
    cluster.apply(queue, dry_run=True)
    scope = moved(only(ours, "ResourceQuota", "budget-compute"), home)
    scope["spec"]["scopeSelector"]["matchExpressions"][0]["values"] = ["nobodys"]
    cluster.apply(scope, dry_run=True)
    assert "no PriorityClass with name nobodys was found" in refusal(
        lambda: cluster.create(of_class(a_pod(home), "nobodys"), dry_run=True)
    )
    with pytest.raises(ApiError, match='namespaces "nobodys" not found'):
        cluster.create(moved(nowhere, "nobodys"), dry_run=True)

    problems = errors(
        stack(
            priorities={HIGH: 5},
            teams={
                "a": team(queue="nobodys"),
                "b": team(cohort="nobodys", gpus={"a200": {"guaranteed": 1}}),
                "c": team(priority="nobodys", compute={"priorities": ["nobodys"]}),
            },
        )
    )
    places = {line.partition(": ")[0] for line in problems}
    assert places >= {"teams.a.queue", "teams.b.cohort", "teams.b.gpus.a200", "teams.c.priority"}
    assert any(place.startswith("teams.c.compute.priorities") for place in places)


def test_autoscalers_have_a_target(cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str) -> None:
    scaler = moved(only(ours, "HorizontalPodAutoscaler"), home)
    assert scaler["spec"]["scaleTargetRef"]["name"] == only(ours, "Deployment")["metadata"]["name"]
    scaler["spec"]["scaleTargetRef"]["name"] = "nobodys"
    metric = {"metric": {"name": "nobodys"}, "target": {"type": "AverageValue", "averageValue": "100m"}}
    scaler["spec"]["metrics"] = [{"type": "Pods", "pods": metric}]
    cluster.create(scaler, dry_run=True)
    (problem,) = errors(
        with_team(serving={"s": server(replicas={"min": 1, "max": 2}, scaleOn={"latencyP99": "100ms"})})
    )
    assert "needs a latency metric, but the stack defines none" in problem


def test_deploying_again_keeps_the_scale(cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str) -> None:
    deployment = moved(only(ours, "Deployment"), home)
    name = Reference.of(deployment)

    def after_scaling_and_deploying_again(manifest: Any) -> Any:
        cluster.apply(manifest, force=True)
        cluster.patch(name, {"spec": {"replicas": 3}}, subresource="scale")  # as an autoscaler does
        return at(cluster.apply(manifest, force=True), "spec", "replicas")

    assert "replicas" not in deployment["spec"]
    assert after_scaling_and_deploying_again(deployment) == 3
    fixed = {**deployment, "spec": {**deployment["spec"], "replicas": 1}}
    assert after_scaling_and_deploying_again(fixed) == 1
    (problem,) = errors(with_team(serving={"s": server(replicas=3, scaleOn={"cpu": 70})}))
    assert "each deployment would override the autoscaler" in problem


def test_an_image_that_moves_is_accepted_in_silence_but_by_us(cluster: Cluster, home: str) -> None:
    pod = a_pod(home)
    pod["spec"]["containers"][0]["image"] = "registry.example.com/train:latest"
    admitted(cluster, pod)
    (problem,) = errors(with_team(training={"j": job(image="registry.example.com/train:latest")}))
    assert "has no fixed tag" in problem


def test_quotas_beyond_the_pools_are_rejected(cluster: Cluster, ours: tuple[KubernetesObject, ...]) -> None:
    queue = only(ours, "ClusterQueue")
    for line in queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
        line["nominalQuota"] = "1000"
    cluster.apply(queue, dry_run=True)
    (problem,) = errors(stack(teams={"a": team(gpus={"h100": {"guaranteed": 400}})}))
    assert "400 exceeds the 16 h100 GPUs of the pools" in problem
