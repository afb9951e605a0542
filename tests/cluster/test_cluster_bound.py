"""GPUs bound to nodes beyond what queues count."""

from typing import Any

import pytest
from builders import patched
from live_builders import (
    GPU,
    HIDDEN_QUEUES,
    Data,
    cluster_queue,
    flavor,
    job,
    local_queue,
    node,
    only_gpus,
    state,
    workload,
)
from live_builders import pod as a_pod

from gpu_tenancy.cluster.bound import breaches
from gpu_tenancy.cluster.reading import Kind, Missing

MIG = "nvidia.com/mig-1g.10gb"


def on_node(name: str, owner: str = "train", namespace: str = "research", on: str = "n1", **more: Any) -> Data:
    """A pod with 8 GPUs on a node; `more` has metadata."""
    made = only_gpus(a_pod(name, namespace, on=on))
    refs = [{"kind": "Job", "name": owner, "uid": f"uid-{owner}"}] if owner else []
    made["metadata"] |= {"ownerReferences": refs, **more}
    return made


def admitted(name: str = "train", namespace: str = "research", queue: str = "") -> Data:
    found = workload(only_gpus(job(name, namespace)), admitted=True)
    found["status"]["admission"]["clusterQueue"] = queue or namespace
    return found


def phase(pod: Data, phase: str) -> Data:
    pod["status"]["phase"] = phase
    return pod


def of(pod: Data, resource: str, spec: Data | None = None) -> Data:
    """The pod with one of another resource, and other fields of its spec."""
    amounts = {resource: "1"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    pod["spec"] |= spec or {}
    return pod


def gang(name: str, queue: str = "research-a100", **more: Any) -> Data:
    marks = {"annotations": {"scheduling.volcano.sh/queue-name": queue}, "labels": {"volcano.sh/job-name": "sweep"}}
    made = on_node(name, "", **marks, **more)
    made["spec"]["schedulerName"] = "volcano"
    return made


def volcano(allocated: str | None) -> Data:
    return {
        "metadata": {"name": "research-a100"},
        "status": {} if allocated is None else {"allocated": {GPU: allocated}},
    }


JOB = "Job research/train"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
SHARED = {"LocalQueue": [local_queue("research"), local_queue("speech", "research")]}
TWO_QUEUES: Any = {
    "ClusterQueue": [cluster_queue("research"), cluster_queue("batch")],
    "LocalQueue": [
        local_queue("research"),
        {**local_queue("research", "batch"), "metadata": {"name": "b", "namespace": "research"}},
    ],
}
MIG_QUEUE = cluster_queue("research")
MIG_QUEUE["spec"]["resourceGroups"][0]["flavors"][0]["resources"].append({"name": MIG, "nominalQuota": "7"})
H100_QUEUE = cluster_queue("other")
H100_QUEUE["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "h100"
H100: Any = {
    "ClusterQueue": [cluster_queue("research"), H100_QUEUE],
    "ResourceFlavor": [flavor(), flavor("h100")],
    "Node": [node(), node("n2", model="h100")],
}
Expected = tuple[str, str, str, int, int, int, tuple[str, ...]]


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param({"Workload": [admitted()], "Pod": [on_node("a")]}, None, id="counted"),
        pytest.param({"Workload": [admitted()], "Pod": [on_node("a"), on_node("b"), on_node("c", **DELETED)]},
            ("research", "a100", GPU, 16, 8, 8, (JOB,)), id="resized-child"),
        pytest.param({"Workload": [workload(only_gpus(job()))], "Pod": [on_node("a")]},
            ("research", "a100", GPU, 8, 0, 0, (JOB,)), id="unsuspended-while-pending"),
        pytest.param({"Workload": [patched(admitted(), {"spec": {"active": False}})], "Pod": [on_node("a")]},
            ("research", "a100", GPU, 8, 0, 0, (JOB,)), id="runs-after-it-was-switched-off"),
        pytest.param(
            {"Workload": [admitted(), admitted("other")], "Pod": [on_node("a"), on_node("b"), on_node("x", "other")]},
            ("research", "a100", GPU, 24, 16, 0, (JOB,)),
            id="only-the-larger-owner-is-named",
        ),
        pytest.param({"Pod": [on_node("x", "")]}, ("research", "a100", GPU, 8, 0, 0, ("Pod research/x",)),
            id="without-workload"),
        pytest.param({"Pod": [on_node("x", on="")]}, None, id="without-node"),
        pytest.param({"Pod": [on_node("x", namespace="kube-system")]}, None, id="namespace-without-queue"),
        pytest.param({"Pod": [on_node("x", **DELETED)]}, None, id="terminating"),
        pytest.param({"Pod": [phase(on_node("x"), "Failed"), phase(on_node("y"), "Succeeded")]}, None, id="ended"),
        pytest.param({**SHARED, "Workload": [admitted("t", "speech", "research")], "Pod": [on_node("a")]}, None,
            id="namespaces-share"),
        pytest.param(
            {
                **SHARED,
                "Workload": [admitted("t", "speech", "research")],
                "Pod": [on_node("a"), on_node("b", "t", "speech")],
            },
            ("research", "a100", GPU, 16, 8, 0, (JOB,)),
            id="namespaces-share-too-much",
        ),
        pytest.param({**TWO_QUEUES, "Workload": [admitted(queue="batch")], "Pod": [on_node("a")]}, None,
            id="queues-share-a-namespace"),
        pytest.param({**TWO_QUEUES, "Workload": [admitted(queue="batch")], "Pod": [on_node("a"), on_node("b")]},
            ("batch, research", "a100", GPU, 16, 8, 0, (JOB,)), id="queues-share-too-much"),
        pytest.param({**H100, "Workload": [admitted()], "Pod": [on_node("a", on="n2")]},
            ("research", "h100", GPU, 8, 0, 0, (JOB,)), id="node-of-another-flavor"),
        pytest.param({"Node": [], "Workload": [admitted()], "Pod": [on_node("a")]}, None, id="unknown-node"),
        pytest.param({"ClusterQueue": [MIG_QUEUE], "Pod": [of(on_node("a"), MIG)]},
            ("research", "a100", MIG, 1, 0, 0, (JOB,)), id="mig"),
        pytest.param({"Pod": [of(on_node("a"), "rdma/hca_shared")]}, None, id="resource-that-no-queue-counts"),
        pytest.param({"Queue": [volcano("8")], "Pod": [gang("a")]}, None, id="gang"),
        pytest.param({"Queue": [volcano(None)], "Pod": [gang("a")]}, None, id="gang-before-volcano-counts"),
        pytest.param({"Queue": [volcano("8")], "Pod": [gang("a"), gang("b")]},
            ("Volcano research-a100", "-", GPU, 16, 8, 0, ("Job research/sweep",)), id="gang-too-large"),
        pytest.param({"Queue": [volcano("8")], "Pod": [gang("a", "default")]},
            ("research", "a100", GPU, 8, 0, 0, ("Job research/sweep",)), id="gang-outside-the-queues"),
    ],
)  # fmt: skip
def test_bound_beyond_counted_is_a_breach(objects: dict[str, Any], expected: Expected | None) -> None:
    found = [
        (one.queue, one.flavor, one.resource, one.bound, one.counted, one.terminating, one.owners)
        for one in breaches(state(**objects))
    ]
    assert found == ([expected] if expected else [])


def hidden(kind: Kind, *, partly: bool = False) -> Missing:
    return Missing(kind, "", "forbidden", "an admin", partly=partly)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ((hidden("Workload"),), False),
        ((hidden("Workload", partly=True),), False),
        ((hidden("Workload", partly=True), hidden("Pod", partly=True)), True),
        ((hidden("Pod", partly=True), hidden("Node"), hidden("ResourceFlavor"), hidden("Queue")), True),
        ((HIDDEN_QUEUES,), True),
    ],
)
def test_breaches_need_workloads_wherever_pods_are_read(missing: tuple[Missing, ...], *, expected: bool) -> None:
    unread: dict[Any, list[Data]] = {each.kind: [] for each in missing if not each.partly}
    seen = state(missing, **{"Workload": [admitted()], "Pod": [on_node("a"), on_node("b")], **unread})
    assert bool(breaches(seen)) is expected


def test_every_read_must_have_a_breach() -> None:
    early = state(Pod=[on_node("a"), on_node("b")])
    late = state(Workload=[admitted()], Pod=[on_node("b"), on_node("c")])
    counted = state(Workload=[admitted()], Pod=[on_node("a")])
    assert breaches(early)
    assert breaches(early, counted) == breaches(counted, early) == ()
    (breach,) = breaches(early, late)
    assert (breach.bound, breach.counted) == (16, 8)
    assert breach.text == (
        "queue research: 16 nvidia.com/gpu of flavor a100 on nodes, 8 counted: Job research/train (pods b, c);"
        " delete them, or give them the size that was admitted"
    )


AGAIN = "then deploy its stack, or apply its manifest, again"


def test_a_server_without_a_queue_is_created_again() -> None:
    replica_set = {"kind": "ReplicaSet", "name": "api-5f6d", "uid": "uid-api"}
    labels = {"pod-template-hash": "5f6d"}
    pod = on_node("api-5f6d-x", ownerReferences=[replica_set], labels=labels)
    again = "kubectl delete deployment api -n research"
    (breach,) = breaches(state(Pod=[pod]))
    assert breach.owners == ("Deployment research/api",)
    assert breach.text.endswith(f"; deleted pods come back uncounted, so delete their owner: `{again}`; {AGAIN}")
    odd = on_node("a", ownerReferences=[{**replica_set, "name": "a; id-5f6d"}], labels=labels)
    (breach,) = breaches(state(Pod=[odd]))
    assert "`kubectl delete deployment 'a; id' -n research`" in breach.text  # a person can write this name
    (both,) = breaches(state(Pod=[pod, on_node("b")]))
    assert "; delete them, or give them the size that was admitted; deleted pods" in both.text
