"""Servers of further kinds, to which the API server passes on requests: metrics-server, an adapter of metrics."""

from typing import Final

from gpu_tenancy.base.json import Json, map_at, text_at
from gpu_tenancy.embedded.controllers.adapting import bundle
from gpu_tenancy.embedded.parts import LOOPBACK
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import holders, is_true, wait_for

SERVED_WITHIN: Final = 120.0
"""Seconds in which the kinds are served; 1 is usual. After a failure, the API server asks for them each minute."""


def serve(cluster: Cluster, service: Manifest, port: int, authority: str) -> None:
    """Has the API server pass requests for an API on to a port of loopback, and waits until it serves the kinds.

    Args:
        cluster: of the embedded platform.
        service: the APIService, as in a chart.
        port: where the kinds are served. The server must work, because discovery fails until it answers.
        authority: CA certificate in PEM.

    Raises:
        WaitTimeoutError: the API server does not find the kinds; the message has its reason.
    """
    for item in _served_at(service, port, authority):
        cluster.apply(item, force=True)
    reference = Reference.of(service)
    group, version = text_at(service, "spec", "group"), text_at(service, "spec", "version")

    def served() -> bool:
        if not is_true(cluster.get(*reference) or {}, "Available"):
            return False
        cluster.forget_kinds()
        return version in cluster.versions(group)

    wait_for(
        served,
        what=f"{group}/{version} to be served",
        timeout=SERVED_WITHIN,
        fix=lambda: holders(cluster.get(*reference)),
    )


def _served_at(service: Manifest, port: int, authority: str) -> tuple[Manifest, Manifest]:
    """A Service and the APIService.

    An APIService cannot have a URL. For a Service of type ExternalName, the API server connects to the external name
    and the port of the APIService, and checks the certificate for `<service>.<namespace>.svc`.
    """
    spec = {key: value for key, value in map_at(service, "spec").items() if key != "insecureSkipTLSVerify"}
    name, namespace = (text_at(spec, "service", key) for key in ("name", "namespace"))
    external: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "ExternalName", "externalName": LOOPBACK},
    }
    target: Json = {"name": name, "namespace": namespace, "port": port}
    return external, {**service, "spec": {**spec, "service": target, "caBundle": bundle(authority)}}
