from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from builders import GPU, pool, stack

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.embedded.nodes import OURS, NodeShape, add_node, bring_nodes, node_shapes
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.pools import CAPACITY_LABEL, POOL_LABEL, NodeTaint
from gpu_tenancy.model.source import Source

TAINT = NodeTaint(GPU, "present", "NoSchedule")
H100 = NodeShape("h100-0", {POOL_LABEL: "h100"}, (TAINT,), {"cpu": "192", "memory": "2Ti", GPU: "8", "pods": "110"})
CPU = NodeShape("cpu-0", {}, (), {"cpu": "32", "memory": "128Gi", "pods": "110"})


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with two nodes, and afterwards with none."""
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
    """A pod that asks for one GPU and stands its node's taint."""
    cluster.wait_for(lambda: cluster.exists("v1", "ServiceAccount", "default", namespace), what="the account")
    container = {"name": "main", "image": "registry.example.com/train:1", "resources": {"limits": {GPU: 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {"containers": [container], "tolerations": [{"key": GPU, "operator": "Exists"}]},
    }


def test_a_stack_has_as_many_nodes_as_its_pools_may_promise_each_with_their_gpus_labels_and_taints() -> None:
    own = pool(nodes={"min": 1, "max": 3}, labels={"rack": "a"}, taints=[{"key": "spot", "value": "yes"}])
    shapes = {
        shape.name: shape
        for shape in node_shapes(load(Source(stack(pools={"cpu": pool("m7i.8xlarge", 2), "h100": own}))))
    }
    assert set(shapes) == {"cpu-0", "cpu-1", "h100-0", "h100-1", "h100-2"}
    h100 = shapes["h100-2"]
    assert (h100.capacity[GPU], h100.capacity["pods"]) == ("8", "110")
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


def test_the_same_node_shapes_change_no_nodes(nodes: Cluster) -> None:
    assert +bring_nodes(nodes, [H100, CPU]) == Counter(unchanged=2)


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


def test_a_gpu_pod_runs_on_the_node_that_has_gpus_until_it_is_deleted(nodes: Cluster, pod: Any) -> None:
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
