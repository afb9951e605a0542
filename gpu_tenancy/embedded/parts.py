"""The parts of the control plane and their flags: TLS and RBAC are on, servers listen on loopback only."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from gpu_tenancy.base.output import write_private
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.catalogue.clouds import Admission, clouds

LOOPBACK: Final = "127.0.0.1"
SERVICES: Final = "10.0.0.0/16"
STAGES: Final = Path(__file__).parent / "stages.yaml"
USAGE: Final = Path(__file__).parent / "usage.yaml"

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
NODES: Final = "kwok"

_LEASE: Final = 160  # seconds; kwok renews each fourth of it. With 40 s, leases of 3,000 nodes take most of a core.

PARTS: Final = (ETCD, API_SERVER, CONTROLLERS, SCHEDULER, NODES)  # in the order of their start


class Places:
    """The files of one platform; `down` deletes `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.certificates = home / "certificates"  # keys and certificates of all parts
        self.kubeconfig = home / "kubeconfig"  # of the administrator
        self.data = home / "etcd"  # of etcd
        self.state = home / "platform.json"  # pids and ports of the running parts
        self.carried = home / "carried.json"  # name and engine of the deployed stack

    def log(self, part: str) -> Path:
        """The log file of a part."""
        return self.home / "logs" / f"{part}.log"

    def client_config(self, client: str) -> Path:
        """The kubeconfig of a part."""
        return self.home / "clients" / f"{client}.kubeconfig"

    def certificate(self, name: str) -> str:
        """A certificate's file."""
        return str(self.certificates / f"{name}.crt")

    def key(self, name: str) -> str:
        """A private key's file."""
        return str(self.certificates / f"{name}.key")


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports on the loopback; all nodes answer at kwok's."""

    api: int
    etcd: int
    etcd_peer: int
    kwok: int


def read_ports(places: Places) -> Ports:
    """The ports of a platform that was started.

    Raises:
        FileNotFoundError: it was not.
    """
    return Ports(**json.loads(places.state.read_text(encoding="utf-8"))["ports"])


def flags(part: str, places: Places, ports: Ports) -> list[str]:
    """The flags of a part."""
    return {
        ETCD: _etcd,
        API_SERVER: _api_server,
        CONTROLLERS: _controllers,
        SCHEDULER: _scheduler,
        NODES: _nodes,
    }[part](places, ports)


def _etcd(places: Places, ports: Ports) -> list[str]:
    clients, peers = f"https://{LOOPBACK}:{ports.etcd}", f"https://{LOOPBACK}:{ports.etcd_peer}"
    return [
        f"--data-dir={places.data}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        f"--cert-file={places.certificate('etcd')}",
        f"--key-file={places.key('etcd')}",
        "--client-cert-auth",
        f"--trusted-ca-file={places.certificate('etcd-authority')}",
        f"--peer-cert-file={places.certificate('etcd')}",
        f"--peer-key-file={places.key('etcd')}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={places.certificate('etcd-authority')}",
        "--unsafe-no-fsync",  # data lost in a power failure is created again by the next `up`
        "--log-level=warn",
    ]


def _api_server(places: Places, ports: Ports) -> list[str]:
    return [
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={ports.api}",
        f"--tls-cert-file={places.certificate('serving')}",
        f"--tls-private-key-file={places.key('serving')}",
        f"--client-ca-file={places.certificate('authority')}",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        f"--etcd-servers=https://{LOOPBACK}:{ports.etcd}",
        f"--etcd-cafile={places.certificate('etcd-authority')}",
        f"--etcd-certfile={places.certificate('etcd-client')}",
        f"--etcd-keyfile={places.key('etcd-client')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={places.key('service-accounts')}",
        f"--service-account-signing-key-file={places.key('service-accounts')}",
        f"--service-cluster-ip-range={SERVICES}",
        # API servers that serve further groups, such as metrics-server, trust user names from this certificate only.
        f"--requestheader-client-ca-file={places.certificate('front-proxy-authority')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={places.certificate('front-proxy')}",
        f"--proxy-client-key-file={places.key('front-proxy')}",
        "--endpoint-reconciler-type=none",  # no pod calls the API server
        "--allow-privileged=true",
        "--profiling=false",
    ]


def _controllers(places: Places, _ports: Ports) -> list[str]:
    return [
        f"--kubeconfig={places.client_config('controller-manager')}",
        f"--service-account-private-key-file={places.key('service-accounts')}",
        f"--root-ca-file={places.certificate('authority')}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",  # it has no clients
        "--profiling=false",
        # The default of five minutes would show old quota usage in the summary.
        "--resource-quota-sync-period=10s",
        "--horizontal-pod-autoscaler-sync-period=2s",
        # Deleting a namespace takes two requests per kind: at the default of 20/s, minutes for many teams.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        f"--node-monitor-grace-period={_LEASE + 40}s",
        # Volumes cannot be attached to simulated nodes. The other one compiles each policy again for each kind that it
        # could match, to write warnings into its status: more than half of the work of deploying a stack's guards.
        "--controllers=*,-persistentvolume-attach-detach-controller,-validatingadmissionpolicy-status-controller",
    ]


def _scheduler(places: Places, _ports: Ports) -> list[str]:
    kubeconfig = f"--kubeconfig={places.client_config('scheduler')}"
    return [kubeconfig, "--leader-elect=false", "--secure-port=0", "--profiling=false"]


def _nodes(places: Places, ports: Ports) -> list[str]:
    return [
        f"--kubeconfig={places.client_config('kwok')}",
        f"--config={STAGES},{USAGE}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--node-lease-duration-seconds={_LEASE}",
        f"--node-ip={LOOPBACK}",
        "--cidr=10.1.0.0/16",
        f"--server-address={LOOPBACK}:{ports.kwok}",
        f"--tls-cert-file={places.certificate('kwok')}",
        f"--tls-private-key-file={places.key('kwok')}",
    ]


@cache
def services() -> Mapping[str, Admission]:
    """The settings of each Kubernetes service, by its name in lower case, such as `gke`."""
    return {cloud.title.lower(): cloud.admission for cloud in clouds().values() if cloud.admission}


def admission_flags(service: str, home: Path) -> list[str]:
    """Flags of the API server of a service, with their configuration in the platform's folder; none without one."""
    if not service:
        return []
    settings = services()[service]
    file = home / "admission.json"
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": settings.limited_classes}
    limited = [{"resource": "pods", "matchScopes": [scope]}] if settings.limited_classes else []
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "ResourceQuotaConfiguration",
        "limitedResources": limited,
    }
    admission = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ResourceQuota", "configuration": configuration}],
    }
    write_private(file, json.dumps(admission))
    return [
        f"--enable-admission-plugins={','.join(settings.plugins)}",
        f"--admission-control-config-file={file}",
    ]


def admission_objects(service: str) -> Iterator[Manifest]:
    """The quota that the service itself has in `kube-system` of every cluster, for the classes that it limits."""
    if service and (classes := services()[service].limited_classes):
        expression: Manifest = {"scopeName": "PriorityClass", "operator": "In", "values": list(classes)}
        yield {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gcp-critical-pods", "namespace": "kube-system"},
            "spec": {"hard": {"pods": "1G"}, "scopeSelector": {"matchExpressions": [expression]}},
        }
