"""Type tokens of the resources that rules are about."""

import re
from collections.abc import Callable
from typing import Final

from judge import Resource

EKS_CLUSTER: Final = "aws:eks/cluster:Cluster"
EKS_POOL: Final = "aws:eks/nodeGroup:NodeGroup"
ASG: Final = "aws:autoscaling/group:Group"
LAUNCH_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
GKE_CLUSTER: Final = "gcp:container/cluster:Cluster"
GKE_POOL: Final = "gcp:container/nodePool:NodePool"
AKS_CLUSTER: Final = "azure-native:containerservice:ManagedCluster"
AKS_POOL: Final = "azure-native:containerservice:AgentPool"
KARPENTER_POOL: Final = "kubernetes:karpenter.sh:NodePool"
KARPENTER_CLASS: Final = "kubernetes:karpenter.k8s.aws:EC2NodeClass"

_VERSION: Final = re.compile(r"^(azure-native:\w+|kubernetes:[\w.-]+)/v\w+:")


def token(type_: str) -> str:
    """A type without the version of its API: `azure-native:containerservice/v20250501:AgentPool`, and Karpenter's."""
    return _VERSION.sub(r"\1:", type_)


def tokens(*wanted: str) -> Callable[[Resource], bool]:
    """Takes resources of these types, whatever the version of their API."""
    taken = frozenset(wanted)
    return lambda resource: token(resource.type) in taken


def ignores(resource: Resource, path: str) -> bool:
    """Whether changes of a property are left alone: it, what it is in, or everything."""
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) or each == "*" for each in resource.ignored)
