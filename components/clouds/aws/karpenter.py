"""Karpenter, in place of node groups."""

import json
from collections.abc import Sequence
from typing import Final

import pulumi
import pulumi_aws as aws
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.plan.fleet import NodePool

from .charts import release
from .home import Home, NodeRole
from .identity import PodRole
from .karpenter_objects import NODE_CLASS, NODE_POOL, node_class, node_pools, overlay
from .karpenter_policy import karpenter_policies
from .policies import queue_policy
from .pools import placement_group

ACCOUNT: Final = "karpenter"
"""Name of its service account."""
EVENTS: Final = {
    "health": ("aws.health", "AWS Health Event"),
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "state": ("aws.ec2", "EC2 Instance State-change Notification"),
    "reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
}
"""Source and kind of what ends a node, that Karpenter wants to hear of before:
https://github.com/aws/karpenter-provider-aws/blob/main/website/content/en/preview/concepts/disruption.md#interruption."""


class Karpenter(pulumi.ComponentResource):
    """Karpenter with an identity of its own, and what it makes each pool's nodes of.

    Its own pods need nodes that it does not make: a created cluster's system nodes, or some that are there. Its
    definitions are a release of their own, so that they are updated too.
    """

    def __init__(
        self,
        name: str,
        pools: Sequence[NodePool],
        home: Home,
        nodes: NodeRole,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:Karpenter", name, {}, opts)
        self._home = home
        queue = self._interruptions(name)
        policies = karpenter_policies(home.name, home.section.region, nodes.arn, home.name)
        within = pulumi.ResourceOptions(parent=self)
        role = PodRole(f"{name}-role", home, ACCOUNT, policies, within)
        definitions = release(f"{name}-definitions", "karpenter-crd", {}, within)
        values = {
            "settings": {
                "clusterName": home.name,
                "interruptionQueue": home.name,
                "featureGates": {
                    "staticCapacity": any(pool.supply.least for pool in pools),
                    "nodeOverlay": any(overlay(pool) for pool in pools),
                },
            },
            "serviceAccount": {"name": ACCOUNT},
            "controller": {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}},
        }
        after = pulumi.ResourceOptions(parent=self, depends_on=[role, definitions, queue])
        self.release = release(f"{name}-release", "karpenter", values, after)
        self.node_pools = [made for pool in pools for made in self._pool(name, pool, nodes)]
        self.register_outputs({})

    def _interruptions(self, name: str) -> aws.sqs.QueuePolicy:
        """The queue by which Karpenter hears that a node is about to go."""
        within, tags = pulumi.ResourceOptions(parent=self), self._home.tags
        queue = aws.sqs.Queue(
            f"{name}-interruptions",
            name=self._home.name,
            message_retention_seconds=300,
            sqs_managed_sse_enabled=True,
            tags=tags,
            opts=within,
        )
        for event, (source, kind) in EVENTS.items():
            rule = aws.cloudwatch.EventRule(
                f"{name}-{event}",
                name=f"{self._home.name}-karpenter-{event}",
                event_pattern=json.dumps({"source": [source], "detail-type": [kind]}),
                tags=tags,
                opts=within,
            )
            aws.cloudwatch.EventTarget(
                f"{name}-{event}-target", rule=rule.name, target_id="karpenter", arn=queue.arn, opts=within
            )
        return aws.sqs.QueuePolicy(
            f"{name}-interruptions-policy", queue_url=queue.url, policy=queue.arn.apply(queue_policy), opts=within
        )

    def _pool(self, name: str, pool: NodePool, nodes: NodeRole) -> list[CustomResource]:
        """What nodes of a pool are like, and how many there may be."""
        near: str | None = None
        before: list[pulumi.Resource] = [self.release]
        if pool.compact:
            near = f"{self._home.name}-{pool.name}"
            before.append(placement_group(f"{name}-{pool.name}-near", near, self._home.tags, self))
        like = CustomResource(
            f"{name}-{pool.name}-class",
            api_version=NODE_CLASS,
            kind="EC2NodeClass",
            metadata={"name": pool.name},
            spec=node_class(pool, self._home, nodes.name, near),
            opts=pulumi.ResourceOptions(parent=self, depends_on=before),
        )
        after = pulumi.ResourceOptions(parent=self, depends_on=[like], protect=self._home.protect)
        made = [
            CustomResource(
                f"{name}-{each}", api_version=NODE_POOL, kind="NodePool", metadata={"name": each}, spec=spec, opts=after
            )
            for each, spec in node_pools(pool).items()
        ]
        if more := overlay(pool):
            made.append(
                CustomResource(
                    f"{name}-{pool.name}-overlay",
                    api_version="karpenter.sh/v1alpha1",
                    kind="NodeOverlay",
                    metadata={"name": pool.name},
                    spec=more,
                    opts=pulumi.ResourceOptions(parent=self, depends_on=before),
                )
            )
        return made
