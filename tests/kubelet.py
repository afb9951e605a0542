"""A kubelet for the simulated nodes of a platform: serves logs of pods to the API server."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3
from loopback import LOOPBACK, Handler, serving

from gpu_tenancy.base.json import map_at
from gpu_tenancy.embedded.parts import read_ports
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference


@contextmanager
def kubelet(platform: Platform, cluster: Cluster, nodes: Iterable[str], ended: Event | None = None) -> Generator[None]:
    """Gives each pod of some nodes a log of three lines, the last one without a line feed; kwok answers other requests.

    The third line of a followed log is written when `ended` is set; None: at once.
    """
    kwok = f"https://{LOOPBACK}:{read_ports(platform.places).kwok}"
    pool = urllib3.PoolManager(cert_reqs="CERT_NONE")

    class Kubelet(Handler):
        def do_GET(self) -> None:  # noqa: N802 - the base class gives the name
            url = urlsplit(self.path)
            if not url.path.startswith("/containerLogs/"):
                answer = pool.request("GET", f"{kwok}{self.path}")
                self.answer(answer.status, answer.data)
                return
            _, _, _, pod, container = url.path.split("/")
            query = parse_qs(url.query)
            lines = [f"{container} of {pod} starts\n", "step 1\n", "step 2"]
            lines = lines[-int(query["tailLines"][0]) :] if "tailLines" in query else lines
            self.send_response(200)
            self.end_headers()
            for line in lines:
                if "follow" in query and ended and line is lines[-1]:
                    ended.wait(60)
                self.wfile.write(line.encode())
                self.wfile.flush()

    places = platform.places
    with serving(Kubelet, (Path(places.certificate("kwok")), Path(places.key("kwok")))) as address:
        port = urlsplit(address).port
        changed: dict[str, Any] = {
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        earlier: dict[Reference, Any] = {}
        for reference in (Reference("v1", "Node", node) for node in nodes):
            status = map_at(cluster.get(*reference) or {}, "status")
            earlier[reference] = {key: status.get(key) for key in changed}
            cluster.patch(reference, {"status": changed}, subresource="status")
        yield
        for reference, status in earlier.items():
            cluster.patch(reference, {"status": status}, subresource="status")
