"""AKS: the cluster, created or existing, with its node pools."""

import base64
import json
from collections.abc import Sequence

import pulumi
import pulumi_azure_native as azure_native
import yaml
from pulumi_azure_native.compute import ProximityPlacementGroup
from pulumi_azure_native.containerservice import (
    AgentPool,
    ListManagedClusterUserCredentialsResult,
    ManagedCluster,
    list_managed_cluster_user_credentials_output,
)
from pulumi_azure_native.containerservice.outputs import ManagedClusterOIDCIssuerProfileResponse
from pydantic import BaseModel, Field

from gpu_tenancy.model.kubeconfig import Server, aks_helper, of_helper
from gpu_tenancy.model.plan.cluster import ClusterPlan, NodePool
from gpu_tenancy.model.spec.clouds.azure import CLIENT_ID_OF, AzureCluster

from .. import Api
from .control_plane import AksControlPlane
from .identities import CiIdentity, SecretReaderIdentity, data_access, registry_rights
from .pools import MemoryLock, PoolCluster, agent_pool


class AksCluster(pulumi.ComponentResource):
    """An AKS cluster with its node pools.

    Vaults, keys, workspaces and capacity reservations are not created here. An existing cluster is only read.
    It must have Entra integration, which kubelogin requires, and for capacity reservation groups a user-assigned
    identity with the role Contributor on their resource groups
    (https://learn.microsoft.com/azure/aks/use-capacity-reservation-groups). The deployer must be allowed to list the
    cluster's user credentials; only the address and the CA are kept.

    If a pool has `fabric`, its machines have InfiniBand, and its containers can lock memory without limit. The feature
    AKSInfinibandSupport of Microsoft.ContainerService is not managed here: it must be registered before the pool is
    created, so that its nodes share one InfiniBand network (https://learn.microsoft.com/azure/aks/use-amd-gpus).

    Attributes:
        kubernetes: provider of the cluster's Kubernetes API.
        system: what InfiniBand needs on nodes; the system pool is part of the cluster.

    Example:
        >>> AksCluster("cluster", plan, section).kubernetes
    """

    def __init__(
        self, name: str, plan: ClusterPlan, section: AzureCluster, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        azure = azure_native.Provider(f"{name}-azure", subscription_id=section.subscription)
        own = pulumi.ResourceOptions(providers=[azure])
        super().__init__("gpu-tenancy:clouds:AksCluster", name, {}, pulumi.ResourceOptions.merge(opts, own))
        self._plan, self._section = plan, section
        cluster, subnet = self._cluster(name)
        self._pool_cluster = PoolCluster(section, cluster.name, subnet, dict(plan.tags), self, plan.protect)
        for pool in plan.pools:
            self._pool(f"{name}-{pool.name}", pool)
        # With the address, which is known only after the cluster is created.
        issuer = pulumi.Output.all(cluster.fqdn, cluster.oidc_issuer_profile).apply(_issuer)
        late = {
            **self._ci_identities(f"{name}-robot", cluster),
            **self._teams(f"{name}-data", issuer),
            **self._readers(f"{name}-secrets", issuer),
        }
        self.api = self._api(f"{name}-kubernetes", cluster, late)
        self.kubernetes = self.api.provider()
        for registry in plan.registries if section.create else ():
            within = pulumi.ResourceOptions(parent=self)
            registry_rights(f"{name}-pull-{registry.rpartition('/')[2]}", self._pool_cluster, registry, cluster, within)
        self.system: Sequence[pulumi.Resource] = ()
        if wired := [pool.name for pool in plan.pools if pool.fabric]:
            within = pulumi.ResourceOptions(parent=self, providers=[self.kubernetes], depends_on=[cluster])
            self.system = [MemoryLock(f"{name}-memory-lock", wired, within)]
        self.register_outputs({"id": cluster.id})

    def _cluster(self, name: str) -> tuple[ManagedCluster, pulumi.Input[str]]:
        """The cluster, and the subnet of its nodes."""
        section, plan = self._section, self._plan
        within = pulumi.ResourceOptions(parent=self)
        if section.create:
            plane = AksControlPlane(f"{name}-control-plane", plan, section, within)
            return plane.cluster, plane.subnet
        return ManagedCluster.get(f"{name}-cluster", section.resource_id, within), section.subnet or ""

    def _ci_identities(self, name: str, cluster: ManagedCluster) -> dict[str, pulumi.Output[str]]:
        """The object IDs of the identities of service accounts, by their names in the plan."""
        within = pulumi.ResourceOptions(parent=self)
        return {
            account.identity.name: CiIdentity(
                f"{name}-{account.team}.{account.name}", self._pool_cluster, account, cluster.id, within
            ).object_id
            for account in self._plan.service_accounts
            if account.identity
        }

    def _teams(self, name: str, issuer: pulumi.Output[str]) -> dict[str, pulumi.Output[str]]:
        """The client IDs of the identities of teams, by their placeholders in the plan."""
        clients = data_access(name, self._plan, self._pool_cluster, issuer, self)
        return {f"{CLIENT_ID_OF}{team}": client for team, client in clients.items()}

    def _readers(self, name: str, issuer: pulumi.Output[str]) -> dict[str, pulumi.Output[str]]:
        """The client IDs and tenants of the identities that read secrets, by their names in the plan."""
        within, names = pulumi.ResourceOptions(parent=self), dict[str, pulumi.Output[str]]()
        for reader in self._plan.readers:
            one = SecretReaderIdentity(f"{name}-{reader.team}", self._pool_cluster, reader, issuer, within)
            names |= one.names
        return names

    def _pool(self, name: str, pool: NodePool) -> AgentPool:
        placement = self._placement(f"{name}-placement", pool).id if pool.compact else None
        return agent_pool(name, pool, self._pool_cluster, placement)

    def _placement(self, name: str, pool: NodePool) -> ProximityPlacementGroup:
        """A pool's proximity placement group: https://learn.microsoft.com/azure/aks/reduce-latency-ppg.

        Another zone or machine type replaces the group. The pool uses its id, so Pulumi deletes the pool first.
        """
        return ProximityPlacementGroup(
            name,
            resource_group_name=self._section.resource_group,
            proximity_placement_group_name=f"{self._section.name}-{pool.name}",
            location=self._section.location,
            proximity_placement_group_type="Standard",
            intent={"vm_sizes": [pool.machine.type]},
            zones=list(pool.zones) or None,
            tags=self._pool_cluster.tags,
            opts=pulumi.ResourceOptions(
                parent=self, replace_on_changes=["intent", "zones"], delete_before_replace=True
            ),
        )

    def _api(self, name: str, cluster: ManagedCluster, users: dict[str, pulumi.Output[str]]) -> Api:
        credentials = list_managed_cluster_user_credentials_output(
            resource_group_name=self._section.resource_group,
            resource_name=cluster.name,
            format="exec",
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        # It contains only an address and a certificate, although its source is secret.
        kubeconfig = pulumi.Output.unsecret(credentials.apply(own_kubeconfig))
        return Api(name, self._section.name, kubeconfig, users=users, opts=pulumi.ResourceOptions(parent=self))


def _issuer(parts: Sequence[str | ManagedClusterOIDCIssuerProfileResponse]) -> str:
    """URL of the issuer of the cluster's tokens; empty for a cluster without one, whose teams have no identities."""
    return next((part.issuer_url for part in parts if isinstance(part, ManagedClusterOIDCIssuerProfileResponse)), "")


def open_cluster(name: str, plan: ClusterPlan, opts: pulumi.ResourceOptions | None = None) -> AksCluster:
    """The AKS cluster of a stack, created or existing, with its pools."""
    if not isinstance(plan.section, AzureCluster):
        msg = f"{plan.section.cloud} is another cloud"
        raise TypeError(msg)
    return AksCluster(name, plan, plan.section, opts)


class _Server(BaseModel):
    server: str
    authority: str = Field(alias="certificate-authority-data")


class _NamedCluster(BaseModel):
    name: str
    cluster: _Server


class _Kubeconfig(BaseModel):
    """The clusters of a kubeconfig; its users are not read."""

    clusters: list[_NamedCluster]


def own_kubeconfig(credentials: ListManagedClusterUserCredentialsResult) -> str:
    """A kubeconfig for a cluster, from the user credentials that AKS returns.

    Only these contain the API server's address and CA. Client certificates and tokens in them, which clusters with
    local accounts have, are dropped.

    Raises:
        pulumi.RunError: AKS returned no kubeconfig.
    """
    if not credentials.kubeconfigs:
        message = "AKS gave no kubeconfig; whoever deploys needs the role Azure Kubernetes Service Cluster User"
        raise pulumi.RunError(message)
    text = base64.b64decode(credentials.kubeconfigs[0].value).decode()
    entry = _Kubeconfig.model_validate(yaml.safe_load(text)).clusters[0]
    server = Server(entry.name, entry.cluster.server, entry.cluster.authority)
    return json.dumps(of_helper(server, aks_helper(), "kubelogin"))
