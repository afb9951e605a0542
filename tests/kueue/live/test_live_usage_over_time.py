"""Whom the real Kueue admits next, of two teams that share a queue: the one that used less before."""

from collections.abc import Iterator
from typing import Any

import pytest
from builders import Data, pool, stack, team
from queueing import Queueing
from repository import ROOT

from gpu_tenancy.base.amounts import amounts
from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source, to_config

KUEUE = "kueue.x-k8s.io/v1beta2"
APPLIED = (
    "Namespace",
    "PriorityClass",
    "WorkloadPriorityClass",
    "ResourceFlavor",
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
)
PATIENCE = 60
HEAVY, LIGHT = "heavy", "light"
USAGE: Data = {"usage": {"halfLife": "10m", "sampling": "1s"}}


def sections(fairness: Any) -> Data:
    """A queue of two CPUs, which both teams use."""
    quota = {"cpu": {"cpu": {"guaranteed": 2, "limit": 2}, "memory": {"guaranteed": "8Gi", "limit": "8Gi"}}}
    second = {"usageWeight": 1.5} if fairness is USAGE else {}
    return stack(
        pools={"cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"})},
        priorities={"ml-high": 1000},
        teams={HEAVY: team(quota=quota), LIGHT: team(queue=HEAVY, **second)},
        fairness=fairness,
    )


@pytest.fixture(params=[USAGE, "hierarchical"], ids=["by usage", "by priority"])
def queue(queueing: Queueing, request: pytest.FixtureRequest) -> Iterator[str]:
    """The stack's objects on the platform; the team that is expected to be next."""
    declared = Source(sections(request.param))
    queueing.run(load(declared))
    rendered = render(ROOT, project="gpu-tenancy", stack="usage", config=to_config(declared))
    made = kubernetes_objects(rendered)
    objects = [item.manifest for kind in APPLIED for item in made if item.kind == kind]
    for manifest in objects:
        queueing.cluster.apply(manifest)
    yield LIGHT if request.param is USAGE else HEAVY
    for manifest in reversed(objects):
        queueing.cluster.delete(Reference.of(manifest))


def job(team_name: str, name: str, priority: str | None = None) -> Manifest:
    """A job that uses the whole queue."""
    requests: Json = {"cpu": "2", "memory": "1Gi"}
    container: Json = {"name": "main", "image": "example.com/job:1", "resources": {"requests": requests}}
    labels: dict[str, Json] = {"kueue.x-k8s.io/queue-name": team_name}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": team_name, "labels": labels},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def admitted(cluster: Cluster, team_name: str, name: str) -> bool | None:
    """Of a job; None before Kueue knows it."""
    found = cluster.list(KUEUE, "Workload", namespace=team_name)
    workload = next((one for one in found if text_at(one, "metadata", "name").startswith(f"job-{name}-")), None)
    return None if workload is None else is_true(workload, "Admitted")


def test_the_team_that_used_less_is_next_though_it_came_later_with_a_lower_priority(
    queueing: Queueing, queue: str
) -> None:
    cluster = queueing.cluster
    cluster.create(job(HEAVY, "used", "ml-high"))
    cluster.wait_for(lambda: admitted(cluster, HEAVY, "used"), timeout=PATIENCE, what="the first job")
    for team_name, priority in ((HEAVY, "ml-high"), (LIGHT, None)):
        cluster.create(job(team_name, "next", priority))
        cluster.wait_for(
            lambda of=team_name: admitted(cluster, of, "next") is False, timeout=PATIENCE, what="a pending job"
        )
    if queue == LIGHT:
        # Kueue writes a measure and only then puts its queue in order, so the first has counted once a second is there.
        first = cluster.wait_for(
            lambda: measured(cluster) or None, timeout=PATIENCE, what="Kueue's measure of past usage"
        )
        cluster.wait_for(lambda: measured(cluster) > first, timeout=PATIENCE, what="a second measure of past usage")
    cluster.delete(Reference("batch/v1", "Job", "used", HEAVY))
    try:
        following = cluster.wait_for(
            lambda: [name for name in (HEAVY, LIGHT) if admitted(cluster, name, "next")] or None,
            timeout=PATIENCE,
            what="the next",
        )
        assert following == [queue]
    finally:
        for name in (HEAVY, LIGHT):
            cluster.delete(Reference("batch/v1", "Job", "next", name))


def measured(cluster: Cluster) -> int:
    """CPU that the first team's LocalQueue consumed over time, as Kueue tells; the first sample can be of no time."""
    found: Any = cluster.get(KUEUE, "LocalQueue", HEAVY, HEAVY) or {}
    status = found.get("status", {}).get("fairSharing", {}).get("admissionFairSharingStatus", {})
    return amounts(status.get("consumedResources")).get("cpu", 0)
