"""Nodes of a platform, and servers on them that cannot become ready."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from builders import GPU, pool, stack
from cluster_builders import an_object, live

from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.embedded.nodes import OURS, NodeShape, add_node, bring_nodes, node_shapes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.local import settling
from gpu_tenancy.local.settling import settle
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.pools import CAPACITY_LABEL, POOL_LABEL, NodeTaint
from gpu_tenancy.model.plan.workloads import DEPLOYMENT
from gpu_tenancy.model.source import Source

TAINT = NodeTaint(GPU, "present", "NoSchedule")
H100 = NodeShape("h100-0", {POOL_LABEL: "h100"}, (TAINT,), {"cpu": "192", "memory": "2Ti", GPU: "8", "pods": "110"})
CPU = NodeShape("cpu-0", {}, (), {"cpu": "32", "memory": "128Gi", "pods": "110"})


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Cluster]:
    bring_nodes(cluster, [H100, CPU])
    yield cluster
    bring_nodes(cluster, ())


def there(cluster: Cluster, name: str) -> Any:
    found = cluster.get("v1", "Node", name)
    assert found
    return found


def running(cluster: Cluster, pod: Any) -> str:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]

    def look() -> str | None:
        found = cluster.get("v1", "Pod", name, namespace) or {}
        return text_at(found, "spec", "nodeName") if text_at(found, "status", "phase") == "Running" else None

    return cluster.wait_for(look, what=f"pod {name} to run", timeout=120)


@pytest.fixture
def pod(cluster: Cluster, namespace: str) -> Any:
    """A pod that requests one GPU and tolerates its node's taint."""
    cluster.wait_for(lambda: cluster.exists("v1", "ServiceAccount", "default", namespace), what="the account")
    container = {"name": "main", "image": "registry.example.com/train:1", "resources": {"limits": {GPU: 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {"containers": [container], "tolerations": [{"key": GPU, "operator": "Exists"}]},
    }


def test_pools_become_nodes_with_gpus_labels_and_taints() -> None:
    own = pool(nodes={"min": 1, "max": 3}, labels={"rack": "a"}, taints=[{"key": "spot", "value": "yes"}])
    shapes = {
        shape.name: shape
        for shape in node_shapes(load(Source(stack(pools={"cpu": pool("m7i.8xlarge", 2), "h100": own}))))
    }
    assert set(shapes) == {"cpu-0", "cpu-1", "h100-0", "h100-1", "h100-2"}
    h100 = shapes["h100-2"]
    assert [h100.capacity[name] for name in (GPU, "pods", "ephemeral-storage")] == ["8", "110", "200Gi"]
    assert h100.labels == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "rack": "a",
        POOL_LABEL: "h100",
        CAPACITY_LABEL: "on-demand",
    }
    assert [(taint.key, taint.value, taint.effect) for taint in h100.taints] == [
        (GPU, "present", "NoSchedule"),
        ("spot", "yes", "NoSchedule"),
    ]
    assert (shapes["cpu-0"].taints, GPU in shapes["cpu-0"].capacity) == ((), False)


def test_nodes_are_ready_and_carry_gpus_labels_and_taints(nodes: Cluster) -> None:
    found = there(nodes, "h100-0")
    assert [one["status"] for one in found["status"]["conditions"] if one["type"] == "Ready"] == ["True"]
    assert at(found, "status", "allocatable", GPU) == "8"
    assert text_at(found, "metadata", "labels", POOL_LABEL) == "h100"
    assert at(found, "spec", "taints") == [{"key": GPU, "value": "present", "effect": "NoSchedule"}]


def test_a_changed_shape_changes_its_node_alone(nodes: Cluster) -> None:
    smaller = replace(H100, labels={}, taints=(), capacity={"cpu": "192", "memory": "2Ti", "pods": "110"})
    assert +bring_nodes(nodes, [smaller, CPU]) == Counter(changed=1, unchanged=1)
    found = there(nodes, "h100-0")
    assert at(found, "spec", "taints") in (None, [])
    assert not text_at(found, "metadata", "labels", POOL_LABEL)
    assert GPU not in found["status"]["allocatable"]
    assert +bring_nodes(nodes, [smaller, CPU]) == Counter(unchanged=2)


def test_a_node_that_no_pool_has_any_more_is_pruned(nodes: Cluster) -> None:
    assert +bring_nodes(nodes, [H100]) == Counter(pruned=1, unchanged=1)
    assert not nodes.exists("v1", "Node", "cpu-0")


def test_nodes_of_others_are_not_pruned(nodes: Cluster) -> None:
    nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "others"}})
    add_node(nodes, replace(CPU, name="beside"))
    try:
        assert +bring_nodes(nodes, [H100, CPU]) == Counter(unchanged=2)
        assert nodes.exists("v1", "Node", "others")
        assert OURS not in there(nodes, "beside")["metadata"]["labels"]
    finally:
        nodes.delete(Reference("v1", "Node", "others"))
        nodes.delete(Reference("v1", "Node", "beside"))


def test_a_node_that_the_api_server_refuses_is_an_error(nodes: Cluster) -> None:
    with pytest.raises(ApiError, match="Not_A_Name"):
        bring_nodes(nodes, [H100, CPU, replace(CPU, name="Not_A_Name")])


def test_gpu_pod_runs_on_the_node_with_gpus(nodes: Cluster, pod: Any) -> None:
    assert running(nodes, nodes.create(pod)) == "h100-0"
    nodes.delete(Reference.of(pod), grace=1, wait=20)


def test_a_pod_is_ready_again_after_its_node_did_not_answer(nodes: Cluster, pod: Any) -> None:
    """The controller manager writes the condition so: MarkPodsNotReady in pkg/controller/util/node of Kubernetes."""
    running(nodes, nodes.create(pod))

    def live() -> Any:
        return nodes.get(*Reference.of(pod)) or {}

    def ready() -> bool:
        return is_true(live(), "Ready")

    nodes.wait_for(ready, what="the pod")
    before = {text_at(one, "type"): one for one in maps_at(live(), "status", "conditions")}
    missed: Any = {**before, "Ready": {**before["Ready"], "status": "False"}}
    nodes.patch(Reference.of(pod), {"status": {"conditions": list(missed.values())}}, subresource="status")
    nodes.wait_for(ready, what="the pod, whose node answers again", timeout=120)
    assert {text_at(one, "type") for one in maps_at(live(), "status", "conditions")} == set(before)


def test_a_gpu_pod_that_does_not_tolerate_the_taint_waits(nodes: Cluster, pod: Any) -> None:
    del pod["spec"]["tolerations"]
    nodes.create(pod)

    def told() -> str | None:
        live: Any = nodes.get(*Reference.of(pod)) or {}
        return "".join(one.get("message", "") for one in live["status"].get("conditions", ())) or None

    assert "untolerated taint" in nodes.wait_for(told, what="the scheduler's refusal")


# Servers that cannot become ready: how long they are waited for, and what is said of them.


def a_server(name: str, namespace: str, **pod: Json) -> Manifest:
    requests: Json = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    container: Json = {"name": "server", "image": "registry.example.com/server:1", "resources": requests}
    template: Json = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **pod}}
    spec: Json = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
    return an_object("apps/v1", "Deployment", name, namespace, spec=spec)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_QUIET", 0.5)
    monkeypatch.setattr(settling, "_INTERVAL", 0.2)


@pytest.fixture
def plan(namespace: str) -> Plan:
    server = SimpleNamespace(team=namespace, name="server", api=DEPLOYMENT)
    team = SimpleNamespace(namespace=SimpleNamespace(name=namespace), servers=[server])
    return cast("Plan", SimpleNamespace(teams=[team]))


@pytest.fixture
def failing(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A namespace with a server that fits no node."""
    server = a_server("server", namespace, nodeSelector={"tests": "nowhere"})
    cluster.apply(server)
    cluster.wait_for(lambda: at(live(cluster, server), "status", "unavailableReplicas") == 2, what="pods of the server")
    yield namespace
    cluster.delete(Reference.of(server))


def test_names_unschedulable_server_with_schedulers_message(cluster: Cluster, failing: str, plan: Plan) -> None:
    reported: list[str] = []
    (line,) = settle(cluster, plan, reported.append)
    assert line.startswith(f"Deployment {failing}/server: 0 of 2 replicas: ")
    assert "no nodes available" in line or "nodes are available" in line
    assert set(reported) == {"0 of 2 pods scheduled"}


def test_names_rejected_server_with_quotas_message(cluster: Cluster, namespace: str, plan: Plan) -> None:
    hard: Json = {"hard": {"requests.cpu": "1", "limits.cpu": "1"}}
    quota, server = an_object("v1", "ResourceQuota", "quota", namespace, spec=hard), a_server("server", namespace)
    cluster.apply(quota)
    cluster.wait_for(lambda: at(live(cluster, quota), "status", "hard"), what="the quota to be counted")
    cluster.apply(server)
    cluster.wait_for(
        lambda: "ReplicaFailure" in str(at(live(cluster, server), "status", "conditions")), what="a failure"
    )
    (line,) = settle(cluster, plan, lambda _: None)
    assert line.startswith(f"Deployment {namespace}/server: 0 of 2 replicas: ")
    assert "exceeded quota: quota, requested: limits.cpu=1,requests.cpu=1" in line


def test_an_image_that_cannot_be_pulled_is_named(cluster: Cluster, failing: str, plan: Plan) -> None:
    message = 'Back-off pulling image "registry.example.com/server:1"'
    state: Json = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
    status: Json = {"name": "server", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    # The Deployment counts pods as unavailable before they exist.
    for pod in cluster.wait_for(lambda: both(cluster.list("v1", "Pod", namespace=failing)), what="both pods"):
        cluster.patch(Reference.of(pod), {"status": {"containerStatuses": [status]}}, subresource="status")
    (line,) = settle(cluster, plan, lambda _: None)
    assert line.endswith(f"0 of 2 replicas: container server: ImagePullBackOff: {message}")


def both(pods: tuple[Manifest, ...]) -> tuple[Manifest, ...] | None:
    return pods if len(pods) == 2 else None


@pytest.mark.usefixtures("failing")
def test_many_servers_are_counted(cluster: Cluster, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_LISTED", 0)
    assert settle(cluster, plan, lambda _: None) == ("1 more server",)


def test_settling_does_not_wait_for_pods_that_never_become_ready(
    cluster: Cluster, failing: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "_QUIET", 1000)
    monkeypatch.setattr(settling, "_WITHIN", 0.5)
    (line,) = settle(cluster, plan, lambda _: None)
    assert failing in line
