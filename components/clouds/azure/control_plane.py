"""A created AKS cluster, with its network, managed identity and maintenance windows."""

from collections.abc import Mapping
from typing import Final

import pulumi
from pulumi import ResourceOptions
from pulumi_azure_native import containerservice, network
from pulumi_azure_native.authorization import PrincipalType
from pulumi_azure_native.monitor import DiagnosticSetting

from gpu_tenancy.model.plan.cluster import ClusterPlan, SystemNodes
from gpu_tenancy.model.spec.clouds.azure import USER_ROLE, AksCreation, AksMaintenance, AzureCluster

from ...objects import Component, Options
from .identities import Principal, Right, managed_identity, role_assignment

_SUBNET = "nodes"


class Network(Component):
    """A virtual network with one private subnet and, for `egress: nat-gateway`, a NAT gateway with a public address.

    Machines have no egress of their own, which Azure would give by default; pods have addresses of an overlay network.
    Half of the addresses stay free for other subnets. `subnet` is a resource ID.
    """

    # https://learn.microsoft.com/azure/virtual-network/ip-services/default-outbound-access,
    # https://learn.microsoft.com/azure/aks/nat-gateway

    def __init__(
        self, name: str, plan: ClusterPlan, section: AzureCluster, creation: AksCreation, opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:AksNetwork", name, opts)
        kept = ResourceOptions(parent=self, protect=plan.protect)
        group, location, tags = section.resource_group, section.location, dict(plan.tags)
        subnet: network.SubnetArgsDict = {
            "name": _SUBNET,
            "address_prefix": str(next(creation.network_addresses.subnets())),
            "default_outbound_access": False,
        }
        if creation.egress == "nat-gateway":
            address = network.PublicIPAddress(
                f"{name}-address",
                resource_group_name=group,
                public_ip_address_name=f"{section.name}-egress",
                location=location,
                sku={"name": "Standard"},
                public_ip_allocation_method="Static",
                tags=tags,
                opts=kept,
            )
            nat = network.NatGateway(
                f"{name}-nat",
                resource_group_name=group,
                nat_gateway_name=section.name,
                location=location,
                sku={"name": "Standard"},
                public_ip_addresses=[{"id": address.id}],
                tags=tags,
                opts=kept,
            )
            subnet["nat_gateway"] = {"id": nat.id}
        vnet = network.VirtualNetwork(
            f"{name}-vnet",
            resource_group_name=group,
            virtual_network_name=section.name,
            location=location,
            address_space={"address_prefixes": [str(creation.network_addresses)]},
            subnets=[subnet],
            tags=tags,
            opts=kept,
        )
        self.subnet = pulumi.Output.concat(vnet.id, f"/subnets/{_SUBNET}")


AUTOSCALER: Final[containerservice.ManagedClusterPropertiesAutoScalerProfileArgsDict] = {
    "skip_nodes_with_local_storage": "true",
    "skip_nodes_with_system_pods": "true",
    "scale_down_utilization_threshold": "0.5",
}
"""Settings of AKS's autoscaler, which by default keeps nodes with pods that have local storage. The threshold is of
CPUs and memory; the threshold of GPUs is upstream's 0.5 and cannot be set (read 2026-11-24):
https://learn.microsoft.com/azure/aks/cluster-autoscaler#use-the-cluster-autoscaler-profile."""


def upgrade_channels(creation: AksCreation, *, gpus: bool) -> containerservice.ManagedClusterAutoUpgradeProfileArgsDict:
    """AKS's upgrades of Kubernetes and nodes: none, or patches. Both drain the cluster's nodes."""
    # SecurityPatch patches nodes live if it can. A change between SecurityPatch and None replaces no node, a change to
    # Unmanaged does (read 2026-11-24): https://learn.microsoft.com/azure/aks/auto-upgrade-node-os-image.
    if gpus and creation.gpu_upgrades == "on-demand":
        return {"upgrade_channel": "none", "node_os_upgrade_channel": "None"}
    return {"upgrade_channel": "patch", "node_os_upgrade_channel": "SecurityPatch"}


UPGRADES: Final = ("aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule")
"""Names of the configurations for Kubernetes versions, and for patches of the nodes' operating system."""
RELEASES: Final = "default"  # name of the configuration for AKS's weekly releases, which has no daily schedule


def windows(maintenance: AksMaintenance) -> Mapping[str, containerservice.MaintenanceWindowArgsDict]:
    """Maintenance windows by the name of their configuration: https://learn.microsoft.com/azure/aks/planned-maintenance."""
    schedule: containerservice.ScheduleArgsDict = {"daily": {"interval_days": 1}}
    if maintenance.day:
        schedule = {
            "weekly": {"day_of_week": containerservice.WeekDay(maintenance.day.capitalize()), "interval_weeks": 1}
        }
    window: containerservice.MaintenanceWindowArgsDict = {
        "schedule": schedule,
        "start_time": maintenance.start,
        "duration_hours": maintenance.hours,
        "utc_offset": "+00:00",
    }
    if maintenance.exclusions:
        window["not_allowed_dates"] = [
            {"start": exclusion.start.isoformat(), "end": exclusion.end.isoformat()}
            for exclusion in maintenance.exclusions.values()
        ]
    return dict.fromkeys((*UPGRADES, RELEASES) if maintenance.day else UPGRADES, window)


AUDIT_LOGS: Final = ("kube-audit-admin", "guard")
"""Log categories for changes and Entra logins. `kube-audit` also contains reads, at many times the cost:
https://learn.microsoft.com/azure/aks/monitor-aks-reference."""
_OUTBOUND: Final = {
    "load-balancer": "loadBalancer",
    "nat-gateway": "userAssignedNATGateway",
    "routes": "userDefinedRouting",
}


class AksControlPlane(Component):
    """An AKS cluster with a system node pool without GPUs; raises TypeError if the stack names an existing cluster.

    An existing network, Key Vault and key, disk encryption set, Log Analytics workspace and capacity reservations are
    not created here. The cluster's identity gets its roles on each, and the deployer must be allowed to assign them,
    which can take an hour: https://learn.microsoft.com/azure/aks/use-capacity-reservation-groups. Kubernetes and nodes
    are patched automatically in the maintenance windows of the stack, except with GPUs. `subnet` is a resource ID.
    """

    def __init__(self, name: str, plan: ClusterPlan, section: AzureCluster, opts: Options = None) -> None:
        creation = section.create
        if creation is None or plan.system is None:
            raise TypeError(f"cluster {section.name} exists")
        super().__init__("gpu-tenancy:clouds:AksControlPlane", name, opts)
        tags = dict(plan.tags)
        # Without it, the cluster cannot read its key, and so not its secrets.
        kept = ResourceOptions(parent=self, protect=plan.protect)
        identity = managed_identity(f"{name}-identity", section, f"{section.name}-control-plane", tags, kept)
        self.subnet = section.subnet or Network(f"{name}-network", plan, section, creation, self.own).subnet
        principal = Principal(identity.principal_id)
        granted = [
            role_assignment(f"{name}-{grant}", section, principal, right, self.own)
            for grant, right in grants(plan, self.subnet, creation).items()
        ]
        self.cluster = containerservice.ManagedCluster(
            f"{name}-cluster",
            resource_group_name=section.resource_group,
            resource_name_=section.name,
            location=section.location,
            kubernetes_version=creation.version,
            dns_prefix=section.name,
            sku={"name": "Base", "tier": "Standard"},
            identity={
                "type": containerservice.ResourceIdentityType.USER_ASSIGNED,
                # Unknown until the identity exists. A preview returns a list of known ids unchanged, but the SDK
                # expects a map in the result.
                "user_assigned_identities": pulumi.Output.all(identity.id, identity.principal_id).apply(
                    lambda ids: ids[:1]
                ),
            },
            enable_rbac=True,
            disable_local_accounts=True,
            # Entra authenticates users; Kubernetes RBAC authorizes them:
            # https://learn.microsoft.com/azure/aks/enable-authentication-microsoft-entra-id
            aad_profile={
                "managed": True,
                "tenant_id": creation.tenant,
                "admin_group_object_ids": list(creation.admins),
                "enable_azure_rbac": False,
            },
            api_server_access_profile=_entrance(creation),
            # Secrets encryption with a key in a public vault. AKS calls this way legacy from Kubernetes 1.33 on. Its
            # successor is a preview, and not in the API version of the Pulumi provider (read 2026-11-22):
            # https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption,
            # https://learn.microsoft.com/azure/aks/kms-data-encryption.
            security_profile={
                "azure_key_vault_kms": {
                    "enabled": True,
                    "key_id": creation.secrets_key,
                    "key_vault_network_access": "Public",
                },
                "workload_identity": {"enabled": True},
            },
            oidc_issuer_profile={"enabled": True},
            # An overlay network, so that pods use no addresses of the subnet:
            # https://learn.microsoft.com/azure/aks/azure-cni-powered-by-cilium
            network_profile={
                "network_plugin": "azure",
                "network_plugin_mode": "overlay",
                "network_dataplane": "cilium",
                "network_policy": "cilium",
                "pod_cidr": creation.pods,
                "service_cidr": creation.services,
                "dns_service_ip": creation.name_server,
                "outbound_type": _OUTBOUND[creation.egress],
                "load_balancer_sku": "standard",
            },
            agent_pool_profiles=[_system_pool(self.subnet, creation, plan.system, tags)],
            auto_upgrade_profile=upgrade_channels(creation, gpus=any(pool.gpus for pool in plan.pools)),
            auto_scaler_profile=AUTOSCALER,
            disk_encryption_set_id=creation.disk_encryption_set,
            storage_profile={"blob_csi_driver": {"enabled": True}},  # Mounts datasets on Blob storage.
            tags=tags,
            opts=ResourceOptions(
                parent=self,
                protect=plan.protect,
                depends_on=granted,
                ignore_changes=["agentPoolProfiles[0].count"],  # The autoscaler owns it; a refresh can read it.
            ),
        )
        for who in plan.people:
            # To list the cluster's user credentials, which have no rights: Kubernetes RBAC gives them.
            person = Principal(who.name, PrincipalType.GROUP if who.kind == "group" else PrincipalType.USER)
            role_assignment(f"{name}-login-{who.name}", section, person, Right(USER_ROLE, self.cluster.id), self.own)
        DiagnosticSetting(
            f"{name}-audit",
            name="audit",
            resource_uri=self.cluster.id,
            workspace_id=creation.logs,
            log_analytics_destination_type="Dedicated",
            logs=[{"category": category, "enabled": True} for category in AUDIT_LOGS],
            opts=self.own,
        )
        for configuration, window in windows(creation.maintenance).items():
            containerservice.MaintenanceConfiguration(
                f"{name}-{configuration}",
                resource_group_name=section.resource_group,
                resource_name_=self.cluster.name,
                config_name=configuration,
                maintenance_window=window,
                opts=self.own,
            )


def grants(plan: ClusterPlan, subnet: pulumi.Input[str], creation: AksCreation) -> dict[str, Right]:
    """The right of each role assignment of the cluster's identity, by stable names: Azure rejects duplicates."""
    # Subnet: https://learn.microsoft.com/azure/aks/configure-azure-cni; key:
    # https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption; disks:
    # https://learn.microsoft.com/azure/aks/azure-disk-customer-managed-keys; reservations, by resource group:
    # https://learn.microsoft.com/azure/aks/use-capacity-reservation-groups.
    reserved = [group.partition("/providers/")[0] for pool in plan.pools if (group := pool.reservation)]
    return {
        "subnet": Right("Network Contributor", subnet),
        "vault": Right("Key Vault Crypto User", creation.vault),
        **({"disks": Right("Contributor", creation.disk_encryption_set)} if creation.disk_encryption_set else {}),
        **{f"reserved-{group.rpartition('/')[2]}": Right("Contributor", group) for group in reserved},
    }


def _entrance(creation: AksCreation) -> containerservice.ManagedClusterAPIServerAccessProfileArgsDict:
    """Access to the API server: from the stack's `allowFrom` networks, or from the cluster's network only."""
    # `az aks command invoke` would bypass both, so it is disabled. The name of a private API server is in the private
    # DNS zone that AKS links to the subnet's network: https://learn.microsoft.com/azure/aks/private-clusters.
    if creation.allow_from:
        return {"authorized_ip_ranges": list(creation.allow_from), "disable_run_command": True}
    return {
        "enable_private_cluster": True,
        "enable_private_cluster_public_fqdn": False,
        "private_dns_zone": "system",
        "disable_run_command": True,
    }


def _system_pool(
    subnet: pulumi.Input[str], creation: AksCreation, system: SystemNodes, tags: dict[str, str]
) -> containerservice.ManagedClusterAgentPoolProfileArgsDict:
    """The system node pool: https://learn.microsoft.com/azure/aks/use-system-pools."""
    # It is part of the cluster's resource: its name and many properties cannot be changed, and AKS refuses a pool that
    # an update of the cluster adds (https://github.com/pulumi/pulumi-azure-native/issues/579). It has no taint, so that
    # operators never wait for a pool of the stack, which can lack capacity. AKS changes taints of existing nodes.
    return {
        "name": "system",
        "mode": "System",
        "type": "VirtualMachineScaleSets",
        "orchestrator_version": creation.version,
        "os_type": "Linux",
        "os_sku": "Ubuntu",
        "vm_size": system.machine.type,
        "enable_auto_scaling": True,
        "min_count": system.minimum,
        "max_count": system.maximum,
        "node_taints": [],
        "vnet_subnet_id": subnet,
        "enable_node_public_ip": False,
        "os_disk_type": "Managed",
        "os_disk_size_gb": system.disk // 2**30,
        "enable_encryption_at_host": system.machine.host_encryption,
        "upgrade_settings": {"max_surge": "1"},
        "tags": tags,
    }
