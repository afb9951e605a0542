"""`tenancy local metrics`: the metrics of the embedded platform for a Prometheus, as of a real cluster.

Metrics of objects are served on the loopback; the Prometheus reads the controllers' metrics itself.
"""

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, Final

import yaml

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import write_private, write_text
from gpu_tenancy.embedded.parts import LOOPBACK
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError, UnreachableError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.samples import Devices, exposition, latency_samples, state_samples
from gpu_tenancy.model.observability import ObservabilityPlan, observability
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.plan.costs import gpu_prices
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import ServerPlan
from gpu_tenancy.model.spec import Stack

_READER: Final = "gpu-tenancy-metrics"
_SYSTEM: Final = "kube-system"
_RBAC: Final = "rbac.authorization.k8s.io"
_READ: Final = "Of the embedded platform's objects."
_SIMULATED: Final = "Simulated: nothing measures it."


@contextmanager
def serving(platform: Platform, stack: Stack, port: int, folder: Path) -> Generator[ThreadingHTTPServer]:
    """A server for a Prometheus, with its configuration files, and the stack's dashboards and rules.

    Run its `serve_forever`. The port is on the loopback; 0 is any free one. Raises ConsoleError if it cannot be used.
    """
    tree, servers = Tree(stack), [server for team in plan(stack).teams for server in team.servers]
    observed = observability(tree, servers, gpu_prices(tree))
    with platform.cluster() as cluster:
        try:
            server = _Server(port, _pages(cluster, servers))
        except OSError as error:
            raise ConsoleError(
                f"--port {port}: {LOOPBACK}:{port} cannot be used: {error.strerror}", "set another port, or 0"
            ) from error
        for manifest in _reader():
            cluster.apply(manifest, force=True)
        try:
            token = cluster.token(_SYSTEM, _READER)
            ports = {
                one.name: one.ports["metrics"] for one in platform.controllers.recorded() if "metrics" in one.ports
            }
            write_configuration(folder, observed, server.server_port, ports, token)
            yield server
        finally:
            server.server_close()
            for manifest in _reader():
                cluster.delete(Reference.of(manifest), wait=0)


def _pages(cluster: Cluster, servers: Sequence[ServerPlan]) -> Mapping[str, Callable[[], str]]:
    devices, one_at_a_time = Devices(), Lock()

    def of_devices() -> str:
        with one_at_a_time:
            nodes, pods = cluster.list("v1", "Node"), cluster.list("v1", "Pod")
            return exposition(devices.samples(nodes, pods, time.time()), _SIMULATED)

    return {
        STATE: lambda: exposition(state_samples(cluster.list), _READ),
        DEVICES: of_devices,
        SERVERS: lambda: exposition(latency_samples(servers, cluster.list("v1", "Pod"), time.time()), _SIMULATED),
    }


def _reader() -> tuple[Manifest, Manifest]:
    """An account that may read metrics only: Kueue checks the rights of readers of its metrics."""
    account: Manifest = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": _READER, "namespace": _SYSTEM},
    }
    binding: Manifest = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _READER},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "system:monitoring"},
        "subjects": [{"kind": "ServiceAccount", "name": _READER, "namespace": _SYSTEM}],
    }
    return account, binding


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, pages: Mapping[str, Callable[[], str]]) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.pages = pages
        # A web page whose own name was bound to 127.0.0.1 has another Host (DNS rebinding).
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = 30
    server_version, sys_version = "tenancy", ""

    def do_GET(self) -> None:
        """Answers a scrape."""
        if self.headers.get("Host", "") not in self.server.hosts:
            self._send(HTTPStatus.MISDIRECTED_REQUEST)
        elif self.path not in self.server.pages:
            self._send(HTTPStatus.NOT_FOUND, "\n".join([*self.server.pages, ""]))
        else:
            try:
                text = self.server.pages[self.path]()
            except (ApiError, UnreachableError) as error:  # Prometheus shows that the target is down, and why
                self._send(HTTPStatus.SERVICE_UNAVAILABLE, f"API server: {error}\n")
            else:
                self._send(HTTPStatus.OK, text)

    def _send(self, status: HTTPStatus, text: str = "") -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the names of http.server
        """Prints nothing: Prometheus asks every few seconds."""


STATE: Final = "/kube-state-metrics"
DEVICES: Final = "/dcgm-exporter"
SERVERS: Final = "/servers"
_PROMETHEUS: Final = "http://127.0.0.1:9090"


def write_configuration(
    folder: Path, plan: ObservabilityPlan, port: int, controllers: Mapping[str, int], token: str
) -> None:
    """Writes `prometheus.yml`, the stack's rules, and a Grafana's provisioning folder; replaces an earlier run's files.

    `port` serves the metrics of this program, `controllers` has the port of each controller's metrics. `token` gives
    access to Kueue's metrics; only this user can read its file.
    """
    write_private(folder / "token", token)
    write_text(folder / "rules.yml", _yaml({"groups": [json.loads(json.dumps(group)) for group in plan.rules]}))
    write_text(folder / "prometheus.yml", _yaml(_prometheus(folder.absolute(), port, controllers)))
    grafana = folder / "grafana"
    for file, text in plan.dashboards:
        write_text(grafana / "boards" / plan.folders[file] / file, text)
    source = {"name": "Prometheus", "type": "prometheus", "access": "proxy", "url": _PROMETHEUS, "isDefault": True}
    write_text(grafana / "datasources" / "tenancy.yaml", _yaml({"apiVersion": 1, "datasources": [source]}))
    boards = {"path": str((grafana / "boards").absolute()), "foldersFromFilesStructure": True}
    provider = {"name": "tenancy", "type": "file", "options": boards}
    write_text(grafana / "dashboards" / "tenancy.yaml", _yaml({"apiVersion": 1, "providers": [provider]}))


def _prometheus(folder: Path, port: int, controllers: Mapping[str, int]) -> dict[str, Any]:
    def job(name: str, port: int, labels: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
        target = {"targets": [f"{LOOPBACK}:{port}"], "labels": dict(labels or {})}
        return {"job_name": name, "static_configs": [target], **more}

    jobs = [
        job("kube-state-metrics", port, metrics_path=STATE, honor_labels=True),
        # As Prometheus' operator labels a target: so the exporter's own labels become `exported_…`.
        job("dcgm-exporter", port, {"namespace": "gpu-operator", "pod": "dcgm-exporter"}, metrics_path=DEVICES),
        job("servers", port, metrics_path=SERVERS, honor_labels=True),
    ]
    if "kueue-controller-manager" in controllers:
        # It signs its own certificate. The token is good for reading metrics only.
        more: dict[str, Any] = {
            "authorization": {"credentials_file": str(folder / "token")},
            "tls_config": {"insecure_skip_verify": True},
        }
        jobs.append(job("kueue", controllers["kueue-controller-manager"], scheme="https", **more))
    if "volcano-scheduler" in controllers:
        jobs.append(job("volcano", controllers["volcano-scheduler"]))
    every = {"scrape_interval": "15s", "evaluation_interval": "15s"}
    return {"global": every, "rule_files": ["rules.yml"], "scrape_configs": jobs}


def _yaml(data: Any) -> str:
    return yaml.safe_dump(data, sort_keys=False, width=120)
