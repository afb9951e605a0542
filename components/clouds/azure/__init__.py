"""AKS: the cluster, created or existing, with its node pools."""

import base64
import json
from collections.abc import Sequence

import pulumi
import pulumi_azure_native as azure_native
from pulumi import ResourceOptions
from pulumi_azure_native import containerservice
from pulumi_azure_native.compute import ProximityPlacementGroup
from pulumi_azure_native.containerservice.outputs import ManagedClusterOIDCIssuerProfileResponse

from gpu_tenancy.model.kubeconfig import Server, aks_helper, of_helper
from gpu_tenancy.model.plan.cluster import ClusterPlan, NodePool
from gpu_tenancy.model.spec.clouds.azure import CLIENT_ID_OF, AzureCluster
from gpu_tenancy.model.yaml import parse

from ...objects import Component, Options
from .. import Api, section_of
from . import identities
from .control_plane import AksControlPlane
from .pools import MemoryLock, PoolCluster, agent_pool


class AksCluster(Component):
    """An AKS cluster with its node pools.

    Vaults, keys, workspaces and capacity reservations are not created here. An existing cluster is only read. It must
    have Entra integration, which kubelogin requires, and for capacity reservation groups a user-assigned identity with
    the role Contributor on their resource groups
    (https://learn.microsoft.com/azure/aks/use-capacity-reservation-groups). The deployer must be allowed to list the
    cluster's user credentials; only the address and the CA are kept.

    If a pool has `fabric`, its machines have InfiniBand, and its containers can lock memory without limit; `system` has
    the needed objects. The feature AKSInfinibandSupport of Microsoft.ContainerService must be registered before the
    pool is created, so that its nodes share one InfiniBand network
    (https://learn.microsoft.com/azure/aks/use-amd-gpus).
    """

    def __init__(self, name: str, plan: ClusterPlan, opts: Options = None) -> None:
        section = section_of(plan, AzureCluster)
        azure = azure_native.Provider(f"{name}-azure", subscription_id=section.subscription)
        with_azure = ResourceOptions.merge(opts, ResourceOptions(providers=[azure]))
        super().__init__("gpu-tenancy:clouds:AksCluster", name, with_azure)
        if section.create:
            plane = AksControlPlane(f"{name}-control-plane", plan, section, self.own)
            cluster, subnet = plane.cluster, plane.subnet
        else:
            cluster = containerservice.ManagedCluster.get(f"{name}-cluster", section.resource_id, self.own)
            subnet = section.subnet or ""
        place = PoolCluster(section, cluster.name, subnet, dict(plan.tags), self, plan.protect)
        for pool in plan.pools:
            placement = self._placement(f"{name}-{pool.name}-placement", pool, place).id if pool.spec.compact else None
            agent_pool(f"{name}-{pool.name}", pool, place, placement)
        # With the address, which is known only after the cluster is created.
        issuer = pulumi.Output.all(cluster.fqdn, cluster.oidc_issuer_profile).apply(_issuer)
        # What only the cloud decides, by its name or placeholder in the plan.
        late: dict[str, pulumi.Output[str]] = {}
        for account in plan.service_accounts:
            if account.identity:
                own = f"{name}-robot-{account.team}.{account.name}"
                late[account.identity.name] = identities.CiIdentity(own, place, account, cluster.id, self.own).object_id
        for team, client in identities.data_access(f"{name}-data", plan, place, issuer, self).items():
            late[f"{CLIENT_ID_OF}{team}"] = client
        for reader in plan.readers:
            late |= identities.SecretReaderIdentity(
                f"{name}-secrets-{reader.team}", place, reader, issuer, self.own
            ).names
        credentials = containerservice.list_managed_cluster_user_credentials_output(
            resource_group_name=section.resource_group,
            resource_name=cluster.name,
            format="exec",
            opts=pulumi.InvokeOutputOptions(parent=self),
        )
        # It contains only an address and a certificate, although its source is secret.
        kubeconfig = pulumi.Output.unsecret(credentials.apply(own_kubeconfig))
        self.api = Api(f"{name}-kubernetes", section.name, kubeconfig, users=late, opts=self.own)
        self.kubernetes = self.api.provider()
        for registry in plan.registries if section.create else ():
            # Nodes also pull from it as a pull-through cache.
            kubelet = identities.Principal(cluster.identity_profile.apply(identities.kubelet_of))
            pulling = f"{name}-pull-{registry.rpartition('/')[2]}"
            identities.role_assignment(pulling, section, kubelet, identities.Right("AcrPull", registry), self.own)
        self.system: Sequence[pulumi.Resource] = ()
        if wired := [pool.name for pool in plan.pools if pool.fabric]:
            within = ResourceOptions(parent=self, providers=[self.kubernetes], depends_on=[cluster])
            self.system = [MemoryLock(f"{name}-memory-lock", wired, within)]

    def _placement(self, name: str, pool: NodePool, place: PoolCluster) -> ProximityPlacementGroup:
        """A pool's proximity placement group: https://learn.microsoft.com/azure/aks/reduce-latency-ppg."""
        # Another zone or machine type replaces the group. The pool uses its id, so Pulumi deletes the pool first.
        return ProximityPlacementGroup(
            name,
            resource_group_name=place.section.resource_group,
            proximity_placement_group_name=f"{place.section.name}-{pool.name}",
            location=place.section.location,
            proximity_placement_group_type="Standard",
            intent={"vm_sizes": [pool.machine.type]},
            zones=list(pool.spec.zones) or None,
            tags=place.tags,
            opts=ResourceOptions(parent=self, replace_on_changes=["intent", "zones"], delete_before_replace=True),
        )


def _issuer(parts: Sequence[str | ManagedClusterOIDCIssuerProfileResponse]) -> str:
    """The URL of the issuer of the cluster's tokens; empty without one, and then teams have no identities."""
    return next((part.issuer_url for part in parts if isinstance(part, ManagedClusterOIDCIssuerProfileResponse)), "")


open_cluster = AksCluster


def own_kubeconfig(credentials: containerservice.ListManagedClusterUserCredentialsResult) -> str:
    """A kubeconfig from the user credentials that AKS returns; raises RunError if AKS returned no kubeconfig.

    Only these have the API server's address and CA. Client certificates and tokens of local accounts are dropped.
    """
    if not credentials.kubeconfigs:
        message = "AKS gave no kubeconfig; whoever deploys needs the role Azure Kubernetes Service Cluster User"
        raise pulumi.RunError(message)
    text = base64.b64decode(credentials.kubeconfigs[0].value).decode()
    entry = parse(text)["clusters"][0]
    cluster = entry["cluster"]
    server = Server(entry["name"], cluster["server"], cluster["certificate-authority-data"])
    return json.dumps(of_helper(server, aks_helper(), "kubelogin"))
