"""Kubeconfigs of one embedded platform."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from gpu_tenancy.base.writing import write_private
from gpu_tenancy.embedded.parts import LOOPBACK, Places, Ports, read_ports
from gpu_tenancy.engine.embedded import CONTEXT

_PARTS: Final = ("controller-manager", "scheduler", "kwok")


def address(ports: Ports) -> str:
    """The address of the API server."""
    return f"https://{LOOPBACK}:{ports.api}"


def write_client_configs(places: Places, ports: Ports) -> None:
    """Writes the administrator's kubeconfig, and one for each part that is a client."""
    write_private(places.kubeconfig, _kubeconfig("admin", _pair("admin", places), places, ports))
    for client in _PARTS:
        write_private(places.client_config(client), _kubeconfig(client, _pair(client, places), places, ports))


def write_account_config(places: Places, name: str, token: str) -> Path:
    """Writes the kubeconfig of a controller, for the token of its ServiceAccount; returns its path."""
    file = places.client_config(name)
    write_private(file, _kubeconfig(name, {"token": token}, places, read_ports(places)))
    return file


def _pair(client: str, places: Places) -> dict[str, str]:
    """The user of a kubeconfig that shows the certificate of a part."""
    return {
        "client-certificate-data": _data(places.certificate(client)),
        "client-key-data": _data(places.key(client)),
    }


def _kubeconfig(client: str, user: Mapping[str, str], places: Places, ports: Ports) -> str:
    cluster = {
        "server": address(ports),
        "certificate-authority-data": _data(places.certificate("authority")),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": client, "user": dict(user)}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": client}}],
        "current-context": CONTEXT,
    }
    return yaml.safe_dump(config, sort_keys=False)


def _data(file: str) -> str:
    return base64.b64encode(Path(file).read_bytes()).decode()
