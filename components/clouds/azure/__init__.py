"""AKS: a cluster that exists or is made here, with the stack's node pools."""

from collections.abc import Sequence

import pulumi
import pulumi_azure_native as azure_native
import pulumi_kubernetes as kubernetes
from pulumi_azure_native.compute import ProximityPlacementGroup
from pulumi_azure_native.containerservice import (
    AgentPool,
    ManagedCluster,
    list_managed_cluster_user_credentials_output,
)

from gpu_tenancy.model.plan.fleet import Fleet, NodePool
from gpu_tenancy.model.spec.clouds.azure import AzureCluster

from .control_plane import AksControlPlane
from .kubeconfig import own_kubeconfig
from .pools import Site, agent_pool


class AksCluster(pulumi.ComponentResource):
    """A cluster of AKS with its node pools.

    Subnets are given, not made, and so are vaults, keys, workspaces and capacity reservations. A cluster that exists is
    only read; it has Entra integration, which kubelogin needs, and the identity of its own that capacity reservation
    groups need, with Contributor on their resource groups
    (https://learn.microsoft.com/azure/aks/use-capacity-reservation-groups). Whoever deploys may list the cluster's user
    credentials, of which the address and the CA are kept and nothing else.

    Where a pool has `fabric`, its machines already have InfiniBand. Left to the user: the feature AKSInfinibandSupport
    of Microsoft.ContainerService, registered before the pool is made so that its nodes share one InfiniBand network
    (https://learn.microsoft.com/azure/aks/use-amd-gpus), and NVIDIA's network operator in the cluster.

    Attributes:
        kubernetes: provider of the cluster's Kubernetes API.
        nodes: the node pools.

    Example:
        >>> AksCluster("cluster", fleet, section).kubernetes
    """

    def __init__(
        self, name: str, fleet: Fleet, section: AzureCluster, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        azure = azure_native.Provider(f"{name}-azure", subscription_id=section.subscription)
        own = pulumi.ResourceOptions(providers=[azure])
        super().__init__("gpu-tenancy:clouds:AksCluster", name, {}, pulumi.ResourceOptions.merge(opts, own))
        self._fleet, self._section = fleet, section
        cluster = self._cluster(name)
        self._site = Site(section, cluster.name, dict(fleet.tags), self, fleet.protect)
        self.nodes: Sequence[pulumi.Resource] = [self._pool(f"{name}-{pool.name}", pool) for pool in fleet.pools]
        self.kubernetes = self._kubernetes(f"{name}-kubernetes", cluster)
        self.register_outputs({"id": cluster.id})

    def _cluster(self, name: str) -> ManagedCluster:
        section, fleet = self._section, self._fleet
        within = pulumi.ResourceOptions(parent=self)
        if section.create:
            return AksControlPlane(f"{name}-control-plane", fleet, section, within).cluster
        group = f"/subscriptions/{section.subscription}/resourceGroups/{section.resource_group}"
        return ManagedCluster.get(
            f"{name}-cluster", f"{group}/providers/Microsoft.ContainerService/managedClusters/{section.name}", within
        )

    def _pool(self, name: str, pool: NodePool) -> AgentPool:
        placement = self._placement(f"{name}-placement", pool).id if pool.compact else None
        return agent_pool(name, pool, self._site, placement)

    def _placement(self, name: str, pool: NodePool) -> ProximityPlacementGroup:
        """One place for a pool's nodes: https://learn.microsoft.com/azure/aks/reduce-latency-ppg."""
        return ProximityPlacementGroup(
            name,
            resource_group_name=self._section.resource_group,
            proximity_placement_group_name=f"{self._section.name}-{pool.name}",
            location=self._section.location,
            proximity_placement_group_type="Standard",
            intent={"vm_sizes": [pool.machine.type]},
            zones=list(pool.zones) or None,
            tags=self._site.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _kubernetes(self, name: str, cluster: ManagedCluster) -> kubernetes.Provider:
        credentials = list_managed_cluster_user_credentials_output(
            resource_group_name=self._section.resource_group,
            resource_name=cluster.name,
            format="exec",
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        return kubernetes.Provider(
            name,
            # An address and a certificate, however secret what they were taken out of.
            kubeconfig=pulumi.Output.unsecret(credentials.apply(own_kubeconfig)),
            # An edited kubeconfig is still the same cluster: without a fixed name every resource would be replaced.
            cluster_identifier=self._section.name,
            enable_config_map_mutable=True,  # else a changed dashboard would be gone for a moment
            opts=pulumi.ResourceOptions(parent=self),
        )


def open_cluster(name: str, fleet: Fleet, opts: pulumi.ResourceOptions | None = None) -> AksCluster:
    """The cluster of AKS that a stack names, with its pools."""
    if not isinstance(fleet.cluster, AzureCluster):
        msg = f"{fleet.cluster.cloud} is another cloud"
        raise TypeError(msg)
    return AksCluster(name, fleet, fleet.cluster, opts)
