"""Specs of Karpenter's objects: https://karpenter.sh/docs/concepts/."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from gpu_tenancy.model.plan.fleet import NodePool
from gpu_tenancy.model.plan.gpus import NVIDIA

from .home import Home
from .nodes import EFA, Volume, image, interfaces, reservation, subnets, volumes

Spec: TypeAlias = Mapping[str, object]

NODE_CLASS: Final = "karpenter.k8s.aws/v1"
NODE_POOL: Final = "karpenter.sh/v1"
_CAPACITY: Final = {"spot": "spot", "reserved": "reserved", "capacity-block": "reserved"}
"""Karpenter takes a capacity block as a reservation: https://karpenter.sh/docs/tasks/odcrs/."""


def node_class(pool: NodePool, home: Home, role: str, near: str | None) -> Spec:
    """What a node of a pool is made of.

    Args:
        pool: of the plan.
        home: its cluster.
        role: name of the nodes' role.
        near: name of a placement group.
    """
    held = reservation(pool)
    efa = pool.fabric.interfaces if pool.fabric else 0
    cards = interfaces(pool.machine.type, efa)
    return {
        # The newest image for new nodes; `node_pools` says when running ones may be replaced by it.
        "amiSelectorTerms": [{"alias": f"{image(pool).family}@latest"}],
        "role": role,
        "subnetSelectorTerms": [{"id": subnet} for subnet in subnets(home.section, pool.zones)],
        "securityGroupSelectorTerms": [{"id": home.security_group}],
        "associatePublicIPAddress": False,
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        },
        "blockDeviceMappings": [_mapping(volume) for volume in volumes(pool.disk, image(pool))],
        "tags": {**home.tags, "Name": f"{home.name}-{pool.name}"},
        **({"capacityReservationSelectorTerms": [{"id": held}]} if held else {}),
        **({"placementGroupSelector": {"name": near}} if near else {}),
        **(
            {
                "networkInterfaces": [
                    {"networkCardIndex": each.card, "deviceIndex": each.device, "interfaceType": each.kind}
                    for each in cards
                ]
            }
            if efa
            else {}
        ),
    }


def node_pools(pool: NodePool) -> dict[str, Spec]:
    """How many nodes of a pool there may be, by name: those that are always there, and those that pods bring.

    The former are a pool of their own, since Karpenter's pools are either (`replicas`, still alpha).
    """
    least, most = pool.supply.least, pool.supply.most
    made: dict[str, Spec] = {}
    if least:
        made[f"{pool.name}-base"] = {
            "replicas": least,
            "template": _template(pool),
            "limits": {"nodes": str(least)},
            "disruption": _disruption(pool),
        }
    if most > least:
        made[pool.name] = {
            "template": _template(pool),
            "limits": {
                "nodes": str(most - least),
                "cpu": str((most - least) * pool.machine.cpu // 1000),
            },
            "disruption": _disruption(pool),
        }
    return made


def overlay(pool: NodePool) -> Spec | None:
    """What pods can ask for of a node, and Karpenter cannot know of its machine: partitions of its GPUs.

    Turns of whole GPUs go by the machine's own resource name, of which an overlay changes nothing, so Karpenter
    brings as many nodes as if each pod took a whole GPU.
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
            # A node of GPUs ends when nobody needs it, not when it gets old: training does not survive it.
            "expireAfter": "Never" if pool.gpus else "720h",
        },
    }


def _disruption(pool: NodePool) -> Spec:
    """A GPU node goes when it is empty, and takes no other node's place before: surge adds none."""
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
