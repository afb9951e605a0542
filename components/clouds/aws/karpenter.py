"""Karpenter and its objects: https://karpenter.sh/docs/concepts/."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.plan.cluster import NodePool
from gpu_tenancy.model.plan.pools import uses_local_disks
from gpu_tenancy.model.plan.rollouts import KARPENTER_DRAINS
from gpu_tenancy.model.spec.clouds.base import Maintenance

from ...objects import Component, Options
from .control_plane import release
from .identity import PodRole
from .nodes import ClusterContext, Volume, huge_pages, image, image_alias, interfaces, node_configuration, volumes
from .policies import karpenter_policies, written_policy
from .pools import placement_group

Spec: TypeAlias = Mapping[str, object]

_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
"""Days in the order of cron."""
_WEEK: Final = 7 * 24 * 60  # minutes of a week
_CAPACITY: Final = {"spot": "spot", "reserved": "reserved", "capacity-block": "reserved"}
"""Capacity types. For Karpenter, a capacity block is a reservation: https://karpenter.sh/docs/tasks/odcrs/."""

_DRAIN: Final = {"spot": f"{KARPENTER_DRAINS}s", "capacity-block": "10m"}
"""How long a node waits for its pods: EC2 warns two minutes before it ends a spot machine, and Karpenter drains
machines of a capacity block ten minutes before their end. A pod's grace period is the last part (read 2026-11-24):
https://karpenter.sh/docs/concepts/disruption/#terminationgraceperiod,
https://karpenter.sh/docs/tasks/odcrs/#capacity-blocks."""
_LONGEST_DRAIN: Final = "24h"  # other capacity; without a limit, karpenter.sh/do-not-disrupt keeps outdated nodes


def node_class(pool: NodePool, context: ClusterContext, role: str, placement_group: str | None) -> Spec:
    """The spec of a pool's EC2NodeClass."""
    optional: Spec = {
        "userData": node_configuration(image(pool), numa=pool.spec.numa),  # Karpenter itself sets up local disks.
        "instanceStorePolicy": "RAID0" if uses_local_disks(context.section, pool.machine) else None,
        "capacityReservationSelectorTerms": [{"id": pool.reservation}] if pool.reservation else None,
        "placementGroupSelector": {"name": placement_group} if placement_group else None,
        "networkInterfaces": [
            {"networkCardIndex": interface.card, "deviceIndex": interface.device, "interfaceType": interface.kind}
            for interface in (interfaces(pool.fabric) if pool.fabric else ())
        ],
    }
    disks = volumes(context.section, pool.spec.disk, image(pool), pool.machine, pool.spec.image_disk)
    return {
        # New nodes get this image; the budgets in `node_pools` decide when running nodes are replaced.
        "amiSelectorTerms": [{"alias": image_alias(context.section, image(pool))}],
        "role": role,
        "subnetSelectorTerms": [{"id": subnet} for subnet in context.subnets_in(pool.spec.zones)],
        "securityGroupSelectorTerms": [{"id": context.security_group}],
        "associatePublicIPAddress": False,
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
        },
        "blockDeviceMappings": [{"deviceName": volume.device, "ebs": _ebs(volume)} for volume in disks],
        "tags": {**context.tags, "Name": f"{context.name}-{pool.name}"},
        **{key: value for key, value in optional.items() if value},
    }


def _ebs(volume: Volume) -> Spec:
    given = {"kmsKeyID": volume.key, "snapshotID": volume.snapshot}
    return {
        "volumeType": "gp3",
        "volumeSize": f"{volume.gib}Gi",
        "throughput": volume.throughput,
        "iops": volume.iops,
        "encrypted": True,
        "deleteOnTermination": True,
        **{key: value for key, value in given.items() if value},
    }


def node_pools(pool: NodePool, drift: Maintenance | None = None) -> dict[str, Spec]:
    """Specs of a pool's NodePools by name: static for its minimum number of nodes (`replicas`, alpha), dynamic above.

    Nodes that differ from the pool are replaced, with pods, in the windows of `drift`; None for never.
    """
    minimum, maximum = pool.supply.min_nodes, pool.supply.max_nodes
    above, largest = maximum - minimum, max(machine.cpu for machine in (pool.machine, *pool.alternatives))
    every: Spec = {"template": _template(pool), "disruption": _disruption(drift)}
    specs: dict[str, Spec] = {}
    if minimum:
        specs[f"{pool.name}-base"] = {**every, "replicas": minimum, "limits": {"nodes": str(minimum)}}
    if above > 0:
        specs[pool.name] = {**every, "limits": {"nodes": str(above), "cpu": str(above * largest // 1000)}}
    return specs


def overlay(pool: NodePool) -> Spec | None:
    """The spec of a NodeOverlay with the resources that Karpenter does not know: GPU partitions and huge pages."""
    # Without it, Karpenter adds no node for them. Time-sliced GPUs have the resource name of whole GPUs, so Karpenter
    # adds nodes as if each pod used a whole GPU: https://karpenter.sh/docs/concepts/nodeoverlays/
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
        _one_of("karpenter.sh/capacity-type", _CAPACITY.get(pool.spec.capacity.kind, "on-demand")),
        *([_one_of("topology.kubernetes.io/zone", *pool.spec.zones)] if pool.spec.zones else []),
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
            "terminationGracePeriod": _DRAIN.get(pool.spec.capacity.kind, _LONGEST_DRAIN),
        },
    }


def _disruption(drift: Maintenance | None) -> Spec:
    """Removes empty nodes, and replaces nodes with pods only during maintenance, one by one."""
    # Budgets limit drift, because Karpenter replaces drifted nodes with a terminationGracePeriod whatever the
    # annotations of their pods: https://github.com/aws/karpenter-provider-aws/issues/7708.
    drifted = [{"nodes": "1", "reasons": ["Drifted"]}, *_outside(drift)] if drift else []
    never = ["Underutilized"] if drift else ["Drifted", "Underutilized"]
    return {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "10m",
        "budgets": [{"nodes": "0", "reasons": never}, {"nodes": "100%", "reasons": ["Empty"]}, *drifted],
    }


def _outside(maintenance: Maintenance) -> list[Spec]:
    """Budgets that forbid drift in each pause between two maintenance windows."""
    # The smallest active budget applies: https://karpenter.sh/docs/concepts/disruption/#schedule.
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


_KARPENTER: Final = "karpenter"  # chart of Karpenter, and name of its service account
EVENTS: Final = {
    "health": ("aws.health", "AWS Health Event"),
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "state": ("aws.ec2", "EC2 Instance State-change Notification"),
    "reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
}
"""Source and detail type of events that announce the end of a node:
https://github.com/aws/karpenter-provider-aws/blob/main/website/content/en/preview/concepts/disruption.md#interruption."""


class Karpenter(Component):
    """Karpenter with its own IAM role, and an EC2NodeClass and NodePools for each pool.

    Its pods need nodes that it does not create: system nodes, or existing nodes. Its custom resource definitions are a
    separate release, so that Helm updates them. `role` is the name of its nodes' IAM role, and its ARN or a pattern for
    it.
    """

    def __init__(
        self, name: str, pools: Sequence[NodePool], context: ClusterContext, role: tuple[str, str], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:Karpenter", name, opts)
        self._context, (self._role, arn) = context, role
        queue = self._interruptions(name)
        spot = any(pool.spec.capacity.kind == "spot" for pool in pools)
        policies = karpenter_policies(context.name, context.section.region, arn, spot=spot)
        own_role = PodRole(f"{name}-role", context, _KARPENTER, policies, self.own)
        definitions = release(f"{name}-definitions", "karpenter-crd", {}, self.own)
        values = {
            "settings": {
                "clusterName": context.name,
                "interruptionQueue": context.name,
                "featureGates": {
                    # As managed node groups do: broken nodes are replaced.
                    "nodeRepair": True,
                    "staticCapacity": any(pool.supply.min_nodes for pool in pools),
                    "nodeOverlay": any(overlay(pool) for pool in pools),
                },
            },
            "serviceAccount": {"name": _KARPENTER},
            "controller": {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}},
        }
        self.release = release(f"{name}-release", _KARPENTER, values, self.after(own_role, definitions, queue))
        for pool in pools:
            self._pool(name, pool)

    def _interruptions(self, name: str) -> aws.sqs.QueuePolicy:
        cluster, tags = self._context.name, self._context.tags
        queue = aws.sqs.Queue(
            f"{name}-interruptions",
            name=cluster,
            message_retention_seconds=300,
            sqs_managed_sse_enabled=True,
            tags=tags,
            opts=self.own,
        )
        for event, (source, kind) in EVENTS.items():
            rule = aws.cloudwatch.EventRule(
                f"{name}-{event}",
                name=f"{cluster}-karpenter-{event}",
                event_pattern=json.dumps({"source": [source], "detail-type": [kind]}),
                tags=tags,
                opts=self.own,
            )
            aws.cloudwatch.EventTarget(
                f"{name}-{event}-target", rule=rule.name, target_id="karpenter", arn=queue.arn, opts=self.own
            )
        policy = queue.arn.apply(lambda arn: written_policy("queue", "", queue=arn))
        return aws.sqs.QueuePolicy(f"{name}-interruptions-policy", queue_url=queue.url, policy=policy, opts=self.own)

    def _pool(self, name: str, pool: NodePool) -> None:
        context, own = self._context, f"{name}-{pool.name}"
        group_name: str | None = None
        dependencies: list[pulumi.Resource] = [self.release]
        if pool.spec.compact:
            group_name = f"{context.name}-{pool.name}"
            dependencies.append(placement_group(f"{own}-near", group_name, context.tags, self))
        after, named = self.after(*dependencies), {"name": pool.name}
        spec = node_class(pool, context, self._role, group_name)
        ec2_node_class = CustomResource(
            f"{own}-class", "karpenter.k8s.aws/v1", "EC2NodeClass", metadata=named, spec=spec, opts=after
        )
        after_class = ResourceOptions(parent=self, depends_on=[ec2_node_class], protect=context.protect)
        for pool_name, spec in node_pools(pool, context.section.drift).items():
            metadata = {"name": pool_name}
            CustomResource(
                f"{name}-{pool_name}", "karpenter.sh/v1", "NodePool", metadata=metadata, spec=spec, opts=after_class
            )
        if spec := overlay(pool):
            CustomResource(
                f"{own}-overlay", "karpenter.sh/v1alpha1", "NodeOverlay", metadata=named, spec=spec, opts=after
            )
