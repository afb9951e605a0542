"""The admission settings of clouds on the embedded API server: `admission` in `model/catalogue/clouds.yaml`."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from gpu_tenancy.base.writing import write_private
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.catalogue.clouds import Admission, clouds

_PLUGIN: Final = "ResourceQuota"


@cache
def services() -> Mapping[str, Admission]:
    """The settings of each Kubernetes service, by its name in lower case, such as `gke`."""
    return {cloud.title.lower(): cloud.admission for cloud in clouds().values() if cloud.admission}


def admission_flags(service: str, home: Path) -> list[str]:
    """Flags of the API server of a service.

    Args:
        service: a name of `services`; empty for Kubernetes' defaults.
        home: folder of the platform, in which the configuration is written.
    """
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
        "plugins": [{"name": _PLUGIN, "configuration": configuration}],
    }
    write_private(file, json.dumps(admission))
    return [
        f"--enable-admission-plugins={','.join(settings.plugins)}",
        f"--admission-control-config-file={file}",
    ]


def admission_objects(service: str) -> Iterator[Manifest]:
    """What the service itself has in every cluster: the quota in `kube-system` for the classes that it limits."""
    if service and (classes := services()[service].limited_classes):
        expression: Manifest = {"scopeName": "PriorityClass", "operator": "In", "values": list(classes)}
        yield {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gcp-critical-pods", "namespace": "kube-system"},
            "spec": {"hard": {"pods": "1G"}, "scopeSelector": {"matchExpressions": [expression]}},
        }
