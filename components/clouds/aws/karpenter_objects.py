"""Specs of Karpenter objects: https://karpenter.sh/docs/concepts/."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from gpu_tenancy.model.plan.cluster import NodePool
from gpu_tenancy.model.plan.pools import uses_local_disks
from gpu_tenancy.model.plan.rollouts import KARPENTER_DRAINS
from gpu_tenancy.model.spec.clouds.base import Maintenance

from .context import ClusterContext
from .disks import Volume, image_alias, node_configuration, volumes
from .nodes import huge_pages, image, interfaces

Spec: TypeAlias = Mapping[str, object]

NODE_CLASS: Final = "karpenter.k8s.aws/v1"
NODE_POOL: Final = "karpenter.sh/v1"
_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
"""Days in the order of cron."""
_WEEK: Final = 7 * 24 * 60
"""Minutes of a week."""
_CAPACITY: Final = {"spot": "spot", "reserved": "reserved", "capacity-block": "reserved"}
"""Capacity types. For Karpenter, a capacity block is a reservation: https://karpenter.sh/docs/tasks/odcrs/."""

_DRAIN: Final = {"spot": f"{KARPENTER_DRAINS}s", "capacity-block": "10m"}
"""How long a node waits for its pods, by kind of capacity: EC2 warns two minutes before the end of a spot machine, and
Karpenter drains machines of a capacity block ten minutes before EC2 ends them. The grace period of a pod is the last
part of it (read 2026-11-24): https://karpenter.sh/docs/concepts/disruption/#terminationgraceperiod,
https://karpenter.sh/docs/tasks/odcrs/#capacity-blocks."""
_LONGEST_DRAIN: Final = "24h"
"""The same for other capacity. Without a limit, any pod with the annotation karpenter.sh/do-not-disrupt could keep an
outdated node for ever."""


def node_class(pool: NodePool, context: ClusterContext, role: str, placement_group: str | None) -> Spec:
    """The spec of a pool's EC2NodeClass."""
    configuration = node_configuration(image(pool), numa=pool.numa)  # Karpenter itself sets up local disks.
    disks = volumes(context.section, pool.disk, image(pool), pool.machine, pool.image_disk)
    return {
        # New nodes get this image; the budgets in `node_pools` decide when running nodes are replaced.
        "amiSelectorTerms": [{"alias": image_alias(context.section, image(pool))}],
        "role": role,
        "subnetSelectorTerms": [{"id": subnet} for subnet in context.subnets_in(pool.zones)],
        "securityGroupSelectorTerms": [{"id": context.security_group}],
        "associatePublicIPAddress": False,
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        },
        "blockDeviceMappings": [_mapping(volume) for volume in disks],
        **({"userData": configuration} if configuration else {}),
        **({"instanceStorePolicy": "RAID0"} if uses_local_disks(context.section, pool.machine) else {}),
        "tags": {**context.tags, "Name": f"{context.name}-{pool.name}"},
        **({"capacityReservationSelectorTerms": [{"id": pool.reservation}]} if pool.reservation else {}),
        **({"placementGroupSelector": {"name": placement_group}} if placement_group else {}),
        **(
            {
                "networkInterfaces": [
                    {
                        "networkCardIndex": interface.card,
                        "deviceIndex": interface.device,
                        "interfaceType": interface.kind,
                    }
                    for interface in interfaces(pool.fabric)
                ]
            }
            if pool.fabric
            else {}
        ),
    }


def node_pools(pool: NodePool, drift: Maintenance | None = None) -> dict[str, Spec]:
    """Specs of a pool's NodePools by name: one with its minimum number of nodes, one for the nodes above it.

    Two NodePools are needed because a NodePool is either static (`replicas`, alpha) or dynamic.

    Args:
        pool: the planned pool.
        drift: when nodes with pods that differ from the pool are replaced; None for never.
    """
    minimum, maximum = pool.supply.min_nodes, pool.supply.max_nodes
    largest = max(machine.cpu for machine in (pool.machine, *pool.alternatives))
    specs: dict[str, Spec] = {}
    if minimum:
        specs[f"{pool.name}-base"] = {
            "replicas": minimum,
            "template": _template(pool),
            "limits": {"nodes": str(minimum)},
            "disruption": _disruption(drift),
        }
    if maximum > minimum:
        specs[pool.name] = {
            "template": _template(pool),
            "limits": {
                "nodes": str(maximum - minimum),
                "cpu": str((maximum - minimum) * largest // 1000),
            },
            "disruption": _disruption(drift),
        }
    return specs


def overlay(pool: NodePool) -> Spec | None:
    """The spec of a NodeOverlay with the resources that Karpenter does not know: GPU partitions and huge pages.

    Without it, Karpenter adds no node for pods that request them. Time-sliced GPUs keep the resource name of whole
    GPUs, which an overlay cannot change. So Karpenter adds nodes as if each pod used a whole GPU.

    https://karpenter.sh/docs/concepts/nodeoverlays/
    """
    resource, capacity = pool.supply.resource, huge_pages(pool)
    if resource and resource.startswith("nvidia.com/mig-"):
        capacity |= {resource: str(pool.supply.gpus_per_node)}
    if not capacity:
        return None
    return {"requirements": [_one_of("karpenter.sh/nodepool", *node_pools(pool))], "capacity": capacity}


def _template(pool: NodePool) -> Spec:
    machines = (pool.machine, *pool.alternatives)
    requirements = [
        _one_of("node.kubernetes.io/instance-type", *(machine.type for machine in machines)),
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
            "terminationGracePeriod": _DRAIN.get(pool.capacity.kind, _LONGEST_DRAIN),
        },
    }


def _disruption(drift: Maintenance | None) -> Spec:
    """Nodes are removed when they are empty, and replaced with pods on them only during maintenance, one by one.

    The budget decides about drift, because Karpenter replaces drifted nodes with a terminationGracePeriod whatever the
    annotations of their pods: https://github.com/aws/karpenter-provider-aws/issues/7708.
    """
    drifted = [{"nodes": "1", "reasons": ["Drifted"]}, *_outside(drift)] if drift else []
    never = ["Underutilized"] if drift else ["Drifted", "Underutilized"]
    return {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "10m",
        "budgets": [{"nodes": "0", "reasons": never}, {"nodes": "100%", "reasons": ["Empty"]}, *drifted],
    }


def _outside(maintenance: Maintenance) -> list[Spec]:
    """Budgets that forbid drift outside of a maintenance window: one for each pause between two windows.

    The smallest of the budgets that are active applies: https://karpenter.sh/docs/concepts/disruption/#schedule.
    """
    hour, minute = (int(part) for part in maintenance.start.split(":"))
    days = sorted(_DAYS.index(day) for day in maintenance.days or _DAYS)
    starts = [(day * 24 + hour) * 60 + minute for day in days]
    pauses = [
        (start + maintenance.hours * 60, following - start - maintenance.hours * 60)
        for start, following in zip(starts, [*starts[1:], starts[0] + _WEEK], strict=True)
    ]
    return [
        {
            "nodes": "0",
            "reasons": ["Drifted"],
            "schedule": f"{at % 60} {at // 60 % 24} * * {at // 1440 % 7}",
            "duration": f"{length}m",
        }
        for at, length in pauses
        if length > 0
    ]


def _one_of(key: str, *values: str) -> Spec:
    return {"key": key, "operator": "In", "values": list(values)}


def _mapping(volume: Volume) -> Spec:
    ebs = {
        "volumeType": "gp3",
        "volumeSize": f"{volume.gib}Gi",
        "throughput": volume.throughput,
        "iops": volume.iops,
        "encrypted": True,
        "deleteOnTermination": True,
    }
    given = {"kmsKeyID": volume.key, "snapshotID": volume.snapshot}
    return {"deviceName": volume.device, "ebs": {**ebs, **{key: value for key, value in given.items() if value}}}
