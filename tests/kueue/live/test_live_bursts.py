"""A burst on spot nodes under the real Kueue: base and burst serve behind one Service, and the base works alone."""

from collections.abc import Iterator
from typing import Final

import pytest
from builders import Data, pool, server, stack, team
from queueing import Queueing

from gpu_tenancy.base.json import at, map_at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true

TEAM: Final = "bursts"
BASE, BURST = "app.kubernetes.io/name=chat", "app.kubernetes.io/name=chat-burst"
APPLIED: Final = (
    "Namespace", "ServiceAccount", "ResourceQuota", "LimitRange", "ResourceFlavor", "Cohort", "ClusterQueue",
    "LocalQueue", "Service", "PodDisruptionBudget", "Deployment", "HorizontalPodAutoscaler",
)  # fmt: skip
PATIENCE: Final = 90
SECTIONS: Final[Data] = stack(
    pools={
        "l4": pool("g6.12xlarge", 1, labels={"capacity": "reserved"}),
        "l4-spot": pool("g6.12xlarge", 1, labels={"capacity": "spot"}, capacity="spot"),
    },
    teams={
        TEAM: team(
            gpus={"l4": {"guaranteed": 4}, "l4-spot": {"guaranteed": 0, "limit": 4}},
            serving={"chat": server(flavor="l4", replicas=2, burst={"flavor": "l4-spot", "max": 3})},
        )
    },
)


class Served:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ready(self, labels: str) -> dict[str, str]:
        """Ready pods with these labels, with the capacity of their nodes."""
        nodes = {text_at(node, "metadata", "name"): node for node in self.cluster.list("v1", "Node")}
        found: dict[str, str] = {}
        for pod in self.pods(labels):
            node = nodes.get(text_at(pod, "spec", "nodeName"))
            if node and is_true(pod, "Ready") and not at(pod, "metadata", "deletionTimestamp"):
                found[text_at(pod, "metadata", "name")] = text_at(node, "metadata", "labels", "capacity")
        return found

    def pods(self, labels: str) -> list[Manifest]:
        return list(self.cluster.list("v1", "Pod", namespace=TEAM, labels=labels))

    @property
    def selected(self) -> str:
        """Labels by which the Service selects pods: here pods have no addresses, so that it has no endpoints."""
        service = self.cluster.get("v1", "Service", "chat", TEAM) or {}
        return ",".join(f"{name}={value}" for name, value in map_at(service, "spec", "selector").items())

    def flavors(self, labels: str) -> set[str]:
        workloads = self.cluster.list("kueue.x-k8s.io/v1beta2", "Workload", namespace=TEAM)
        owned = {text_at(pod, "metadata", "name") for pod in self.pods(labels)}
        return {
            text_at(assigned, "flavors", "nvidia.com/gpu")
            for workload in workloads
            if owned & {text_at(owner, "name") for owner in maps_at(workload, "metadata", "ownerReferences")}
            for assigned in maps_at(workload, "status", "admission", "podSetAssignments")
        }

    def wait(self, base: int, burst: int) -> None:
        """Waits until the pods of both are ready on their nodes, and the Service selects exactly these pods."""

        def served() -> bool:
            behind, (of_base, of_burst) = self.ready(self.selected), map(self.ready, (BASE, BURST))
            there = [*of_base.values(), *of_burst.values()] == ["reserved"] * base + ["spot"] * burst
            return there and behind == {**of_base, **of_burst}

        what = f"{base} pods of the base and {burst} of the burst behind the Service"
        self.cluster.wait_for(served, timeout=PATIENCE, what=what)


@pytest.fixture(scope="module")
def served(queueing: Queueing) -> Iterator[Served]:
    with queueing.deployed(SECTIONS, TEAM, APPLIED):
        yield Served(queueing.cluster)


def test_the_base_serves_while_the_spot_nodes_are_gone(served: Served) -> None:
    cluster = served.cluster
    served.wait(2, 1)
    assert (served.flavors(BASE), served.flavors(BURST)) == ({"l4"}, {"l4-spot"})
    # Has the autoscaler of the burst bring more, without any metric.
    cluster.patch(
        Reference("autoscaling/v2", "HorizontalPodAutoscaler", "chat-burst", TEAM), {"spec": {"minReplicas": 3}}
    )
    cluster.patch(Reference("apps/v1", "Deployment", "chat-burst", TEAM), {"spec": {"replicas": 3}})
    served.wait(2, 3)
    for node in cluster.list("v1", "Node", labels="capacity=spot"):
        cluster.delete(Reference.of(node))
    served.wait(2, 0)
    base = served.ready(BASE)
    cluster.wait_for(lambda: len(served.pods(BURST)) == 3, timeout=PATIENCE, what="pods of the burst that wait")
    assert served.ready(BASE) == base, "the base keeps its pods"
