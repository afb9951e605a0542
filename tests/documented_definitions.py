"""Definitions of kinds that are not published, or not in a Go module, for a real API server.

They have the name and the scope of the real ones (`scopes_documented.yaml`), and this program's fields, as documented:
an object with any other field is rejected.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpu_tenancy.engine.checks import DocumentedScope, documented_scopes
from gpu_tenancy.kube.apply import await_kinds
from gpu_tenancy.kube.client import Cluster

_VERSIONS: Final = ("v1", "v1alpha1")
_TEXT: Final = {"type": "string"}
_ANY: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _fields(**properties: Any) -> Any:
    return {"type": "object", "properties": properties}


_IMAGE: Final = {"repository": _TEXT, "image": _TEXT, "version": _TEXT}
# Specs by kind; a kind without one accepts any field.
_SPECS: Final[Mapping[str, Any]] = {
    # https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods
    "Network": _fields(type=_TEXT, parametersRef=_fields(group=_TEXT, kind=_TEXT, name=_TEXT)),
    "GKENetworkParamSet": _fields(
        vpc=_TEXT, vpcSubnet=_TEXT, deviceMode={"type": "string", "enum": ["NetDevice", "RDMA", "DPDK-VFIO"]}
    ),
    # https://github.com/Mellanox/network-operator/blob/v26.4.1/deployment/network-operator/crds/mellanox.com_nicclusterpolicies.yaml
    "NicClusterPolicy": _fields(
        nodeAffinity=_ANY,
        tolerations={"type": "array", "items": _ANY},
        ofedDriver=_fields(**_IMAGE, upgradePolicy=_fields(autoUpgrade={"type": "boolean"})),
        sriovDevicePlugin=_fields(**_IMAGE, config=_TEXT),
    ),
}


def _definition(row: DocumentedScope) -> Any:
    singular = row.kind.lower()
    plural = f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
    fields = _fields(spec=_SPECS[row.kind]) if row.kind in _SPECS else _ANY
    versions = [
        {"name": version, "served": True, "storage": version == _VERSIONS[0], "schema": {"openAPIV3Schema": fields}}
        for version in _VERSIONS
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{row.group}"},
        "spec": {
            "group": row.group,
            "scope": row.scope,
            "names": {"kind": row.kind, "plural": plural, "singular": singular},
            "versions": versions,
        },
    }


_DEFINITIONS: Final = [_definition(row) for row in documented_scopes()]
DOCUMENTED: Final = frozenset(definition["metadata"]["name"] for definition in _DEFINITIONS)


def install_documented(cluster: Cluster) -> None:
    """Installs a definition for each documented kind, and waits until all are served."""
    for definition in _DEFINITIONS:
        cluster.apply(definition)
    cluster.forget_kinds()
    assert await_kinds(cluster, _DEFINITIONS) == []
