"""Cluster Autoscaler, for clusters without another node autoscaler."""

import pulumi

from .charts import release
from .context import ClusterContext
from .identity import PodRole
from .policies import autoscaler_policy

ACCOUNT = "cluster-autoscaler"
"""Name of Cluster Autoscaler's service account."""


class ClusterAutoscaler(pulumi.ComponentResource):
    """Cluster Autoscaler with its own IAM role, which can scale only this cluster's node groups.

    It discovers them by the tags that EKS sets on their Auto Scaling groups:
    https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html
    """

    def __init__(self, name: str, context: ClusterContext, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:clouds:ClusterAutoscaler", name, {}, opts)
        policies = {"node-groups": autoscaler_policy(context.name, context.section.region)}
        role = PodRole(f"{name}-role", context, ACCOUNT, policies, pulumi.ResourceOptions(parent=self))
        values = {
            "cloudProvider": "aws",
            "awsRegion": context.section.region,
            "autoDiscovery": {"clusterName": context.name},
            "rbac": {"serviceAccount": {"name": ACCOUNT}},
            # If a pod fits several pools, add a node with the least idle CPU.
            "extraArgs": {"expander": "least-waste"},
            "resources": {"requests": {"cpu": "100m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}},
        }
        # The pods get their credentials when they start, so the association must exist first.
        self.release = release(
            f"{name}-release", "cluster-autoscaler", values, pulumi.ResourceOptions(parent=self, depends_on=[role])
        )
        self.register_outputs({})
