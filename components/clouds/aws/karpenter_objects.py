"""Specs of Karpenter objects: https://karpenter.sh/docs/concepts/."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from gpu_tenancy.model.plan.cluster import NodePool
from gpu_tenancy.model.plan.gpus import NVIDIA

from .context import ClusterContext
from .nodes import EFA, Volume, image, interfaces, reservation, subnets, volumes

Spec: TypeAlias = Mapping[str, object]

NODE_CLASS: Final = "karpenter.k8s.aws/v1"
NODE_POOL: Final = "karpenter.sh/v1"
_CAPACITY: Final = {"spot": "spot", "reserved": "reserved", "capacity-block": "reserved"}
"""Capacity types. For Karpenter, a capacity block is a reservation: https://karpenter.sh/docs/tasks/odcrs/."""


def node_class(pool: NodePool, context: ClusterContext, role: str, placement_group: str | None) -> Spec:
    """The spec of a pool's EC2NodeClass.

    Args:
        pool: the planned pool.
        context: its cluster.
        role: name of the nodes' IAM role.
        placement_group: name of a placement group; None without.
    """
    reservation_id = reservation(pool)
    efa = pool.fabric.interfaces if pool.fabric else 0
    cards = interfaces(pool.machine.type, efa)
    return {
        # New nodes get the latest image; the budgets in `node_pools` decide when running nodes are replaced.
        "amiSelectorTerms": [{"alias": f"{image(pool).family}@latest"}],
        "role": role,
        "subnetSelectorTerms": [{"id": subnet} for subnet in subnets(context.section, pool.zones)],
        "securityGroupSelectorTerms": [{"id": context.security_group}],
        "associatePublicIPAddress": False,
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        },
        "blockDeviceMappings": [_mapping(volume) for volume in volumes(pool.disk, image(pool))],
        "tags": {**context.tags, "Name": f"{context.name}-{pool.name}"},
        **({"capacityReservationSelectorTerms": [{"id": reservation_id}]} if reservation_id else {}),
        **({"placementGroupSelector": {"name": placement_group}} if placement_group else {}),
        **(
            {
                "networkInterfaces": [
                    {
                        "networkCardIndex": interface.card,
                        "deviceIndex": interface.device,
                        "interfaceType": interface.kind,
                    }
                    for interface in cards
                ]
            }
            if efa
            else {}
        ),
    }


def node_pools(pool: NodePool) -> dict[str, Spec]:
    """Specs of a pool's NodePools by name: one with its minimum number of nodes, one for the nodes above it.

    Two NodePools are needed because a NodePool is either static (`replicas`, alpha) or dynamic.
    """
    minimum, maximum = pool.supply.min_nodes, pool.supply.max_nodes
    specs: dict[str, Spec] = {}
    if minimum:
        specs[f"{pool.name}-base"] = {
            "replicas": minimum,
            "template": _template(pool),
            "limits": {"nodes": str(minimum)},
            "disruption": _disruption(pool),
        }
    if maximum > minimum:
        specs[pool.name] = {
            "template": _template(pool),
            "limits": {
                "nodes": str(maximum - minimum),
                "cpu": str((maximum - minimum) * pool.machine.cpu // 1000),
            },
            "disruption": _disruption(pool),
        }
    return specs


def overlay(pool: NodePool) -> Spec | None:
    """The spec of a NodeOverlay that adds GPU partitions, which Karpenter does not know from the machine type.

    Time-sliced GPUs keep the resource name of whole GPUs, which an overlay cannot change. So Karpenter adds nodes as if
    each pod used a whole GPU.
    """
    resource = pool.supply.resource
    if resource is None or resource in {NVIDIA, EFA} or not resource.startswith("nvidia.com/mig-"):
        return None
    return {
        "requirements": [_one_of("karpenter.sh/nodepool", *node_pools(pool))],
        "capacity": {resource: str(pool.supply.gpus_per_node)},
    }


def _template(pool: NodePool) -> Spec:
    requirements = [
        _one_of("node.kubernetes.io/instance-type", pool.machine.type),
        _one_of("kubernetes.io/arch", pool.machine.architecture),
        _one_of("karpenter.sh/capacity-type", _CAPACITY.get(pool.capacity.kind, "on-demand")),
        *([_one_of("topology.kubernetes.io/zone", *pool.zones)] if pool.zones else []),
    ]
    taints = [
        {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}
        for taint in pool.supply.taints
    ]
    return {
        "metadata": {"labels": dict(pool.labels)},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": pool.name},
            "requirements": requirements,
            **({"taints": taints} if taints else {}),
            # GPU nodes do not expire, because that would stop training jobs.
            "expireAfter": "Never" if pool.gpus else "720h",
        },
    }


def _disruption(pool: NodePool) -> Spec:
    """GPU nodes are removed only when they are empty, and never replaced while pods run on them."""
    if pool.gpus:
        return {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "10m",
            "budgets": [
                {"nodes": "0", "reasons": ["Drifted", "Underutilized"]},
                {"nodes": "100%", "reasons": ["Empty"]},
            ],
        }
    return {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "5m",
        "budgets": [{"nodes": "1"}],
    }


def _one_of(key: str, *values: str) -> Spec:
    return {"key": key, "operator": "In", "values": list(values)}


def _mapping(volume: Volume) -> Spec:
    ebs = {"volumeType": "gp3", "volumeSize": f"{volume.gib}Gi", "encrypted": True, "deleteOnTermination": True}
    return {"deviceName": volume.device, "ebs": {**ebs, **({"kmsKeyID": volume.key} if volume.key else {})}}
