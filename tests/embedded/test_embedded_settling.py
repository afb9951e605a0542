"""Servers that cannot become ready: how long they are waited for, and what is said of them."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from cluster_builders import an_object, live

from gpu_tenancy.base.json import Json, at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local import settling
from gpu_tenancy.local.settling import settle
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.workloads import DEPLOYMENT


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
    """A plan of one server of one team."""
    server = SimpleNamespace(team=namespace, name="server", api=DEPLOYMENT)
    team = SimpleNamespace(namespace=SimpleNamespace(name=namespace), servers=[server])
    return cast("Plan", SimpleNamespace(teams=[team]))


@pytest.fixture
def failing(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A namespace with a server that no node takes."""
    server = a_server("server", namespace, nodeSelector={"tests": "nowhere"})
    cluster.apply(server)
    cluster.wait_for(lambda: at(live(cluster, server), "status", "unavailableReplicas") == 2, what="pods of the server")
    yield namespace
    cluster.delete(Reference.of(server))


def test_a_server_that_no_node_takes_is_named_with_the_schedulers_words(
    cluster: Cluster, failing: str, plan: Plan
) -> None:
    reported: list[str] = []
    (line,) = settle(cluster, plan, reported.append)
    assert line.startswith(f"Deployment {failing}/server: 0 of 2 replicas: ")
    assert "no nodes available" in line or "nodes are available" in line
    assert set(reported) == {"0 of 2 pods scheduled"}


def test_a_server_that_a_quota_rejects_is_named_with_the_quotas_words(
    cluster: Cluster, namespace: str, plan: Plan
) -> None:
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
    pods = cluster.wait_for(lambda: both(cluster.list("v1", "Pod", namespace=failing)), what="both pods")
    for pod in pods:
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
