"""The parts of the control plane, with their files, ports and flags."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Final

from gpu_tenancy.base.output import write_private
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.catalogue.clouds import Admission, clouds
from gpu_tenancy.model.yaml import read_table

LOOPBACK: Final = "127.0.0.1"

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
NODES: Final = "kwok"

PARTS: Final = (ETCD, API_SERVER, CONTROLLERS, SCHEDULER, NODES)  # in the order of their start


class Places:
    """The files of one platform; `down` deletes `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clients = home / "clients"  # kubeconfigs of the parts
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
        return self.clients / f"{client}.kubeconfig"

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
    """The ports of a started platform; raises FileNotFoundError if it was not started."""
    return Ports(**json.loads(places.state.read_text(encoding="utf-8"))["ports"])


def flags(part: str, places: Places, ports: Ports) -> list[str]:
    """The flags of a part."""
    marks = {
        **asdict(ports),
        "loopback": LOOPBACK,
        "data": places.data,
        "certificates": places.certificates,
        "clients": places.clients,
        "here": Path(__file__).parent,
    }
    return [Template(flag).substitute(marks) for flag in _flags()[part]]


@cache
def _flags() -> Mapping[str, list[str]]:
    return read_table(Path(__file__).with_suffix(".yaml"))


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
    api = "apiserver.config.k8s.io/v1"
    quota = {"apiVersion": api, "kind": "ResourceQuotaConfiguration", "limitedResources": limited}
    plugins = [{"name": "ResourceQuota", "configuration": quota}]
    write_private(file, json.dumps({"apiVersion": api, "kind": "AdmissionConfiguration", "plugins": plugins}))
    return [f"--enable-admission-plugins={','.join(settings.plugins)}", f"--admission-control-config-file={file}"]


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
