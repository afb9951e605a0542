"""Type tokens of the resources that rules check."""

import re
from collections.abc import Callable
from typing import Final

from rule_engine import Resource

EKS_CLUSTER: Final = "aws:eks/cluster:Cluster"
EKS_POOL: Final = "aws:eks/nodeGroup:NodeGroup"
ASG: Final = "aws:autoscaling/group:Group"
LAUNCH_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
NATIVE_EKS_CLUSTER: Final = "aws-native:eks:Cluster"
NATIVE_EKS_POOL: Final = "aws-native:eks:Nodegroup"
NATIVE_ASG: Final = "aws-native:autoscaling:AutoScalingGroup"
NATIVE_LAUNCH_TEMPLATE: Final = "aws-native:ec2:LaunchTemplate"
GKE_CLUSTER: Final = "gcp:container/cluster:Cluster"
GKE_POOL: Final = "gcp:container/nodePool:NodePool"
AKS_CLUSTER: Final = "azure-native:containerservice:ManagedCluster"
AKS_POOL: Final = "azure-native:containerservice:AgentPool"
KARPENTER_POOL: Final = "kubernetes:karpenter.sh:NodePool"
KARPENTER_CLASS: Final = "kubernetes:karpenter.k8s.aws:EC2NodeClass"
EKS_POOLS: Final = (EKS_POOL, NATIVE_EKS_POOL)
ASGS: Final = (ASG, NATIVE_ASG)
LAUNCH_TEMPLATES: Final = (LAUNCH_TEMPLATE, NATIVE_LAUNCH_TEMPLATE)

_VERSION: Final = re.compile(r"^(azure-native:\w+|kubernetes:[\w.-]+)/v\w+:")


def token(type_: str) -> str:
    """A type token without API version, which azure-native and Kubernetes types have (`…/v20250501:AgentPool`)."""
    return _VERSION.sub(r"\1:", type_)


def of_types(*types: str) -> Callable[[Resource], bool]:
    """Selects resources of these types, in any API version."""
    accepted = frozenset(types)
    return lambda resource: token(resource.type) in accepted


def ignores(resource: Resource, path: str) -> bool:
    """Whether `ignoreChanges` contains a property, a parent of it, or `*`."""
    return any(
        path == ignored or path.startswith((f"{ignored}.", f"{ignored}[")) or ignored == "*"
        for ignored in resource.ignored
    )
