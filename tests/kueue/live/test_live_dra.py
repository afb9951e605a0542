"""GPUs of NVIDIA's DRA driver, played here: the scheduler allocates what pods request, and the real Kueue counts it.

The driver's DeviceClass names `nvidia.com/gpu` as its extended resource, so that jobs of a stack stay as they are:
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/738.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from builders import GPU, Data, job, pool, stack, team
from queueing import Queueing
from repository import ROOT

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.embedded.nodes import NodeShape, bring_nodes, node_shapes
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.explain import fit
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source, to_config

KUEUE = "kueue.x-k8s.io/v1beta2"
RESOURCE = "resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"
TEAM = "dra"
APPLIED = (
    "Namespace", "ResourceQuota", "ServiceAccount", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "Job",
)  # fmt: skip
PATIENCE = 60
SECTIONS: Data = stack(
    pools={"cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"}), "h100": pool(nodes=1)},
    teams={
        TEAM: team(
            gpus={"h100": {"guaranteed": 6}},
            compute={"requests": {"cpu": 200, "memory": "1900Gi"}},
            training={"runs": job(gpus=4, cpu=8, memory="64Gi"), "waits": job(gpus=4, cpu=8, memory="64Gi")},
        )
    },
)
"""A node with eight GPUs, of which a team may use six: one of its two jobs runs."""
CLASS: Manifest = {
    "apiVersion": RESOURCE,
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}], "extendedResourceName": GPU},
}


def slice_of(node: NodeShape) -> Manifest:
    """What the driver publishes of a node."""
    devices: Json = [{"name": f"gpu-{number}"} for number in range(int(node.capacity[GPU]))]
    published: Json = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node.name}-gpus"},
        "spec": {"driver": DRIVER, "nodeName": node.name, "pool": published, "devices": devices},
    }


@pytest.fixture
def driven(queueing: Queueing) -> Iterator[Cluster]:
    """Nodes whose GPUs are devices of the driver, and the objects of the stack."""
    declared = load(Source(SECTIONS))
    queueing.run(declared)
    nodes = node_shapes(declared)
    # Without a device plugin, the kubelet reports no GPUs.
    plain = [
        replace(node, capacity={key: value for key, value in node.capacity.items() if key != GPU}) for node in nodes
    ]
    driver = [CLASS, *(slice_of(node) for node in nodes if GPU in node.capacity)]
    rendered = render(ROOT, project="gpu-tenancy", stack=TEAM, config=to_config(Source(SECTIONS)))
    made = kubernetes_objects(rendered)
    objects = [*driver, *(item.manifest for kind in APPLIED for item in made if item.kind == kind)]
    bring_nodes(queueing.cluster, plain)
    for manifest in objects:
        queueing.cluster.apply(manifest)
    yield queueing.cluster
    for manifest in reversed(objects):
        queueing.cluster.delete(Reference.of(manifest))
    bring_nodes(queueing.cluster, ())


def workloads(cluster: Cluster) -> dict[bool, Any]:
    """The workloads of the two jobs by whether they are admitted."""
    found = cluster.list(KUEUE, "Workload", namespace=TEAM)
    return {is_true(workload, "Admitted"): workload for workload in found}


def allocated(cluster: Cluster) -> list[int]:
    """The numbers of devices of the allocated claims."""
    claims: list[Any] = list(cluster.list(RESOURCE, "ResourceClaim", namespace=TEAM))
    return [len(claim["status"]["allocation"]["devices"]["results"]) for claim in claims if claim.get("status")]


def test_requested_gpus_are_allocated_by_dra_and_counted_by_kueue_and_the_namespaces_quota(driven: Cluster) -> None:
    driven.wait_for(lambda: set(workloads(driven)) == {True, False}, timeout=PATIENCE, what="one job to be admitted")
    driven.wait_for(lambda: allocated(driven) == [4], timeout=PATIENCE, what="a claim with four devices")
    (admission,) = workloads(driven)[True]["status"]["admission"]["podSetAssignments"]
    assert admission["flavors"][GPU] == "h100"
    assert admission["resourceUsage"][GPU] == "4"
    driven.wait_for(
        lambda: [text_at(pod, "spec", "nodeName") for pod in driven.list("v1", "Pod", namespace=TEAM)] == ["h100-0"],
        timeout=PATIENCE,
        what="the pod to be on the node",
    )
    (condition,) = (one for one in workloads(driven)[False]["status"]["conditions"] if one["type"] == "QuotaReserved")
    assert f"insufficient quota for {GPU}" in condition["message"].replace("unused ", "")
    quota = partial(driven.get, "v1", "ResourceQuota", "budget", TEAM)
    driven.wait_for(
        lambda: text_at(quota() or {}, "status", "used", f"requests.{GPU}") == "4",
        timeout=PATIENCE,
        what="the namespace's quota to count them",
    )
    driven.wait_for(lambda: verdict(driven, 4) == "later", timeout=PATIENCE, what="Kueue to report the queue's usage")
    assert verdict(driven, 2) == "now"


def verdict(cluster: Cluster, gpus: int) -> str:
    """Of `tenancy fit`, for a job of one pod: the team has two GPUs left, and the node four."""
    pod: Json = {
        "restartPolicy": "Never",
        "tolerations": [{"key": GPU, "operator": "Exists"}],
        "containers": [{
            "name": "main",
            "image": "registry.example.com/train:1.0",
            "resources": {kind: {GPU: str(gpus), "cpu": "8", "memory": "64Gi"} for kind in ("requests", "limits")},
        }],
    }  # fmt: skip
    asked: Manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "asked", "namespace": TEAM, "labels": {"kueue.x-k8s.io/queue-name": TEAM}},
        "spec": {"template": {"spec": pod}},
    }
    return fit.judge(read(cluster, fit.KINDS, TEAM), TEAM, demand(asked, TEAM)).verdict
