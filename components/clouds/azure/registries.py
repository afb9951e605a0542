"""The right of nodes to pull images from container registries.

https://learn.microsoft.com/azure/aks/cluster-container-registry-integration
"""

from collections.abc import Mapping
from typing import Final

import pulumi
from pulumi_azure_native.authorization import PrincipalType, RoleAssignment
from pulumi_azure_native.containerservice import ManagedCluster
from pulumi_azure_native.containerservice.outputs import UserAssignedIdentityManagedClusterResponse

from .control_plane import role_definition
from .pools import PoolCluster

PULL: Final = "AcrPull"
_KUBELET: Final = "kubeletidentity"
"""Identity with which nodes pull images; all node pools of a cluster share it."""


def registry_rights(
    name: str, place: PoolCluster, registry: str, cluster: ManagedCluster, opts: pulumi.ResourceOptions
) -> RoleAssignment:
    """The role with which the nodes of a cluster pull from a registry, also as a pull-through cache.

    Args:
        name: of the role assignment.
        place: of the cluster.
        registry: its resource ID.
        cluster: whose nodes get the role.
        opts: of the role assignment.
    """
    return RoleAssignment(
        name,
        principal_id=cluster.identity_profile.apply(kubelet_of),
        principal_type=PrincipalType.SERVICE_PRINCIPAL,
        role_definition_id=role_definition(place.section.subscription, PULL),
        scope=registry,
        opts=opts,
    )


def kubelet_of(profile: Mapping[str, UserAssignedIdentityManagedClusterResponse] | None) -> str:
    """The object ID of the identity of a cluster's nodes; empty if it has none."""
    return (profile or {})[_KUBELET].object_id or "" if profile and _KUBELET in profile else ""
