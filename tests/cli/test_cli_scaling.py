"""Autoscalers on the embedded platform: a server, kwok's usage of it, the real metrics-server and autoscaler."""

import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import psutil
import pytest
from builders import pool, server, stack, team, tree_of
from cli_builders import EXISTING, Project

from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.quantity import amount
from gpu_tenancy.embedded.controllers import launching, table
from gpu_tenancy.embedded.controllers.launching import serve
from gpu_tenancy.embedded.controllers.table import read_rows
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import waves
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.local.checks import scaling
from gpu_tenancy.local.checks.metrics import simulated, withdraw
from gpu_tenancy.local.checks.scaling import USAGE, check_scaling, simplified
from gpu_tenancy.model.plan import Plan, plan

pytestmark = pytest.mark.platform

METRICS = "metrics.k8s.io/v1beta1"
API_SERVICE = Reference("apiregistration.k8s.io/v1", "APIService", "v1beta1.metrics.k8s.io")
CUSTOM = Reference(API_SERVICE.api_version, API_SERVICE.kind, "v1beta2.custom.metrics.k8s.io")
SCALER = Reference("autoscaling/v2", "HorizontalPodAutoscaler", "api", "vision")
# Kinds that a server needs to scale; its team has no quota and no queue here.
KINDS = {"Namespace", "ServiceAccount", "Deployment", "HorizontalPodAutoscaler"}


def scaled(**fields: Any) -> Any:
    """Two nodes, and a server that scales on CPU and on a latency, which only the check serves."""
    serving = {"api": server(replicas={"min": 1, "max": 3}, scaleOn={"cpu": 60, "latencyP99": "100ms"}, **fields)}
    return {
        "cluster": dict(EXISTING),
        "metrics": {"latencyP99": "latency_p99_seconds"},
        "pools": {"cpu": pool("m7i.8xlarge", 1), "l4": pool("g6.12xlarge", 1)},
        "teams": {"vision": team(gpus={"l4": {"guaranteed": 4}}, serving=serving)},
    }


@dataclass(frozen=True)
class Metered:
    """A platform with metrics-server and the server; `applied` counts the objects that the last deployment changed."""

    platform: Platform
    cluster: Cluster
    plan: Plan
    manifests: list[list[Manifest]]
    inventory: Path

    def deploy(self) -> set[str]:
        """Applies the server, as `tenancy local up` does; returns the changes."""
        return {change.action for change in apply(self.cluster, self.manifests, self.inventory)}

    @property
    def server(self) -> psutil.Process:
        (controller,) = self.platform.controllers.recorded()
        assert controller.started.process
        return controller.started.process

    def pods(self) -> tuple[Manifest, ...]:
        return self.cluster.list("v1", "Pod", namespace="vision")

    def usage(self, kind: str, namespace: str = "") -> dict[str, int]:
        """CPU in thousandths that metrics-server reports, by names."""
        found: dict[str, int] = {}
        for item in self.cluster.list(METRICS, kind, namespace=namespace):
            parts = maps_at(item, "containers") or [item]
            found[text_at(item, "metadata", "name")] = sum(amount("cpu", at(part, "usage", "cpu")) for part in parts)
        return found


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[Metered]:
    folder = tmp_path_factory.mktemp("scaling")
    project = Project.at(folder / "project")
    project.write("good", scaled())
    shown = preview("good", project.folder)
    platform = Platform(folder / "home")
    try:
        platform.up(report)
        found, unavailable = table.find({"metrics-server": read_rows()["metrics-server"]}, platform.cache, report)
        assert unavailable == {}
        with platform.cluster() as cluster:
            platform.controllers.bring(cluster, table.wanted(shown.stack, found), platform.cache, report)
            bring_nodes(cluster, node_shapes(shown.stack))
            kinds = [item for item in shown.objects if item.kind in KINDS]
            manifests = [[dict(item.manifest) for item in wave] for wave in waves(kinds)]
            made = Metered(platform, cluster, plan(shown.stack), manifests, folder / "inventory.json")
            made.deploy()
            yield made
    finally:
        platform.down()


def test_metrics_server_runs_where_a_server_scales_on_cpu() -> None:
    assert "metrics-server" in table.rows_of(tree_of(scaled()))
    assert "metrics-server" not in table.rows_of(tree_of(stack()))


def test_simulated_use_of_pods_and_nodes(metered: Metered) -> None:
    # A rate over the 10 s between two measurements is wrong by as much as one of them comes late.
    request = metered.plan.teams[0].servers[0].pod.amounts["cpu"]

    def measured() -> bool:
        pods, nodes = metered.usage("PodMetrics", "vision"), metered.usage("NodeMetrics")
        return list(pods.values()) == pytest.approx([request / 10], rel=0.05) and nodes == pytest.approx(
            {"cpu-0": 100, "l4-0": 100 + request / 10}, rel=0.05
        )

    metered.cluster.wait_for(measured, what="usage of the pod and the nodes")


def test_the_api_server_checks_the_certificate_of_metrics_server(metered: Metered) -> None:
    metered.cluster.wait_for(lambda: _available(metered.cluster), what="metrics-server to be served")
    service = metered.cluster.get(*API_SERVICE)
    assert service
    assert text_at(service, "spec", "caBundle")
    assert at(service, "spec", "insecureSkipTLSVerify") is None
    metered.cluster.patch(API_SERVICE, {"spec": {"caBundle": _other_authority(metered)}})
    try:
        metered.cluster.wait_for(lambda: not _available(metered.cluster), what="metrics-server to be refused")
        refused = metered.cluster.get(*API_SERVICE) or {}
        assert "certificate signed by unknown authority" in str(at(refused, "status", "conditions"))
    finally:
        metered.cluster.patch(API_SERVICE, {"spec": {"caBundle": at(service, "spec", "caBundle")}})
    metered.cluster.wait_for(lambda: _available(metered.cluster), what="metrics-server to be served")


def test_waits_for_kinds_of_slow_server(metered: Metered) -> None:
    service = metered.cluster.get(*API_SERVICE) or {}
    metered.cluster.delete(API_SERVICE)
    with stopped(metered):
        Timer(3, metered.server.resume).start()
        serve_again(metered, service)
    assert set(metered.usage("NodeMetrics")) == {"cpu-0", "l4-0"}


@pytest.mark.usefixtures("impatient")
def test_a_server_that_does_not_answer_is_named_with_the_reason(
    metered: Metered, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = metered.cluster.get(*API_SERVICE) or {}
    metered.cluster.delete(API_SERVICE)
    monkeypatch.setattr(launching, "SERVED_WITHIN", 8.0)
    with stopped(metered), pytest.raises(WaitTimeoutError, match=r"8 s waiting for metrics\.k8s\.io/v1beta1") as raised:
        serve_again(metered, service)
    assert "Available False" in raised.value.fix
    monkeypatch.undo()
    serve_again(metered, service)


@contextmanager
def stopped(metered: Metered) -> Generator[None]:
    metered.server.suspend()
    try:
        yield
    finally:
        metered.server.resume()


def serve_again(metered: Metered, service: Manifest) -> None:
    own: Manifest = {**service, "metadata": {"name": API_SERVICE.name}}
    port, authority = at(service, "spec", "service", "port"), b64decode(text_at(service, "spec", "caBundle"))
    assert isinstance(port, int)
    serve(metered.cluster, own, port, authority.decode())


def _available(cluster: Cluster) -> bool:
    return is_true(cluster.get(*API_SERVICE) or {}, "Available")


def _other_authority(metered: Metered) -> Json:
    config = metered.cluster.get("v1", "ConfigMap", "kube-root-ca.crt", "kube-system") or {}
    return b64encode(text_at(config, "data", "ca.crt").encode()).decode()


def test_metrics_server_has_the_rights_of_its_chart_only(metered: Metered) -> None:
    with Cluster(metered.platform.places.client_config("metrics-server")) as own:
        assert own.list("v1", "Node")
        with pytest.raises(ApiError, match=r"cannot list resource .secrets."):
            own.list("v1", "Secret")


def test_server_scales_to_limit_and_is_restored(metered: Metered) -> None:
    (pod,) = metered.pods()
    metered.cluster.patch(Reference.of(pod), {"metadata": {"annotations": {USAGE: "1500m"}}})
    before = metered.cluster.get(*SCALER)
    assert before
    reported = list[str]()
    check, by_latency = check_scaling(metered.cluster, metered.plan, reported.append)
    assert (check.holds, len(reported)) == (True, 1), check.seen
    assert check.promise == "vision/api grows under load to its limit of 3 pods and shrinks again"
    assert "; without load: 3 → " in check.seen
    assert check.message == "“the desired replica count is more than the maximum replica count”"
    assert check.seen.endswith("; checked without stabilization windows")
    assert by_latency.promise == (
        "vision/api grows under a high latency_p99_seconds to its limit of 3 pods and shrinks again"
    )
    assert by_latency.holds, by_latency.seen
    assert by_latency.seen.startswith("simulated latency_p99_seconds of 0.375, target 0.1: 1 → ")
    assert not metered.cluster.exists(*CUSTOM)

    after = metered.cluster.get(*SCALER)
    assert after
    assert (after["spec"], _settled(after)) == (before["spec"], _settled(before))
    usages = {str(at(left, "metadata", "annotations", USAGE)) for left in metered.pods()}
    assert usages <= {"1500m", "None"}  # the autoscaler chooses which pod stays
    assert metered.deploy() == {"unchanged"}


def _settled(scaler: Manifest) -> tuple[Json, list[Json]]:
    """Annotations, and owners of the fields of the specification."""
    owners: list[Json] = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in maps_at(scaler, "metadata", "managedFields")
        if "subresource" not in entry
    ]
    return at(scaler, "metadata", "annotations"), owners


def test_slow_server_breaks_promise_and_is_restored(metered: Metered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "PATIENCE", 1.0)  # less than between two measurements
    monkeypatch.setattr(scaling, "_OVERLOAD", 0.01)  # which one pod carries
    before = metered.cluster.get(*SCALER)
    check, by_latency = check_scaling(metered.cluster, metered.plan, lambda _: None)
    assert check.holds is False
    assert "without load" not in check.seen
    assert (by_latency.holds, by_latency.seen) == (None, "the check before it failed")
    after = metered.cluster.get(*SCALER)
    assert before
    assert after
    assert after["spec"] == before["spec"]


_KILLED = """
import os, sys
from pathlib import Path
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks.metrics import simulated
from gpu_tenancy.local.checks.scaling import simplified

cluster = Cluster(Path(sys.argv[1]))
with simulated(cluster, ["latency_p99_seconds"]), simplified(cluster, Reference(*sys.argv[2:]), 2):
    os._exit(9)
"""


def killed(metered: Metered) -> None:
    command = [sys.executable, "-c", _KILLED, str(metered.platform.kubeconfig), *SCALER]
    assert subprocess.run(command, check=False).returncode == 9


def test_a_run_that_was_killed_is_undone_by_the_next_one(metered: Metered) -> None:
    own = (metered.cluster.get(*SCALER) or {})["spec"]
    killed(metered)
    assert (metered.cluster.get(*SCALER) or {})["spec"] != own
    assert metered.cluster.exists(*CUSTOM)
    with simulated(metered.cluster, []), simplified(metered.cluster, SCALER, 2) as others:
        assert others == ("latency_p99_seconds",)
        assert not metered.cluster.exists(*CUSTOM)
    assert (metered.cluster.get(*SCALER) or {})["spec"] == own
    assert metered.deploy() == {"unchanged"}


def test_next_deployment_undoes_a_killed_run(metered: Metered) -> None:
    own = (metered.cluster.get(*SCALER) or {})["spec"]
    killed(metered)
    withdraw(metered.cluster)  # as `tenancy local up` does first
    assert metered.deploy() == {"changed", "unchanged"}
    assert (metered.cluster.get(*SCALER) or {})["spec"] == own
    with simplified(metered.cluster, SCALER, 2):  # keeps what was deployed meanwhile
        pass
    assert (metered.cluster.get(*SCALER) or {})["spec"] == own


def test_without_metrics_server_scaling_is_not_checked(metered: Metered) -> None:
    metered.platform.controllers.remove(metered.cluster)
    assert not metered.cluster.exists(*API_SERVICE)
    check, follows = check_scaling(metered.cluster, metered.plan, lambda _: None, "metrics-server could not be built")
    assert (check.holds, check.seen) == (None, "metrics-server could not be built")
    assert (follows.holds, follows.promise) == (None, "vision/api: the autoscaler follows latency_p99_seconds")
    metered.cluster.delete(Reference("v1", "Namespace", "vision"))  # would wait for an API server that does not answer
