"""Autoscalers act on engines' metrics: a small server with vLLM's metrics; all other parts are real.

Prometheus scrapes the server for each pod, prometheus-adapter serves the rules of the stack to the autoscaler of
Kubernetes, which sets the number of pods. The pods are kwok's, so the test serves their metrics.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import yaml
from builders import pool, server, team
from cli_builders import EXISTING, Project
from loopback import LOOPBACK, Handler, serving
from prometheus_tool import prometheus

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import find_go
from gpu_tenancy.embedded.certificates import make_webhook_certificates
from gpu_tenancy.embedded.controllers.launching import serve
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import waves
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.signals import adapter_rules, signal_rules

VERSION: Final = "v0.12.0"
BUILD: Final = "GPU_TENANCY_BUILD_ADAPTER"  # environment variable: build it
_MODULE: Final = f"sigs.k8s.io/prometheus-adapter@{VERSION}"
# Checksum of the module's content in the checksum database: https://sum.golang.org.
_SUM: Final = "h1:e29A6BIwA/NKxPZeuamBMHJsvz0sSUXTb92Obg7RMV4="


def adapter(report: Report) -> Path:
    """The cached program. It is built by `make signals` only (1,300 packages); without it, the test is skipped."""
    cache = Platform(Path(os.devnull)).cache
    kept = cache / "programs" / f"prometheus-adapter-{VERSION}-{platform.machine()}" / "adapter"
    if kept.is_file():
        return kept
    if not os.environ.get(BUILD):
        pytest.skip("prometheus-adapter is not built: run `make signals`")
    try:
        go = find_go((1, 22), cache, report)
    except ConsoleError as error:
        pytest.skip(f"prometheus-adapter is not built: {error}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=kept.parent) as text:
        folder = Path(text)
        found = go.output("mod", "download", "-json", _MODULE, folder=folder)
        module = json.loads(found.stdout or "{}")
        if "Dir" not in module:
            pytest.skip(f"prometheus-adapter is not built: {module.get('Error') or found.stderr}")
        assert module["Sum"] == _SUM
        shutil.copytree(module["Dir"], folder / "source", copy_function=shutil.copyfile)
        report(f"building prometheus-adapter {VERSION} from its Go module (first run only)")
        arguments = ("build", "-ldflags=-s -w", "-o", str(folder / "adapter"), "./cmd/adapter")
        done = go.output(*arguments, folder=folder / "source")
        if done.returncode:
            pytest.skip(f"prometheus-adapter is not built: {done.stderr[-300:]}")
        (folder / "adapter").replace(kept)
    return kept


pytestmark = [pytest.mark.platform, pytest.mark.slow]

KINDS: Final = {"Namespace", "ServiceAccount", "Deployment", "HorizontalPodAutoscaler"}
NAMESPACE: Final = "chat"
# Servers by name, with their metrics.
TARGETS: Final[dict[str, dict[str, Any]]] = {
    "queued": {"queue": 4},
    "cached": {"cache": 80},
    "late": {"latencyP99": "2s"},
}


def sections() -> Any:
    """A server for each signal, in a namespace that rejects pods which may run as root."""
    served = {
        name: server(
            engine="vllm",
            model={"image": "registry.example.com/ml/llama:1.0"},
            replicas={"min": 1, "max": 3},
            scaleOn={"cpu": None, **target},
        )
        for name, target in TARGETS.items()
    }
    return {
        "cluster": dict(EXISTING),
        "metrics": {"by": "adapter"},
        "operators": {"prometheus": "installed", "prometheusAdapter": "installed"},
        "pools": {"cpu": pool("m7i.8xlarge", 1), "l4": pool("g6.12xlarge", 3)},
        "teams": {NAMESPACE: team(gpus={"l4": {"guaranteed": 12}}, serving=served, podSecurity="restricted")},
    }


@dataclass
class Engines:
    """Pods with vLLM's metrics; `load`: waiting requests, `finished`: answered within 1 s, and all, by pod."""

    cluster: Cluster
    load: dict[str, float] = field(default_factory=dict[str, float])
    finished: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def pods(self) -> list[tuple[str, str]]:
        found = self.cluster.list("v1", "Pod", namespace=NAMESPACE)
        return [
            (text_at(pod, "metadata", "name"), text_at(pod, "metadata", "labels", "app.kubernetes.io/name"))
            for pod in found
            if text_at(pod, "status", "phase") == "Running"
        ]

    def targets(self, address: str) -> str:
        """The answer for Prometheus' service discovery by HTTP, with the labels of a ServiceMonitor."""
        return json.dumps(
            [
                {
                    "targets": [address.removeprefix("http://")],
                    "labels": {
                        "__metrics_path__": f"/{service}/{pod}",
                        "namespace": NAMESPACE,
                        "service": service,
                        "pod": pod,
                    },
                }
                for pod, service in self.pods()
            ]
        )

    def metrics(self, service: str, pod: str) -> str:
        """vLLM's metrics of a pod, which answers 10 requests in each scrape: late ones if more than 4 are waiting."""
        waiting = self.load.get(service, 0) / max(1, sum(name == service for _, name in self.pods()))
        fast, every = self.finished.get(pod, (0, 0))
        fast, every = self.finished[pod] = (fast + (10 if waiting <= 4 else 0), every + 10)
        labels = 'model_name="llama",engine="0"'
        latency = "vllm:e2e_request_latency_seconds"
        return "\n".join(
            [
                "# TYPE vllm:num_requests_waiting gauge",
                f"vllm:num_requests_waiting{{{labels}}} {waiting}",
                "# TYPE vllm:kv_cache_usage_perc gauge",
                f"vllm:kv_cache_usage_perc{{{labels}}} {min(1, waiting / 10)}",
                f"# TYPE {latency} histogram",
                f'{latency}_bucket{{{labels},le="1.0"}} {fast}',
                f'{latency}_bucket{{{labels},le="5.0"}} {every}',
                f'{latency}_bucket{{{labels},le="+Inf"}} {every}',
                f"{latency}_sum{{{labels}}} {every}",
                f"{latency}_count{{{labels}}} {every}",
                "",
            ]
        )


@dataclass(frozen=True)
class Live:
    cluster: Cluster
    engines: Engines

    def replicas(self, name: str) -> int:
        count = at(self.cluster.get("apps/v1", "Deployment", name, NAMESPACE) or {}, "spec", "replicas")
        return count if isinstance(count, int) else 0

    def until(self, name: str, count: int) -> None:
        what = f"{name} to have {count} replicas: {self.autoscaler(name)}"
        self.cluster.wait_for(lambda: self.replicas(name) == count, what=what, timeout=180)

    def autoscaler(self, name: str) -> str:
        scaler = self.cluster.get("autoscaling/v2", "HorizontalPodAutoscaler", name, NAMESPACE) or {}
        return json.dumps(at(scaler, "status"))


@contextmanager
def running(command: list[str], log: Path) -> Generator[None]:
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()


def scraping(address: str) -> str:
    discovery = {"url": f"{address}/targets", "refresh_interval": "1s"}
    job = {"job_name": "servers", "scrape_interval": "1s", "http_sd_configs": [discovery]}
    return yaml.safe_dump({"scrape_configs": [job]})


def api_service() -> Manifest:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.custom.metrics.k8s.io"},
        "spec": {
            "group": "custom.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": "prometheus-adapter", "namespace": "kube-system"},
        },
    }


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[Live]:
    programs = prometheus(), adapter(report)
    folder = tmp_path_factory.mktemp("signals")
    project = Project.at(folder / "project")
    project.write("good", sections())
    shown = preview("good", project.folder)
    platform = Platform(folder / "home")
    with ExitStack() as until_the_end:
        until_the_end.callback(platform.down)
        platform.up(report)
        cluster = until_the_end.enter_context(platform.cluster())
        bring_nodes(cluster, node_shapes(shown.stack))
        kinds = [item for item in shown.objects if item.kind in KINDS]
        manifests = [[dict(item.manifest) for item in wave] for wave in waves(kinds)]
        apply(cluster, manifests, folder / "inventory.json")
        engines = Engines(cluster)
        rules = [*adapter_rules(Environment(shown.stack)), *signal_rules(Environment(shown.stack))]
        (folder / "rules.yml").write_text(yaml.safe_dump({"rules": rules}))
        _measure(until_the_end, engines, programs, platform, folder)
        # Its own windows would take more than ten minutes; targets, minimum and maximum are its own.
        at_once: Any = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 3, "periodSeconds": 1}]}
        for name in TARGETS:
            scaler = Reference("autoscaling/v2", "HorizontalPodAutoscaler", name, NAMESPACE)
            cluster.patch(scaler, {"spec": {"behavior": {"scaleUp": at_once, "scaleDown": at_once}}})
        yield Live(cluster, engines)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        return int(taken.getsockname()[1])


def _measure(
    until_the_end: ExitStack, engines: Engines, programs: tuple[Path, Path], platform: Platform, folder: Path
) -> None:
    """Starts all programs between the pods and their autoscalers."""

    class Metrics(Handler):
        def do_GET(self) -> None:  # noqa: N802 - the base class gives the name
            _, service, *pod = self.path.split("/")
            text = engines.metrics(service, pod[0]) if pod else engines.targets(address)
            kind = "text/plain" if pod else "application/json"
            self.answer(200, text.encode(), ("Content-Type", kind))

    address = until_the_end.enter_context(serving(Metrics))
    ports = [_free_port(), _free_port()]
    (folder / "prometheus.yml").write_text(scraping(address))
    files = make_webhook_certificates(folder / "certificates", ["prometheus-adapter.kube-system.svc"], "")
    of_prometheus = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'samples'}",
        f"--web.listen-address={LOOPBACK}:{ports[0]}",
    ]
    access = [f"--{kind}-kubeconfig={platform.kubeconfig}" for kind in ("lister", "authentication", "authorization")]
    of_adapter = [
        f"--prometheus-url=http://{LOOPBACK}:{ports[0]}/",
        f"--config={folder / 'rules.yml'}",
        "--metrics-relist-interval=2s",
        "--metrics-max-age=1m",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports[1]}",
        f"--tls-cert-file={folder / 'certificates/tls.crt'}",
        f"--tls-private-key-file={folder / 'certificates/tls.key'}",
        *access,
    ]
    until_the_end.enter_context(running([str(programs[0]), *of_prometheus], folder / "prometheus.log"))
    until_the_end.enter_context(running([str(programs[1]), *of_adapter], folder / "adapter.log"))
    serve(engines.cluster, api_service(), ports[1], files["ca.crt"])


def test_a_server_grows_with_its_queue_and_shrinks_without(live: Live) -> None:
    live.until("queued", 1)
    live.engines.load["queued"] = 8  # twice the target: two replicas have 4 each
    live.until("queued", 2)
    live.engines.load["queued"] = 30
    live.until("queued", 3)
    live.engines.load["queued"] = 0
    live.until("queued", 1)


def test_a_server_grows_with_its_cache(live: Live) -> None:
    live.engines.load["cached"] = 16  # full in one replica; 80 % in two
    live.until("cached", 2)
    live.engines.load["cached"] = 0
    live.until("cached", 1)


def test_a_server_grows_with_its_own_latency(live: Live) -> None:
    live.engines.load["late"] = 6
    live.until("late", 3)


def test_an_autoscaler_is_the_only_owner_of_its_replicas(live: Live) -> None:
    for name in TARGETS:
        deployment = live.cluster.get("apps/v1", "Deployment", name, NAMESPACE) or {}
        owners = [
            entry["manager"]
            for entry in json.loads(json.dumps(at(deployment, "metadata", "managedFields")))
            if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        ]
        assert set(owners) <= {"kube-controller-manager"}
