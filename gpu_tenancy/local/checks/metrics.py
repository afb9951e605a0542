"""Metrics of pods for a check: simulated values at the API custom.metrics.k8s.io, instead of an adapter."""

import json
import ssl
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.embedded.certificates import make_webhook_certificates
from gpu_tenancy.embedded.controllers.launching import serve
from gpu_tenancy.embedded.parts import LOOPBACK
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference

# https://github.com/kubernetes/metrics/blob/master/pkg/apis/custom_metrics/v1beta2/types.go
_API: Final = "custom.metrics.k8s.io/v1beta2"
_LIST: Final = "MetricValueList"
_SERVICE: Final = Reference("v1", "Service", "gpu-tenancy-check", "kube-system")
_SERVED: Final = Reference("apiregistration.k8s.io/v1", "APIService", "v1beta2.custom.metrics.k8s.io")
_VERSIONS: Final = ("v1beta1", "v1beta2")


@contextmanager
def simulated(cluster: Cluster, names: Iterable[str]) -> Generator[dict[str, int]]:
    """Serves metrics of pods while the block runs, with the values of the yielded dict, in thousandths; at first 0.

    The dict is empty if another program serves the API. The API server asks at a free port of loopback, where other
    programs of this machine can read the simulated values too. Raises WaitTimeoutError if the API server does not find
    the API.
    """
    values = dict.fromkeys(names, 0)
    withdraw(cluster)
    if not values or any(cluster.exists(*_SERVED[:2], f"{one}.custom.metrics.k8s.io") for one in _VERSIONS):
        yield {}
        return
    with TemporaryDirectory() as folder, _server(cluster, values) as server:
        certificates = make_webhook_certificates(Path(folder), [f"{_SERVICE.name}.{_SERVICE.namespace}.svc"], "")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(Path(folder) / "tls.crt", Path(folder) / "tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            group, _, version = _API.partition("/")
            service: Manifest = {
                "apiVersion": _SERVED.api_version,
                "kind": _SERVED.kind,
                "metadata": {"name": _SERVED.name},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "service": {"name": _SERVICE.name, "namespace": _SERVICE.namespace},
                },
            }
            serve(cluster, service, server.server_port, certificates["ca.crt"])
            yield values
        finally:
            withdraw(cluster)
            server.shutdown()


def withdraw(cluster: Cluster) -> None:
    """Deletes the API of a killed check: namespaces cannot be deleted while an API does not answer."""
    if cluster.exists(*_SERVICE):
        cluster.delete(_SERVED, wait=0)
        cluster.delete(_SERVICE, wait=0)


def _server(cluster: Cluster, values: Mapping[str, int]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = _answer(cluster, values, self.path)
            self.send_response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found or {}).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Prints nothing, to keep the output of the command clean."""

    return ThreadingHTTPServer((LOOPBACK, 0), Handler)


def _answer(cluster: Cluster, values: Mapping[str, int], address: str) -> Manifest | None:
    """The answer to a request of the API server: the kinds, or one metric of the pods of a selector."""
    parts = urlsplit(address)
    match [unquote(part) for part in parts.path.removeprefix(f"/apis/{_API}").split("/")[1:]]:
        case []:
            kinds: list[Json] = [
                {"name": f"pods/{name}", "singularName": "", "namespaced": True, "kind": _LIST, "verbs": ["get"]}
                for name in values
            ]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _API, "resources": kinds}
        case ["namespaces", namespace, "pods", "*", name] if name in values:
            labels = ",".join(parse_qs(parts.query).get("labelSelector", []))
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            value: dict[str, Json] = {"metric": {"name": name}, "timestamp": now, "value": f"{values[name]}m"}
            pod: dict[str, Json] = {"kind": "Pod", "apiVersion": "v1", "namespace": namespace}
            items: list[Json] = [
                {"describedObject": {**pod, "name": text_at(one, "metadata", "name")}, **value}
                for one in cluster.list("v1", "Pod", namespace=namespace, labels=labels)
            ]
            return {"kind": _LIST, "apiVersion": _API, "metadata": {}, "items": items}
        case _:
            return None
