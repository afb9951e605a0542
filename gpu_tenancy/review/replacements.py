"""Fields whose change forces Pulumi to replace a resource."""

import re
from collections.abc import Mapping
from typing import Final

from gpu_tenancy.base.json import Json

_SELECTOR: Final = ("spec.selector",)

FORCES_NEW: Final[Mapping[str, tuple[str, ...]]] = {
    "apps:DaemonSet": _SELECTOR,
    "apps:Deployment": _SELECTOR,
    "apps:StatefulSet": (
        *_SELECTOR,
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "batch:Job": (*_SELECTOR, "spec.completions", "spec.parallelism", "spec.template"),
    "core:ConfigMap": ("binaryData", "data"),
    "core:PersistentVolume": (
        "spec.awsElasticBlockStore",
        "spec.azureDisk",
        "spec.csi",
        "spec.hostPath",
        "spec.local",
        "spec.nfs",
    ),
    "core:PersistentVolumeClaim": (*_SELECTOR, "spec.accessModes", "spec.storageClassName", "spec.volumeName"),
    "core:ResourceQuota": ("spec.scopes",),
    "core:Secret": ("data", "stringData", "type"),
    "core:Service": ("spec.clusterIP",),
    "rbac.authorization.k8s.io:ClusterRoleBinding": ("roleRef",),
    "rbac.authorization.k8s.io:RoleBinding": ("roleRef",),
    "storage.k8s.io:StorageClass": ("parameters", "provisioner"),
}
"""Fields, by API group and kind, whose change makes pulumi-kubernetes replace the object, besides its name.

Read on 2026-11-21: https://github.com/pulumi/pulumi-kubernetes/blob/master/provider/pkg/provider/diff.go
ConfigMaps and Secrets: not where the provider has `enableConfigMapMutable` and `enableSecretMutable`.
"""

NAMED_BY: Final = ("metadata.name", "metadata.namespace")


_MUTABLE: Final = {
    "kubernetes:core/v1:ConfigMap": "enableConfigMapMutable",
    "kubernetes:core/v1:Secret": "enableSecretMutable",
}


def forces_new(type_: str, path: str, declared: tuple[str, ...], provider: Mapping[str, Json]) -> bool:
    """Whether a change at this path forces replacement, as far as known without the cloud's provider.

    Args:
        type_: the resource's type token.
        path: `spec.template.spec.containers.0.image`.
        declared: `replaceOnChanges` of the resource, such as `spec.containers[0].image`.
        provider: inputs of its provider; some are strings that contain JSON.
    """
    mutable = provider.get(_MUTABLE.get(type_, "")) in {True, "true"}
    dotted = (re.sub(r"\[([0-9]+)\]", r".\1", field) for field in declared)
    fields = (*dotted, *(NAMED_BY if mutable else _of_kubernetes(type_)))
    return any(path == field or path.startswith(f"{field}.") or field == "*" for field in fields)


def _of_kubernetes(type_: str) -> tuple[str, ...]:
    if not type_.startswith("kubernetes:"):
        return ()
    _, version, kind = type_.split(":")
    return (*NAMED_BY, *FORCES_NEW.get(f"{version.partition('/')[0]}:{kind}", ()))
