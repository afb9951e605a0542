"""What the API server and the operators' definitions say of the mistakes that tutorials make.

Next to each, our own refusal is tested in `tests/model/test_model_mistakes.py`. Where the server accepts in silence,
that is shown too: it is why ours must refuse.
"""

from typing import Any

import pytest

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError

GPU = "nvidia.com/gpu"


def pod(namespace: str, **resources: dict[str, str]) -> Manifest:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "a:1", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec}


def quota(namespace: str, hard: dict[str, str], scope: dict[str, Any] | None = None) -> Manifest:
    spec: dict[str, Any] = {"hard": hard}
    if scope:
        spec["scopeSelector"] = {"matchExpressions": [{"scopeName": "PriorityClass", **scope}]}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": namespace},
        "spec": spec,
    }


def limits(namespace: str, **item: dict[str, str]) -> Manifest:
    spec: dict[str, Any] = {"limits": [{"type": "Container", **item}]}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": namespace},
        "spec": spec,
    }


def cluster_queue(**spec: Any) -> Manifest:
    lines: list[Any] = [{"name": GPU, "nominalQuota": "8", "borrowingLimit": "8"}]
    groups: list[Any] = [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": lines}]}]
    whole: dict[str, Any] = {"cohortName": "org", "namespaceSelector": {}, "resourceGroups": groups}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "mistake"},
        "spec": {key: value for key, value in (whole | spec).items() if value is not None},
    }


def asked(cluster: Cluster, manifest: Manifest) -> Manifest:
    return cluster.create(manifest, dry_run=True)


def gpus(found: Manifest) -> str:
    containers = at(found, "spec", "containers")
    assert isinstance(containers, list)
    assert isinstance(containers[0], dict)
    return text_at(containers[0], "resources", "requests", GPU)


def in_force(cluster: Cluster, namespace: str) -> None:
    """A new quota refuses every pod until its controller has counted."""
    cluster.wait_for(
        lambda: at(cluster.get("v1", "ResourceQuota", "q", namespace) or {}, "status", "hard"), what="the quota"
    )


@pytest.fixture
def ready(cluster: Cluster, namespace: str) -> str:
    """A namespace in which pods may be made: its account is there."""
    cluster.wait_for(lambda: cluster.exists("v1", "ServiceAccount", "default", namespace), what="the account")
    return namespace


REFUSED_PODS = {
    "a GPU request that is not the limit": (
        {"requests": {GPU: "1"}, "limits": {GPU: "2"}},
        "must be equal to nvidia.com/gpu limit",
    ),
    "a GPU request without a limit": ({"requests": {GPU: "1"}}, "Limit must be set for non overcommitable resources"),
    "half a GPU": ({"requests": {GPU: "0.5"}, "limits": {GPU: "0.5"}}, "must be an integer"),
    "500m of a GPU": ({"requests": {GPU: "500m"}, "limits": {GPU: "500m"}}, "must be an integer"),
}


@pytest.mark.parametrize(("resources", "words"), REFUSED_PODS.values(), ids=REFUSED_PODS.keys())
def test_the_api_server_refuses_a_pod_with(
    cluster: Cluster, ready: str, resources: dict[str, dict[str, str]], words: str
) -> None:
    with pytest.raises(ApiError, match=words):
        asked(cluster, pod(ready, **resources))


@pytest.mark.parametrize("resource", ["services", "requests.storage", "persistentvolumeclaims"])
def test_a_quota_with_a_priority_scope_may_not_hold(cluster: Cluster, namespace: str, resource: str) -> None:
    scope = {"operator": "In", "values": ["ml-high"]}
    with pytest.raises(ApiError, match="unsupported scope applied to resource"):
        asked(cluster, quota(namespace, {resource: "1"}, scope))


def test_limits_of_gpus_in_a_quota_are_accepted_in_silence_and_never_counted(cluster: Cluster, ready: str) -> None:
    cluster.create(quota(ready, {f"limits.{GPU}": "3", "pods": "9"}))
    in_force(cluster, ready)
    four = {GPU: "4"}
    asked(cluster, pod(ready, requests=four, limits=four))
    assert at(cluster.get("v1", "ResourceQuota", "q", ready) or {}, "status", "used", f"limits.{GPU}") is None


def test_requests_of_gpus_in_a_quota_are_counted(cluster: Cluster, ready: str) -> None:
    cluster.create(quota(ready, {f"requests.{GPU}": "3"}))
    in_force(cluster, ready)
    four = {GPU: "4"}
    with pytest.raises(ApiError, match="exceeded quota: q"):
        asked(cluster, pod(ready, requests=four, limits=four))


def test_a_maximum_of_gpus_alone_gives_gpus_to_pods_that_ask_for_none_and_defaults_of_0_do_not(
    cluster: Cluster, ready: str
) -> None:
    little = {"cpu": "1"}
    cluster.apply(limits(ready, max={GPU: "8"}))
    cluster.wait_for(lambda: gpus(asked(cluster, pod(ready, requests=little))) == "8", what="the limit range")
    cluster.apply(limits(ready, max={GPU: "8"}, default={GPU: "0"}, defaultRequest={GPU: "0"}))
    cluster.wait_for(lambda: gpus(asked(cluster, pod(ready, requests=little))) == "0", what="its defaults")
    four, nine = {GPU: "4"}, {GPU: "9"}
    assert gpus(asked(cluster, pod(ready, requests=four, limits=four))) == "4"
    with pytest.raises(ApiError, match=r"maximum nvidia\.com/gpu usage per Container is 8"):
        asked(cluster, pod(ready, requests=nine, limits=nine))


def test_a_scoped_quota_needs_its_twin_to_limit_other_pods(cluster: Cluster, ready: str) -> None:
    cluster.create(quota(ready, {"pods": "0"}, {"operator": "In", "values": ["ml-high"]}))
    in_force(cluster, ready)
    asked(cluster, pod(ready))
    twin = quota(ready, {"pods": "0"}, {"operator": "NotIn", "values": ["ml-high"]})
    metadata = twin["metadata"]
    assert isinstance(metadata, dict)
    cluster.create({**twin, "metadata": {**metadata, "name": "twin"}})

    def refused() -> bool:
        try:
            asked(cluster, pod(ready))
        except ApiError as error:
            return "exceeded quota: twin" in str(error)
        return False

    cluster.wait_for(refused, what="the twin")


def test_a_pod_of_a_priority_class_that_is_not_there_is_refused(cluster: Cluster, ready: str) -> None:
    found = pod(ready)
    assert isinstance(found["spec"], dict)
    found["spec"]["priorityClassName"] = "nobody"
    with pytest.raises(ApiError, match="no PriorityClass with name nobody was found"):
        asked(cluster, found)


REFUSED_QUEUES = {
    "borrowing without a cohort": ({"cohortName": None}, "borrowingLimit must be nil when cohort"),
    "the field that v1beta1 named cohort": ({"cohort": "org"}, r"unknown field .*spec\.cohort"),
    "admission checks as in v1beta1": ({"admissionChecks": ["a"]}, r"unknown field .*spec\.admissionChecks"),
    "preemption of any of its own": ({"preemption": {"withinClusterQueue": "Any"}}, "Unsupported value"),
}


@pytest.mark.parametrize(("spec", "words"), REFUSED_QUEUES.values(), ids=REFUSED_QUEUES.keys())
def test_kueues_definitions_refuse_a_queue_with(cluster: Cluster, spec: dict[str, Any], words: str) -> None:
    asked(cluster, cluster_queue())
    with pytest.raises(ApiError, match=words):
        asked(cluster, cluster_queue(**spec))


def test_the_api_server_accepts_an_autoscaler_without_target_or_metric(cluster: Cluster, namespace: str) -> None:
    metric = {"metric": {"name": "nobody"}, "target": {"type": "AverageValue", "averageValue": "100m"}}
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody"},
        "maxReplicas": 3,
        "metrics": [{"type": "Pods", "pods": metric}],
    }
    asked(
        cluster,
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": namespace},
            "spec": spec,
        },
    )
