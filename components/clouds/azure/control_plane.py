"""An AKS cluster that is made here, with the identity that it acts as."""

from typing import Final

import pulumi
from pulumi_azure_native.authorization import PrincipalType, RoleAssignment
from pulumi_azure_native.containerservice import (
    ContainerServiceNetworkProfileArgsDict,
    ManagedCluster,
    ManagedClusterAADProfileArgsDict,
    ManagedClusterAgentPoolProfileArgsDict,
    ManagedClusterAPIServerAccessProfileArgsDict,
    ManagedClusterSecurityProfileArgsDict,
    ResourceIdentityType,
)
from pulumi_azure_native.managedidentity import UserAssignedIdentity
from pulumi_azure_native.monitor import DiagnosticSetting

from gpu_tenancy.model.plan.fleet import Fleet, SystemNodes
from gpu_tenancy.model.spec.clouds.azure import AksCreation, AzureCluster

from .pools import reservation

ROLES: Final = {
    "Network Contributor": "4d97b98b-1d4f-4787-a291-c67834d212e7",
    "Key Vault Crypto User": "12338af0-0e69-4776-bea7-57ae8d297424",
    "Contributor": "b24988ac-6180-42a0-ab88-20f7382dd24c",
}
"""Ids of Azure's own roles: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles."""
AUDIT_LOGS: Final = ("kube-audit-admin", "guard")
"""What changed and by whom, and who came in by Entra. `kube-audit` would be each read as well, at many times the cost:
https://learn.microsoft.com/azure/aks/monitor-aks-reference."""
_OUTBOUND: Final = {
    "load-balancer": "loadBalancer",
    "nat-gateway": "userAssignedNATGateway",
    "routes": "userDefinedRouting",
}
_GIB_OF_SYSTEM: Final = 128


class AksControlPlane(pulumi.ComponentResource):
    """An AKS cluster with the nodes of its own pods; no GPU is among them.

    Not made here: network, Key Vault and key, disk encryption set, Log Analytics workspace, capacity reservations; the
    cluster's identity gets what it needs of each, and whoever deploys must be allowed to grant it. Azure may take an
    hour until it honours such a grant: https://learn.microsoft.com/azure/aks/use-capacity-reservation-groups.

    Patches of Kubernetes and of the nodes come by themselves, at any hour unless somebody gives the cluster maintenance
    windows.

    Example:
        >>> AksControlPlane("cluster-control-plane", fleet, section).cluster

    Raises:
        TypeError: the stack names a cluster that exists.
    """

    def __init__(
        self, name: str, fleet: Fleet, section: AzureCluster, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        creation = section.create
        if creation is None or fleet.system is None:
            msg = f"cluster {section.name} exists"
            raise TypeError(msg)
        super().__init__("gpu-tenancy:clouds:AksControlPlane", name, {}, opts)
        self._tags, self._kept = dict(fleet.tags), fleet.protect
        self.identity = UserAssignedIdentity(
            f"{name}-identity",
            resource_group_name=section.resource_group,
            resource_name_=f"{section.name}-control-plane",
            location=section.location,
            tags=self._tags,
            # Without it the cluster cannot read its key, and with that its secrets.
            opts=pulumi.ResourceOptions(parent=self, protect=self._kept),
        )
        self.grants = [
            self._grant(f"{name}-{what}", section.subscription, role, scope)
            for what, (role, scope) in grants(fleet, section, creation).items()
        ]
        self.cluster = self._cluster(
            f"{name}-cluster", section, creation, _system_pool(section, creation, fleet.system, self._tags)
        )
        self.audit = DiagnosticSetting(
            f"{name}-audit",
            name="audit",
            resource_uri=self.cluster.id,
            workspace_id=creation.logs,
            log_analytics_destination_type="Dedicated",
            logs=[{"category": category, "enabled": True} for category in AUDIT_LOGS],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"id": self.cluster.id})

    def _grant(self, name: str, subscription: str, role: str, scope: str) -> RoleAssignment:
        definitions = f"/subscriptions/{subscription}/providers/Microsoft.Authorization/roleDefinitions"
        return RoleAssignment(
            name,
            principal_id=self.identity.principal_id,
            principal_type=PrincipalType.SERVICE_PRINCIPAL,
            role_definition_id=f"{definitions}/{ROLES[role]}",
            scope=scope,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _cluster(
        self,
        name: str,
        section: AzureCluster,
        creation: AksCreation,
        system: ManagedClusterAgentPoolProfileArgsDict,
    ) -> ManagedCluster:
        return ManagedCluster(
            name,
            resource_group_name=section.resource_group,
            resource_name_=section.name,
            location=section.location,
            kubernetes_version=creation.version,
            dns_prefix=section.name,
            sku={"name": "Base", "tier": "Standard"},
            identity={
                "type": ResourceIdentityType.USER_ASSIGNED,
                # Not known before the identity is there: a list of known ids would be echoed by a preview, and the SDK
                # reads what it gets back as a map.
                "user_assigned_identities": pulumi.Output.all(self.identity.id, self.identity.principal_id).apply(
                    first_alone
                ),
            },
            enable_rbac=True,
            disable_local_accounts=True,
            aad_profile=_people(creation),
            api_server_access_profile=_entrance(creation),
            security_profile=_security(creation),
            oidc_issuer_profile={"enabled": True},
            network_profile=_network(creation),
            agent_pool_profiles=[system],
            # Nodes are patched live where that can be, and else one by one; the other channel takes each down every
            # week: https://learn.microsoft.com/azure/aks/auto-upgrade-node-os-image
            auto_upgrade_profile={"upgrade_channel": "patch", "node_os_upgrade_channel": "SecurityPatch"},
            disk_encryption_set_id=creation.disk_encryption_set,
            storage_profile={"blob_csi_driver": {"enabled": True}},  # What datasets on Blob are mounted by.
            tags=self._tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=self._kept,
                depends_on=self.grants,
                ignore_changes=["agentPoolProfiles[0].count"],  # The autoscaler's, as a refresh may have found it.
            ),
        )


def grants(fleet: Fleet, section: AzureCluster, creation: AksCreation) -> dict[str, tuple[str, str]]:
    """What the cluster's identity may do: role and scope, by names that stay, as Azure takes no such grant twice.

    Subnet: https://learn.microsoft.com/azure/aks/configure-azure-cni; key:
    https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption; disks:
    https://learn.microsoft.com/azure/aks/azure-disk-customer-managed-keys; reservations, by their resource groups:
    https://learn.microsoft.com/azure/aks/use-capacity-reservation-groups.
    """
    reserved = [group.partition("/providers/")[0] for pool in fleet.pools if (group := reservation(pool))]
    return {
        "subnet": ("Network Contributor", section.subnet),
        "vault": ("Key Vault Crypto User", creation.vault),
        **({"disks": ("Contributor", creation.disk_encryption_set)} if creation.disk_encryption_set else {}),
        **{f"reserved-{group.rpartition('/')[2]}": ("Contributor", group) for group in reserved},
    }


def first_alone(values: list[str]) -> list[str]:
    """The first of some values, in a list of its own."""
    return values[:1]


def _people(creation: AksCreation) -> ManagedClusterAADProfileArgsDict:
    """Entra alone lets people in; what they may do is Kubernetes' own RBAC.

    https://learn.microsoft.com/azure/aks/enable-authentication-microsoft-entra-id
    """
    return {
        "managed": True,
        "tenant_id": creation.tenant,
        "admin_group_object_ids": list(creation.admins),
        "enable_azure_rbac": False,
    }


def _entrance(creation: AksCreation) -> ManagedClusterAPIServerAccessProfileArgsDict:
    """Who reaches the API server: networks that the stack names, or the cluster's own alone.

    `az aks command invoke` would lead around both. A private API server's name is known in the private DNS zone that
    AKS ties to the subnet's network: https://learn.microsoft.com/azure/aks/private-clusters.
    """
    if creation.allow_from:
        return {"authorized_ip_ranges": list(creation.allow_from), "disable_run_command": True}
    return {
        "enable_private_cluster": True,
        "enable_private_cluster_public_fqdn": False,
        "private_dns_zone": "system",
        "disable_run_command": True,
    }


def _security(creation: AksCreation) -> ManagedClusterSecurityProfileArgsDict:
    """The vault is a public one, of which AKS wants no id: https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption."""
    return {
        "azure_key_vault_kms": {"enabled": True, "key_id": creation.secrets_key, "key_vault_network_access": "Public"},
        "workload_identity": {"enabled": True},
    }


def _network(creation: AksCreation) -> ContainerServiceNetworkProfileArgsDict:
    """Pods in an overlay, so that they take none of the subnet's addresses.

    https://learn.microsoft.com/azure/aks/azure-cni-powered-by-cilium
    """
    return {
        "network_plugin": "azure",
        "network_plugin_mode": "overlay",
        "network_dataplane": "cilium",
        "network_policy": "cilium",
        "pod_cidr": creation.pods,
        "service_cidr": creation.services,
        "dns_service_ip": creation.name_server,
        "outbound_type": _OUTBOUND[creation.egress],
        "load_balancer_sku": "standard",
    }


def _system_pool(
    section: AzureCluster, creation: AksCreation, system: SystemNodes, tags: dict[str, str]
) -> ManagedClusterAgentPoolProfileArgsDict:
    """Nodes for the cluster's own pods: https://learn.microsoft.com/azure/aks/use-system-pools.

    Azure changes this pool only together with the whole cluster, where it does at all; nodes of the stack's pools are
    resources of their own.
    """
    return {
        "name": "system",
        "mode": "System",
        "type": "VirtualMachineScaleSets",
        "orchestrator_version": creation.version,
        "os_type": "Linux",
        "os_sku": "Ubuntu",
        "vm_size": system.machine.type,
        "enable_auto_scaling": True,
        "min_count": system.least,
        "max_count": system.most,
        "node_taints": ["CriticalAddonsOnly=true:NoSchedule"],
        "vnet_subnet_id": section.subnet,
        "enable_node_public_ip": False,
        "os_disk_type": "Managed",
        "os_disk_size_gb": _GIB_OF_SYSTEM,
        "enable_encryption_at_host": True,
        "upgrade_settings": {"max_surge": "1"},
        "tags": tags,
    }
