"""Simulated channels and RDMA interfaces of nodes, and templates of ComputeDomains, as DRA drivers would make them.

https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/v0.4.1
"""

from collections.abc import Collection, Iterator
from typing import Final

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.base.quantity import CHANNELS, INTERFACES
from gpu_tenancy.embedded.nodes import node_shapes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.names import CHANNEL_CLASS, CLAIM_CLASSES, COMPUTE_DOMAIN
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.fabric import claimed_on
from gpu_tenancy.model.plan.pools import POOL_LABEL
from gpu_tenancy.model.spec import Stack

OURS: Final = "gpu-tenancy.dev/embedded-channel"
"""Label of the objects that this module created and can delete."""
_API: Final = "resource.k8s.io/v1"
_DRIVER: Final = "compute-domain.nvidia.com"
_LABELS: Final[dict[str, Json]] = {OURS: "true"}
_ATTRIBUTES: Final = f"device.attributes['{_DRIVER}']"
_FIRST_CHANNEL: Final = f"device.driver == '{_DRIVER}' && {_ATTRIBUTES}.type == 'channel' && {_ATTRIBUTES}.id == 0"
_DRANET: Final = "dra.net"
_SELECTED: Final = {CHANNELS: _FIRST_CHANNEL, INTERFACES: f"device.driver == '{_DRANET}'"}
"""The devices that the DeviceClass of what pods can claim selects."""


def _class(name: str, expression: str) -> Manifest:
    return {
        "apiVersion": _API,
        "kind": "DeviceClass",
        "metadata": {"name": name, "labels": _LABELS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def bring_channels(cluster: Cluster, stack: Stack) -> None:
    """Publishes what pods of a stack can claim of each node, and deletes what is left of an earlier stack.

    Raises:
        ApiError: the API server rejects an object.
    """
    environment = Environment(stack)
    wanted = [
        manifest
        for resource, flavors in claimed_on(environment).items()
        for manifest in (_class(CLAIM_CLASSES[resource], _SELECTED[resource]), *_slices(environment, resource, flavors))
    ]
    names = {Reference.of(manifest) for manifest in wanted}
    for kind in ("ResourceSlice", "DeviceClass"):
        for item in cluster.list(_API, kind, labels=OURS):
            if Reference.of(item) not in names:
                cluster.delete(Reference.of(item))
    for manifest in wanted:
        cluster.apply(manifest, force=True)


def _slices(environment: Environment, resource: str, flavors: Collection[str]) -> Iterator[Manifest]:
    pools = {name: pool.claimable for name, pool in environment.pools.items() if pool.flavor in flavors}
    of_channels = resource == CHANNELS
    kind, driver = ("channels", _DRIVER) if of_channels else ("interfaces", _DRANET)
    channel: Json = {"name": "channel-0", "attributes": {"type": {"string": "channel"}, "id": {"int": 0}}}
    for node in node_shapes(environment.stack):
        if (pool := node.labels[POOL_LABEL]) in pools:
            devices: list[Json] = [channel] if of_channels else [{"name": f"rdma{at}"} for at in range(pools[pool])]
            published: Json = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
            yield {
                "apiVersion": _API,
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node.name}-{kind}", "labels": _LABELS},
                "spec": {"driver": driver, "nodeName": node.name, "pool": published, "devices": devices},
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
