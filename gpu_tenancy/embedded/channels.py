"""Simulated channels of nodes, and templates of ComputeDomains, as NVIDIA's DRA driver would publish and make them.

https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/v0.4.1
"""

from collections.abc import Collection, Iterator
from typing import Final

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.embedded.nodes import node_shapes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.names import CHANNEL_CLASS, COMPUTE_DOMAIN
from gpu_tenancy.model.plan.compute_domains import connected_flavors
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.pools import POOL_LABEL
from gpu_tenancy.model.spec import Stack

OURS: Final = "gpu-tenancy.dev/embedded-channel"
"""Label of the objects that this module created and can delete."""
_API: Final = "resource.k8s.io/v1"
_DRIVER: Final = "compute-domain.nvidia.com"
_LABELS: Final[dict[str, Json]] = {OURS: "true"}
_ATTRIBUTES: Final = f"device.attributes['{_DRIVER}']"
_FIRST_CHANNEL: Final = f"device.driver == '{_DRIVER}' && {_ATTRIBUTES}.type == 'channel' && {_ATTRIBUTES}.id == 0"
_CLASS: Final[Manifest] = {
    "apiVersion": _API,
    "kind": "DeviceClass",
    "metadata": {"name": CHANNEL_CLASS, "labels": _LABELS},
    "spec": {"selectors": [{"cel": {"expression": _FIRST_CHANNEL}}]},
}


def bring_channels(cluster: Cluster, stack: Stack) -> None:
    """Publishes a channel for each node of a stack whose pods can claim one, and deletes those of an earlier stack.

    Raises:
        ApiError: the API server rejects an object.
    """
    flavors = connected_flavors(Environment(stack))
    wanted = [_CLASS, *_slices(stack, flavors)] if flavors else []
    names = {Reference.of(manifest) for manifest in wanted}
    for kind in ("ResourceSlice", "DeviceClass"):
        for item in cluster.list(_API, kind, labels=OURS):
            if Reference.of(item) not in names:
                cluster.delete(Reference.of(item))
    for manifest in wanted:
        cluster.apply(manifest, force=True)


def _slices(stack: Stack, flavors: Collection[str]) -> Iterator[Manifest]:
    pools = {name for name, pool in stack.pools.items() if (pool.flavor or name) in flavors}
    for node in node_shapes(stack):
        if node.labels[POOL_LABEL] in pools:
            channel: Json = {"name": "channel-0", "attributes": {"type": {"string": "channel"}, "id": {"int": 0}}}
            published: Json = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
            yield {
                "apiVersion": _API,
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node.name}-channels", "labels": _LABELS},
                "spec": {"driver": _DRIVER, "nodeName": node.name, "pool": published, "devices": [channel]},
            }


def bring_templates(cluster: Cluster) -> None:
    """Makes the ResourceClaimTemplate of each ComputeDomain in the cluster; it is deleted with its ComputeDomain.

    Raises:
        ApiError: the API server rejects a template.
    """
    for domain in cluster.list(*COMPUTE_DOMAIN):
        cluster.apply(_template(domain), force=True)


def _template(domain: Manifest) -> Manifest:
    """As in templates/compute-domain-workload-claim-template.tmpl.yaml of the driver."""
    uid = text_at(domain, "metadata", "uid")
    version, kind = COMPUTE_DOMAIN
    owner: Json = {"apiVersion": version, "kind": kind, "name": text_at(domain, "metadata", "name"), "uid": uid}
    parameters: Json = {
        "apiVersion": version,
        "kind": "ComputeDomainChannelConfig",
        "domainID": uid,
        "allocationMode": text_at(domain, "spec", "channel", "allocationMode") or "Single",
    }
    devices: Json = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}}],
        "config": [{"requests": ["channel"], "opaque": {"driver": _DRIVER, "parameters": parameters}}],
    }
    return {
        "apiVersion": _API,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": text_at(domain, "spec", "channel", "resourceClaimTemplate", "name"),
            "namespace": text_at(domain, "metadata", "namespace"),
            "labels": _LABELS,
            "ownerReferences": [owner],
        },
        "spec": {"spec": {"devices": devices}},
    }
