"""Cluster Autoscaler, for clusters without another node autoscaler."""

from typing import Final

import pulumi
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding

from .charts import NAMESPACE, release
from .context import ClusterContext
from .identity import PodRole
from .policies import autoscaler_policy

ACCOUNT = "cluster-autoscaler"
"""Name of Cluster Autoscaler's service account."""
_REQUESTS: Final = {"enable-provisioning-requests": True, "kube-api-content-type": "application/json"}
"""Flags with which it handles ProvisioningRequests. It cannot write their status as protobuf before 1.34.5:
https://github.com/kubernetes/autoscaler/issues/8855."""


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
        role = PodRole(f"{name}-role", context, ACCOUNT, policies, pulumi.ResourceOptions(parent=self))
        values = {
            "cloudProvider": "aws",
            "awsRegion": context.section.region,
            "autoDiscovery": {"clusterName": context.name},
            "rbac": {"serviceAccount": {"name": ACCOUNT}},
            # If a pod fits several pools, add a node with the least idle CPU.
            "extraArgs": {"expander": "least-waste", **(_REQUESTS if queued else {})},
            "resources": {"requests": {"cpu": "100m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}},
        }
        # The pods get their credentials when they start, so the association must exist first.
        self.release = release(
            f"{name}-release", "cluster-autoscaler", values, pulumi.ResourceOptions(parent=self, depends_on=[role])
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
            subjects=[{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
            opts=pulumi.ResourceOptions(parent=self),
        )
