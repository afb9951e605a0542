"""The right of nodes to pull images from container registries.

https://learn.microsoft.com/azure/aks/cluster-container-registry-integration
"""

from collections.abc import Mapping
from typing import Final

import pulumi
from pulumi_azure_native.authorization import RoleAssignment
from pulumi_azure_native.containerservice import ManagedCluster
from pulumi_azure_native.containerservice.outputs import UserAssignedIdentityManagedClusterResponse

from .identities import Principal, Right, role_assignment
from .pools import PoolCluster

PULL: Final = "AcrPull"
_KUBELET: Final = "kubeletidentity"
"""Identity with which nodes pull images; all node pools of a cluster share it."""


def registry_rights(
    name: str, place: PoolCluster, registry: str, cluster: ManagedCluster, opts: pulumi.ResourceOptions
) -> RoleAssignment:
    """The role with which the nodes of a cluster pull from a registry, also as a pull-through cache."""
    kubelet = cluster.identity_profile.apply(kubelet_of)
    return role_assignment(name, place.section, Principal(kubelet), Right(PULL, registry), opts)


def kubelet_of(profile: Mapping[str, UserAssignedIdentityManagedClusterResponse] | None) -> str:
    """The object ID of the identity of a cluster's nodes; empty if it has none."""
    return (profile or {})[_KUBELET].object_id or "" if profile and _KUBELET in profile else ""
