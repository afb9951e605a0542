"""Cluster Autoscaler, where nothing else adds nodes."""

import pulumi

from .charts import release
from .home import Home
from .identity import PodRole
from .policies import autoscaler_policy

ACCOUNT = "cluster-autoscaler"
"""Name of its service account."""


class ClusterAutoscaler(pulumi.ComponentResource):
    """Cluster Autoscaler with an identity of its own, that moves only this cluster's node groups.

    It finds them by the tags that EKS puts on their Auto Scaling groups:
    https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html
    """

    def __init__(self, name: str, home: Home, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:clouds:ClusterAutoscaler", name, {}, opts)
        policies = {"node-groups": autoscaler_policy(home.name, home.section.region)}
        role = PodRole(f"{name}-role", home, ACCOUNT, policies, pulumi.ResourceOptions(parent=self))
        values = {
            "cloudProvider": "aws",
            "awsRegion": home.section.region,
            "autoDiscovery": {"clusterName": home.name},
            "rbac": {"serviceAccount": {"name": ACCOUNT}},
            # A pod may fit several pools: the one whose machine it fills best.
            "extraArgs": {"expander": "least-waste"},
            "resources": {"requests": {"cpu": "100m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}},
        }
        # The pods get their credentials when they start, so the association must be there first.
        self.release = release(
            f"{name}-release", "cluster-autoscaler", values, pulumi.ResourceOptions(parent=self, depends_on=[role])
        )
        self.register_outputs({})
