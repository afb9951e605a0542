"""One pass over a real API server with the real Kueue: the stack `local`, deployed, checked, and guarded."""

import contextlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from acceptance_guards import PRODUCTION, RESEARCH, TEAMS, TOLERATION, Door, bounded, gang, job, pod, pod_of, train_job
from cli_builders import Project
from platforms import ending
from prometheus_tool import running
from repository import ROOT
from starts import GUARD

from gpu_tenancy.base.progress import Report
from gpu_tenancy.cost.prometheus import Prometheus
from gpu_tenancy.embedded.building import KUBERNETES
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.errors import WaitTimeoutError
from gpu_tenancy.kube.waiting import wait_for
from gpu_tenancy.local.metrics import serving
from gpu_tenancy.local.up import Outcome, up

pytestmark = [pytest.mark.platform, pytest.mark.smoke]

# The purpose of each guard, and words of its message.
REFUSED: dict[str, tuple[Any, str]] = {
    "the queue of another team": (job(RESEARCH, PRODUCTION), "queue"),
    "a toleration without GPUs": (pod(RESEARCH, None, pod_of(0, tolerations=[TOLERATION])), "requests no GPU"),
    "another scheduler": (job(RESEARCH, RESEARCH, pod_of(schedulerName="mine")), "sets schedulerName mine"),
    "a node by name": (job(RESEARCH, RESEARCH, pod_of(nodeName="l4-0")), "bypasses schedulers and taints"),
    "a priority of the system": (
        job(RESEARCH, RESEARCH, pod_of(priorityClassName="system-cluster-critical")),
        "uses priority class system-cluster-critical",
    ),
    "more GPUs than a container may have": (job(RESEARCH, RESEARCH, pod_of(16)), "16"),
    "more limit than its request allows": (job(RESEARCH, RESEARCH, bounded(cpu=("1", "4"))), "cpu"),
}
ADMITTED: tuple[Any, ...] = (
    pod(RESEARCH, RESEARCH),
    job(RESEARCH, RESEARCH),
    job(RESEARCH, None),
    train_job(RESEARCH, RESEARCH),
    gang(RESEARCH, "ml-research-l4"),
)


@pytest.fixture(scope="module")
def platform_of_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with ending(tmp_path_factory.mktemp("smoke") / "home") as platform:
        yield platform


@pytest.fixture(scope="module")
def deployed(platform_of_local: Platform, tmp_path_factory: pytest.TempPathFactory, report: Report) -> Outcome:
    """The stack `local` with guards that deny, deployed by `tenancy local up`."""
    project = Project.at(tmp_path_factory.mktemp("project") / "local")
    file = project.folder / "stacks/Pulumi.local.yaml"
    shutil.copy(ROOT / "stacks/Pulumi.local.yaml", file)
    with file.open("a", encoding="utf-8") as stack:
        stack.write("\n  gpu-tenancy:guards: deny\n")
    return up("local", platform_of_local, report, project.folder)


def test_every_check_of_the_stack_passes(deployed: Outcome, platform_of_local: Platform) -> None:
    assert {"kueue", "volcano"} <= platform_of_local.controllers.running()
    assert [check for check in deployed.checks if not check.holds] == []
    assert deployed.verdict.tone == "good"
    real, simulated = deployed.composition.real, deployed.composition.simulated
    assert real[:3] == (f"API server {KUBERNETES.removeprefix('v')}", "controller manager", "scheduler")
    assert {"Kueue 0.19.2", "Volcano 1.14.1", "jobset 0.12.0", "Kubeflow Trainer 2.3.0"} <= {*real}
    assert simulated == ("nodes and their GPUs (kwok)", "CPU load", "inference_latency_p99_seconds")


def test_each_guard_denies_its_own_attempts(deployed: Outcome, platform_of_local: Platform, tmp_path: Path) -> None:
    with platform_of_local.cluster() as cluster:
        door = Door(cluster, deployed.kubeconfig, tmp_path)
        with door.let_in("alice", "edit", *TEAMS) as alice:
            cluster.wait_for(lambda: not alice.refusal(pod(RESEARCH, RESEARCH)), what="her rights")
            messages = {name: alice.refusal(manifest) for name, (manifest, _) in REFUSED.items()}
            denied = {
                name
                for name, (_, words) in REFUSED.items()
                if "denied request" in messages[name] and words in messages[name]
            }
            assert denied == set(REFUSED), messages
            assert [message for manifest in ADMITTED if (message := alice.refusal(manifest))] == []


# Panels that stay empty until something happens: an alarm, an eviction, an admission between two samples of a rule; and
# the metrics of KEDA, which does not run here.
QUIET = {
    "nodes/Nodes/B",
    "quota/Preemptions in 30 days/A",
    "quota/Preemptions in 30 days/B",
    "quota/Queues that admit nothing/A",
    "quota/Workloads evicted within the hour/A",
    "serving/Failures of KEDA's triggers within the hour/A",
}


def _expressions(boards: Path) -> dict[str, str]:
    """Of each panel, with all values of its variables; without metrics that rules record each 5 minutes."""
    found: dict[str, str] = {}
    for file in boards.glob("*/*.json"):
        board = json.loads(file.read_text(encoding="utf-8"))
        chosen = {
            one["name"]: f"({one['query'].replace(',', '|')})" if one["type"] == "custom" else ".+"
            for one in board["templating"]["list"]
        }
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                name = f"{board['uid'].removeprefix('gpu-tenancy-')}/{panel['title']}/{target['refId']}"
                found[name] = re.sub(r"\$([a-z]+)", lambda one, chosen=chosen: chosen[one[1]], target["expr"])
    return {name: expr for name, expr in found.items() if "gpu_tenancy:" not in expr and name not in QUIET}


def test_each_panel_has_values_on_a_laptop(deployed: Outcome, platform_of_local: Platform, tmp_path: Path) -> None:
    with serving(platform_of_local, deployed.preview.stack, 0, tmp_path) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        file = tmp_path / "prometheus.yml"
        file.write_text(file.read_text(encoding="utf-8").replace("15s", "1s"), encoding="utf-8")
        empty = _expressions(tmp_path / "grafana" / "boards")
        assert len(empty) > 60
        with running(file, tmp_path / "data") as url:
            prometheus = Prometheus(url)

            def filled() -> bool:
                for name in [name for name, expr in empty.items() if any(prometheus.query(expr, time.time()))]:
                    del empty[name]
                return not empty

            with contextlib.suppress(WaitTimeoutError):
                wait_for(filled, timeout=60, what="values of each panel")
        server.shutdown()
    assert empty == {}


def test_metrics_reject_other_host_headers(deployed: Outcome, platform_of_local: Platform, tmp_path: Path) -> None:
    with serving(platform_of_local, deployed.preview.stack, 0, tmp_path) as server:
        Thread(target=server.serve_forever, daemon=True).start()

        def status(path: str, host: str) -> int:
            connection = HTTPConnection("127.0.0.1", server.server_port, timeout=GUARD)
            connection.request("GET", path, headers={"Host": host})
            return connection.getresponse().status

        own = f"127.0.0.1:{server.server_port}"
        assert [status("/dcgm-exporter", own), status("/", own), status("/dcgm-exporter", "evil.example")] == [
            200,
            404,
            421,
        ]
        server.shutdown()
    with platform_of_local.cluster() as cluster:
        binding = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "gpu-tenancy-metrics")
        cluster.wait_for(lambda: not cluster.exists(*binding), what="its rights to be gone")
