"""What scales node pools of EKS: Cluster Autoscaler with managed node groups, or Karpenter."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding

from gpu_tenancy.model.plan.cluster import NodePool

from .charts import NAMESPACE, release
from .context import ClusterContext
from .identity import PodRole
from .karpenter_objects import NODE_CLASS, NODE_POOL, node_class, node_pools, overlay
from .karpenter_policy import karpenter_policies
from .policies import autoscaler_policy, queue_policy
from .pools import placement_group

_AUTOSCALER: Final = "cluster-autoscaler"
"""Chart of Cluster Autoscaler, and name of its service account."""
_REQUESTS: Final = {"enable-provisioning-requests": True, "kube-api-content-type": "application/json"}
"""Flags with which it handles ProvisioningRequests. It cannot write their status as protobuf before 1.34.5:
https://github.com/kubernetes/autoscaler/issues/8855."""

_REMOVES: Final = {
    "scale-down-gpu-utilization-threshold": 0.001,
    "scale-down-utilization-threshold": 0.001,
    "ignore-daemonsets-utilization": True,
}
"""Flags with which it removes only nodes whose pods request nothing, DaemonSets aside; the default is less than half of
the GPUs or CPUs. Nodes with GPU partitions count by their CPUs and memory. With 0 it would remove no node, because the
use must be below the threshold (isNodeBelowUtilizationThreshold, read 2026-11-24):
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/core/scaledown/eligibility/eligibility.go."""


class ClusterAutoscaler(pulumi.ComponentResource):
    """Cluster Autoscaler with its own IAM role, which can scale only this cluster's node groups.

    It discovers them by the tags that EKS sets on their Auto Scaling groups:
    https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html

    If pools are queued, it also handles ProvisioningRequests, whose definition the cluster must have:
    https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-can-i-use-provisioningrequest-to-run-batch-workloads
    """

    def __init__(
        self, name: str, context: ClusterContext, *, queued: bool, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:ClusterAutoscaler", name, {}, opts)
        if queued:
            self._requests(f"{name}-requests")
        policies = {"node-groups": autoscaler_policy(context.name, context.section.region)}
        role = PodRole(f"{name}-role", context, _AUTOSCALER, policies, pulumi.ResourceOptions(parent=self))
        values = {
            "cloudProvider": "aws",
            "awsRegion": context.section.region,
            "autoDiscovery": {"clusterName": context.name},
            "rbac": {"serviceAccount": {"name": _AUTOSCALER}},
            # If a pod fits several pools, add a node with the least idle CPU.
            "extraArgs": {"expander": "least-waste", **_REMOVES, **(_REQUESTS if queued else {})},
            "resources": {"requests": {"cpu": "100m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}},
        }
        # The pods get their credentials when they start, so the association must exist first.
        self.release = release(
            f"{name}-release", _AUTOSCALER, values, pulumi.ResourceOptions(parent=self, depends_on=[role])
        )
        self.register_outputs({})

    def _requests(self, name: str) -> None:
        """Rights to handle ProvisioningRequests, which the chart's role does not have."""
        metadata: ObjectMetaArgsDict = {"name": "cluster-autoscaler-provisioning-requests"}
        role = ClusterRole(
            f"{name}-role",
            metadata=metadata,
            rules=[
                {
                    "api_groups": ["autoscaling.x-k8s.io"],
                    "resources": ["provisioningrequests", "provisioningrequests/status"],
                    "verbs": ["get", "list", "watch", "update", "patch"],
                },
                {"api_groups": [""], "resources": ["podtemplates"], "verbs": ["get", "list", "watch"]},
            ],
            opts=pulumi.ResourceOptions(parent=self),
        )
        ClusterRoleBinding(
            f"{name}-binding",
            metadata=metadata,
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.metadata.name},
            subjects=[{"kind": "ServiceAccount", "name": _AUTOSCALER, "namespace": NAMESPACE}],
            opts=pulumi.ResourceOptions(parent=self),
        )


_KARPENTER: Final = "karpenter"
"""Chart of Karpenter, and name of its service account."""
EVENTS: Final = {
    "health": ("aws.health", "AWS Health Event"),
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "state": ("aws.ec2", "EC2 Instance State-change Notification"),
    "reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
}
"""Source and detail type of events that announce the end of a node:
https://github.com/aws/karpenter-provider-aws/blob/main/website/content/en/preview/concepts/disruption.md#interruption."""


@dataclass(frozen=True, slots=True)
class NodeRole:
    """The IAM role of nodes that Karpenter creates.

    Attributes:
        arn: its ARN, or a pattern that matches it.
    """

    name: str
    arn: str


class Karpenter(pulumi.ComponentResource):
    """Karpenter with its own IAM role, and an EC2NodeClass and NodePools for each pool.

    Its own pods need nodes that it does not create: the system nodes of a created cluster, or existing nodes. Its
    custom resource definitions are a separate release, so that Helm updates them.
    """

    def __init__(
        self,
        name: str,
        pools: Sequence[NodePool],
        context: ClusterContext,
        nodes: NodeRole,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:Karpenter", name, {}, opts)
        self._context = context
        queue = self._interruptions(name)
        spot = any(pool.capacity.kind == "spot" for pool in pools)
        policies = karpenter_policies(context.name, context.section.region, nodes.arn, context.name, spot=spot)
        within = pulumi.ResourceOptions(parent=self)
        role = PodRole(f"{name}-role", context, _KARPENTER, policies, within)
        definitions = release(f"{name}-definitions", "karpenter-crd", {}, within)
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
        after = pulumi.ResourceOptions(parent=self, depends_on=[role, definitions, queue])
        self.release = release(f"{name}-release", _KARPENTER, values, after)
        for pool in pools:
            self._pool(name, pool, nodes)
        self.register_outputs({})

    def _interruptions(self, name: str) -> aws.sqs.QueuePolicy:
        """The SQS queue that receives Karpenter's interruption events."""
        within, tags = pulumi.ResourceOptions(parent=self), self._context.tags
        queue = aws.sqs.Queue(
            f"{name}-interruptions",
            name=self._context.name,
            message_retention_seconds=300,
            sqs_managed_sse_enabled=True,
            tags=tags,
            opts=within,
        )
        for event, (source, kind) in EVENTS.items():
            rule = aws.cloudwatch.EventRule(
                f"{name}-{event}",
                name=f"{self._context.name}-karpenter-{event}",
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

    def _pool(self, name: str, pool: NodePool, nodes: NodeRole) -> None:
        """The EC2NodeClass of a pool, its NodePools, and its NodeOverlay if it needs one."""
        group_name: str | None = None
        dependencies: list[pulumi.Resource] = [self.release]
        if pool.compact:
            group_name = f"{self._context.name}-{pool.name}"
            dependencies.append(placement_group(f"{name}-{pool.name}-near", group_name, self._context.tags, self))
        ec2_node_class = CustomResource(
            f"{name}-{pool.name}-class",
            api_version=NODE_CLASS,
            kind="EC2NodeClass",
            metadata={"name": pool.name},
            spec=node_class(pool, self._context, nodes.name, group_name),
            opts=pulumi.ResourceOptions(parent=self, depends_on=dependencies),
        )
        after_class = pulumi.ResourceOptions(parent=self, depends_on=[ec2_node_class], protect=self._context.protect)
        for pool_name, spec in node_pools(pool, self._context.section.drift).items():
            CustomResource(
                f"{name}-{pool_name}",
                api_version=NODE_POOL,
                kind="NodePool",
                metadata={"name": pool_name},
                spec=spec,
                opts=after_class,
            )
        if overlay_spec := overlay(pool):
            CustomResource(
                f"{name}-{pool.name}-overlay",
                api_version="karpenter.sh/v1alpha1",
                kind="NodeOverlay",
                metadata={"name": pool.name},
                spec=overlay_spec,
                opts=pulumi.ResourceOptions(parent=self, depends_on=dependencies),
            )
